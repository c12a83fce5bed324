//! Max-pooling: 2×2 squares one by one, other windows row by row, which is faster than window by
//! window.

use pulp::Arch;

use super::maps::Maps;
use super::pass::Pass;
use super::window::Window;

/// The largest value of each window. Padding is never the largest. Among equal values the first one
/// gets the gradient. NaN is the largest.
pub(super) fn max_pool(pass: &mut Pass<'_>, window: Window, x: Maps) -> Maps {
    let [channels, height, width] = x.shape;
    let shape = [channels, window.places(height), window.places(width)];
    let (largest, sources) = pool(&x, window);
    let (of_x, map_len) = (x.outline(), x.map_len());
    pass.record(move |gradient, _| {
        of_x.gradient(|| {
            let mut found = vec![0.0; of_x.len];
            let places = shape[1] * shape[2];
            let each = gradient.values().chunks_exact(places).zip(sources.chunks_exact(places));
            for (map, (gradient, sources)) in found.chunks_exact_mut(map_len).zip(each) {
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
        if is_square_of_two(window) {
            Arch::new().dispatch(|| pool_squares(map, width, largest, sources));
            continue;
        }
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

/// Whether windows are squares of 2×2 pixels that do not overlap, as in most networks.
fn is_square_of_two(window: Window) -> bool {
    matches!(window, Window { kernel: 2, stride: 2, padding: 0 })
}

/// The largest of each 2×2 square of a map, and its pixel.
#[inline(always)]
fn pool_squares(map: &[f32], width: usize, largest: &mut [f32], sources: &mut [u32]) {
    let columns = width / 2;
    let of_rows = largest.chunks_exact_mut(columns).zip(sources.chunks_exact_mut(columns));
    for (row, (largest, sources)) in of_rows.enumerate() {
        let first = 2 * row * width;
        let (top, bottom) = map[first..][..2 * width].split_at(width);
        let squares = top.as_chunks().0.iter().zip(bottom.as_chunks().0);
        let results = largest.iter_mut().zip(sources);
        for (at, ((top, bottom), (largest, source))) in squares.zip(results).enumerate() {
            let (value, place) = largest_of_square(top, bottom, width as u32);
            (*largest, *source) = (value, place + (first + 2 * at) as u32);
        }
    }
}

/// The first of the largest values of a square, and the distance of its pixel from the first pixel.
#[inline(always)]
fn largest_of_square(top: &[f32; 2], bottom: &[f32; 2], width: u32) -> (f32, u32) {
    let others = [(top[1], 1), (bottom[0], width), (bottom[1], width + 1)];
    others.into_iter().fold((top[0], 0), |(largest, place), (pixel, other)| {
        // NaN is larger than numbers, and the first NaN stays.
        let is_larger = (pixel > largest) | (pixel.is_nan() & !largest.is_nan());
        if is_larger { (pixel, other) } else { (largest, place) }
    })
}

/// Compares a row of windows with a row of pixels; its first pixel has the index `first` in the
/// map.
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
    fn squares_are_windows_like_others() {
        let inf = f32::INFINITY;
        let choices = [1.0, 1.0, 2.0, -inf, 3.0, f32::NAN, inf, -0.0, 0.0];
        // An odd last row and column belong to no square.
        let (width, height) = (51, 21);
        let mut values: Vec<f32> =
            (0..width * height).map(|at| choices[at * at % 43 % 9]).collect();
        for at in [4, 5, width + 4, width + 5] {
            values[at] = -inf;
        }
        let window = Window { kernel: 2, stride: 2, padding: 0 };
        let (largest, sources) = pool(&Maps::new(values.clone(), [1, height, width]), window);
        let (mut expected, mut pixels) = (vec![f32::NEG_INFINITY; 250], vec![NONE; 250]);
        for row in 0..2 * (height / 2) {
            let places = row / 2 * 25..(row / 2 + 1) * 25;
            let (expected, pixels) = (&mut expected[places.clone()], &mut pixels[places]);
            pool_row(&values[row * width..][..width], row * width, window, expected, pixels);
        }
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<u32>>();
        assert_eq!((bits(&largest), sources), (bits(&expected), pixels));
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
