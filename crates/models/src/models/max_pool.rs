//! Max-pooling, row by row: window by window it would take longer than the convolutions around it.

use super::maps::Maps;
use super::pass::Pass;
use super::window::Window;

/// The largest value of each window. Padding is never the largest. Of equal values the first one gets the gradient. NaN is the
/// largest.
pub(super) fn max_pool(pass: &mut Pass<'_>, window: Window, x: Maps) -> Maps {
    let [channels, height, width] = x.shape;
    let shape = [channels, window.places(height), window.places(width)];
    let (largest, sources) = pool(&x, window);
    pass.record(move |gradient, _| {
        x.gradient(|| {
            let mut found = vec![0.0; x.values().len()];
            let places = shape[1] * shape[2];
            let each = gradient.values().chunks_exact(places).zip(sources.chunks_exact(places));
            for (map, (gradient, sources)) in found.chunks_exact_mut(x.plane()).zip(each) {
                for (value, &source) in gradient.iter().zip(sources) {
                    map[source as usize] += value;
                }
            }
            found
        })
    });
    Maps::new(largest, shape)
}

/// No pixel yet.
const NONE: u32 = u32::MAX;

/// The largest value of each window, and its pixel within its map.
fn pool(maps: &Maps, window: Window) -> (Vec<f32>, Vec<u32>) {
    assert!(window.padding < window.kernel, "a window lies on a pixel at each of its places");
    let [channels, height, width] = maps.shape;
    let [rows, columns] = [height, width].map(|length| window.places(length));
    let mut largest = vec![f32::NEG_INFINITY; maps.batch() * channels * rows * columns];
    let mut sources = vec![NONE; largest.len()];
    let of_maps = largest
        .chunks_exact_mut(rows * columns)
        .zip(sources.chunks_exact_mut(rows * columns))
        .zip(maps.values().chunks_exact(height * width));
    for ((largest, sources), map) in of_maps {
        let of_rows = largest.chunks_exact_mut(columns).zip(sources.chunks_exact_mut(columns));
        for (row, (largest, sources)) in of_rows.enumerate() {
            for y in 0..window.kernel {
                let Some(y) = (row * window.stride + y).checked_sub(window.padding) else {
                    continue;
                };
                if y < height {
                    let pixels = &map[y * width..][..width];
                    pool_row(pixels, y * width, window, largest, sources);
                }
            }
        }
    }
    (largest, sources)
}

/// Compares a row of windows with a row of pixels, of which the first is number `first` in its map.
fn pool_row(
    pixels: &[f32],
    first: usize,
    window: Window,
    largest: &mut [f32],
    sources: &mut [u32],
) {
    let Window { kernel, stride, padding } = window;
    for x in 0..kernel {
        // Windows whose element `x` is a pixel of the row.
        let skipped = padding.saturating_sub(x).div_ceil(stride);
        let start = skipped * stride + x - padding;
        let met = pixels.iter().enumerate().skip(start).step_by(stride);
        let windows = largest.iter_mut().zip(&mut *sources).skip(skipped);
        for ((largest, source), (at, &pixel)) in windows.zip(met) {
            if pixel > *largest || *source == NONE || (pixel.is_nan() && !largest.is_nan()) {
                *largest = pixel;
                *source = (first + at) as u32;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::testing::Trial;

    /// The largest pixels, window by window.
    fn naive(maps: &[f64], [height, width]: [usize; 2], window: Window) -> Vec<f64> {
        let inside = |place: usize, length: usize| {
            let first = (place * window.stride) as isize - window.padding as isize;
            let elements = first..first + window.kernel as isize;
            elements.filter(move |&at| (0..length as isize).contains(&at)).map(|at| at as usize)
        };
        let largest = |map: &[f64], row, column| {
            let pixels = inside(row, height)
                .flat_map(|y| inside(column, width).map(move |x| map[y * width + x]));
            pixels.fold(f64::NEG_INFINITY, f64::max)
        };
        let of_map = |map: &[f64]| -> Vec<f64> {
            let rows = 0..window.places(height);
            let places = rows.flat_map(|y| (0..window.places(width)).map(move |x| (y, x)));
            places.map(|(y, x)| largest(map, y, x)).collect()
        };
        maps.chunks(height * width).flat_map(of_map).collect()
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        for (kernel, stride, padding) in
            [(2, 2, 0), (3, 2, 0), (3, 2, 1), (3, 1, 1), (1, 3, 0), (2, 3, 1)]
        {
            let window = Window { kernel, stride, padding };
            let run = |pass: &mut Pass<'_>, x| max_pool(pass, window, x);
            Trial::run((2, [3, 8, 9]), Vec::new(), run).check(|x, _| naive(x, [8, 9], window));
        }
    }

    #[test]
    fn the_first_of_equal_values_and_what_is_not_a_number() {
        let values = [1.0, 1.0, f32::NEG_INFINITY, f32::NEG_INFINITY, 3.0, f32::NAN];
        let mut largest = [f32::NEG_INFINITY; 3];
        let mut sources = [NONE; 3];
        let two = Window { kernel: 2, stride: 2, padding: 0 };
        pool_row(&values, 10, two, &mut largest, &mut sources);
        assert_eq!(largest[..2], [1.0, f32::NEG_INFINITY]);
        assert!(largest[2].is_nan());
        assert_eq!(sources, [10, 12, 15]);
    }
}
