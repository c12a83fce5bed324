//! Drawing anti-aliased strokes on a small canvas.

use super::strokes::Stroke;

/// Rows and columns of an image.
pub(super) const SIDE: usize = 28;

/// A point, or a displacement, `[x, y]`.
pub(super) type Point = [f32; 2];

/// Straight pieces of a smooth curve between two of its points.
const PIECES: usize = 6;

/// Ink from 0 to 1 on each pixel.
pub(super) struct Canvas {
    pub(super) ink: [f32; SIDE * SIDE],
}

impl Canvas {
    pub(super) fn new() -> Self {
        Self { ink: [0.0; SIDE * SIDE] }
    }

    /// Draws straight lines from point to point (in pixels) with a round pen. If strokes overlap,
    /// the darker one shows, so joints leave no trace.
    pub(super) fn draw(&mut self, points: &[Point], half_width: f32, ink: f32) {
        for pair in points.windows(2) {
            self.segment(pair[0], pair[1], half_width, ink);
        }
    }

    fn segment(&mut self, a: Point, b: Point, half_width: f32, ink: f32) {
        let reach = half_width + 0.5;
        let range = |axis: usize| {
            let (low, high) = (a[axis].min(b[axis]) - reach, a[axis].max(b[axis]) + reach);
            // Casts saturate, so a point far outside costs nothing.
            (low.max(0.0) as usize)..((high + 1.0).max(0.0) as usize).min(SIDE)
        };
        for y in range(1) {
            for x in range(0) {
                let coverage = (reach - distance([x as f32, y as f32], a, b)).clamp(0.0, 1.0);
                let pixel = &mut self.ink[y * SIDE + x];
                *pixel = pixel.max(coverage * ink);
            }
        }
    }
}

/// The distance from a point to the segment from `a` to `b`.
fn distance(point: Point, a: Point, b: Point) -> f32 {
    let along = [b[0] - a[0], b[1] - a[1]];
    let from = [point[0] - a[0], point[1] - a[1]];
    let length = along[0] * along[0] + along[1] * along[1];
    let projection = from[0] * along[0] + from[1] * along[1];
    let t = if length > 0.0 { (projection / length).clamp(0.0, 1.0) } else { 0.0 };
    let (dx, dy) = (from[0] - t * along[0], from[1] - t * along[1]);
    (dx * dx + dy * dy).sqrt()
}

/// Writes the stroke to `out` as points to join by straight lines, with each control point
/// displaced by `jitter`. Lines are also divided into pieces, so a warp can bend them.
pub(super) fn flatten(stroke: Stroke, mut jitter: impl FnMut() -> Point, out: &mut Vec<Point>) {
    let (Stroke::Line(points) | Stroke::Curve(points) | Stroke::Loop(points)) = stroke;
    let points: Vec<Point> = points
        .iter()
        .map(|point| {
            let by = jitter();
            [point[0] + by[0], point[1] + by[1]]
        })
        .collect();
    let n = points.len();
    let spans = if matches!(stroke, Stroke::Loop(_)) { n } else { n - 1 };
    out.clear();
    out.push(points[0]);
    for i in 0..spans {
        let around = match stroke {
            Stroke::Loop(_) => {
                [points[(i + n - 1) % n], points[i], points[(i + 1) % n], points[(i + 2) % n]]
            }
            _ => {
                [points[i.saturating_sub(1)], points[i], points[i + 1], points[(i + 2).min(n - 1)]]
            }
        };
        for piece in 1..=PIECES {
            let t = piece as f32 / PIECES as f32;
            out.push(match stroke {
                Stroke::Line(_) => [0, 1].map(|k| around[1][k] + t * (around[2][k] - around[1][k])),
                _ => catmull_rom(around, t),
            });
        }
    }
}

/// The uniform Catmull–Rom spline through the middle two of four points, at `t` from 0 to 1.
fn catmull_rom([p0, p1, p2, p3]: [Point; 4], t: f32) -> Point {
    [0, 1].map(|k| {
        let a = 2.0 * p1[k];
        let b = p2[k] - p0[k];
        let c = 2.0 * p0[k] - 5.0 * p1[k] + 4.0 * p2[k] - p3[k];
        let d = 3.0 * (p1[k] - p2[k]) + p3[k] - p0[k];
        0.5 * (a + t * (b + t * (c + t * d)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coverage_falls_off_over_one_pixel_at_the_pens_edge() {
        let mut canvas = Canvas::new();
        canvas.draw(&[[5.0, 10.25], [9.0, 10.25]], 1.0, 0.5);
        let column = |x: usize| -> Vec<f32> { (8..13).map(|y| canvas.ink[y * SIDE + x]).collect() };
        // Rows 8 to 12 lie 2.25, 1.25, 0.25, 0.75 and 1.75 from the line; the pen reaches 1 ± 0.5.
        assert_eq!(column(7), [0.0, 0.125, 0.5, 0.375, 0.0]);
        assert_eq!(column(3), [0.0; 5], "two pixels before the end");
    }

    #[test]
    fn strokes_outside_the_canvas_leave_no_ink() {
        let mut canvas = Canvas::new();
        canvas.draw(&[[-90.0, -90.0], [-80.0, 5.0], [100.0, 300.0]], 1.0, 1.0);
        assert!(canvas.ink.iter().all(|&ink| ink == 0.0));
    }

    #[test]
    fn overlaps_keep_the_darker_ink() {
        let mut canvas = Canvas::new();
        canvas.draw(&[[4.0, 4.0], [8.0, 4.0]], 1.0, 0.75);
        canvas.draw(&[[6.0, 2.0], [6.0, 6.0]], 1.0, 0.5);
        assert_eq!(canvas.ink[4 * SIDE + 6], 0.75);
    }

    #[test]
    fn curves_pass_through_their_points_and_loops_close() {
        const POINTS: &[Point] = &[[0.0, 0.0], [1.0, 0.5], [0.5, 1.0]];
        let mut out = Vec::new();
        flatten(Stroke::Curve(POINTS), || [0.0; 2], &mut out);
        assert_eq!(out.len(), 1 + 2 * PIECES);
        assert_eq!([out[0], out[PIECES], out[2 * PIECES]], *POINTS);
        flatten(Stroke::Loop(POINTS), || [0.0; 2], &mut out);
        assert_eq!(out.len(), 1 + 3 * PIECES);
        assert_eq!(out[3 * PIECES], POINTS[0]);
        flatten(Stroke::Line(&POINTS[..2]), || [0.25, 0.0], &mut out);
        assert_eq!((out[0], out[3]), ([0.25, 0.0], [0.75, 0.25]));
    }
}
