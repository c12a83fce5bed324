//! Operations on feature maps that have no parameters.

use super::maps::Maps;
use super::pass::Pass;
use super::pointwise::{highest, sum};
use super::tanh;

/// Negative values become 0.
pub(super) fn relu(pass: &mut Pass<'_>, mut x: Maps) -> Maps {
    // NaN stays NaN.
    x.values_mut().iter_mut().for_each(|x| *x = if *x < 0.0 { 0.0 } else { *x });
    record_each(pass, &x, |y, gradient| if y <= 0.0 { 0.0 } else { gradient });
    x
}

/// The hyperbolic tangent.
pub(super) fn tanh(pass: &mut Pass<'_>, mut x: Maps) -> Maps {
    x.values_mut().iter_mut().for_each(|x| *x = tanh::tanh(*x));
    record_each(pass, &x, |y, gradient| gradient * (1.0 - y * y));
    x
}

/// An eighth of each value.
pub(super) fn eighth(pass: &mut Pass<'_>, mut x: Maps) -> Maps {
    x.values_mut().iter_mut().for_each(|x| *x *= 0.125);
    record_each(pass, &x, |_, gradient| gradient * 0.125);
    x
}

/// Records an operation on single values: `back` turns an output and its gradient into the gradient
/// of the input.
fn record_each(pass: &mut Pass<'_>, y: &Maps, back: impl Fn(f32, f32) -> f32 + 'static) {
    let y = y.clone();
    pass.record(move |mut gradient, _| {
        for (gradient, y) in gradient.values_mut().iter_mut().zip(y.values()) {
            *gradient = back(*y, *gradient);
        }
        Some(gradient)
    });
}

/// The mean of each 2×2 square. An odd last row or column is left out.
pub(super) fn halve(pass: &mut Pass<'_>, x: Maps) -> Maps {
    let [channels, height, width] = x.shape;
    let halved = [channels, height / 2, width / 2];
    let places = move |map: usize| {
        let squares = (0..height / 2).flat_map(move |row| (0..width / 2).map(move |at| (row, at)));
        let first = map * height * width;
        squares.map(move |(row, at)| {
            let corner = first + 2 * row * width + 2 * at;
            [corner, corner + 1, corner + width, corner + width + 1]
        })
    };
    let maps = x.batch() * channels;
    let mean = |square: [usize; 4]| square.map(|at| x.values()[at]).iter().sum::<f32>() / 4.0;
    let y = (0..maps).flat_map(places).map(mean).collect();
    let of_x = x.outline();
    pass.record(move |gradient, _| {
        of_x.gradient(|| {
            let mut found = vec![0.0; of_x.len];
            for (square, gradient) in (0..maps).flat_map(places).zip(gradient.values()) {
                square.into_iter().for_each(|at| found[at] = gradient / 4.0);
            }
            found
        })
    });
    Maps::new(y, halved)
}

/// The mean of each map.
pub(super) fn global_mean(pass: &mut Pass<'_>, x: Maps) -> Maps {
    let (map_len, [channels, ..]) = (x.map_len(), x.shape);
    let y = x.values().chunks_exact(map_len).map(|map| sum(map) / map_len as f32).collect();
    let of_x = x.outline();
    pass.record(move |gradient, _| {
        of_x.gradient(|| {
            let each = gradient.values().iter().map(|gradient| gradient / map_len as f32);
            each.flat_map(|gradient| std::iter::repeat_n(gradient, map_len)).collect()
        })
    });
    Maps::new(y, [channels, 1, 1])
}

/// The largest value of each map. Among equal values the first gets the gradient. NaN is the
/// largest.
pub(super) fn global_max(pass: &mut Pass<'_>, x: Maps) -> Maps {
    let (map_len, [channels, ..]) = (x.map_len(), x.shape);
    let largest: Vec<usize> = x.values().chunks_exact(map_len).map(largest_at).collect();
    let maps = x.values().chunks_exact(map_len);
    let y = maps.zip(&largest).map(|(map, &at)| map[at]).collect();
    let of_x = x.outline();
    pass.record(move |gradient, _| {
        of_x.gradient(|| {
            let mut found = vec![0.0; of_x.len];
            let maps = found.chunks_exact_mut(map_len).zip(largest);
            maps.zip(gradient.values()).for_each(|((map, at), gradient)| map[at] = *gradient);
            found
        })
    });
    Maps::new(y, [channels, 1, 1])
}

/// The position of the first NaN, or else of the first of the largest values.
fn largest_at(map: &[f32]) -> usize {
    map.iter().position(|x| x.is_nan()).unwrap_or_else(|| highest(map))
}

/// Every second row and column, from the first on, and the same number of channels of zeros.
pub(super) fn widen(pass: &mut Pass<'_>, x: Maps) -> Maps {
    let [channels, height, width] = x.shape;
    let thinned = [2 * channels, height.div_ceil(2), width.div_ceil(2)];
    let rows = move |image: usize| {
        let rows = (image * channels..(image + 1) * channels)
            .flat_map(move |map| (0..height).step_by(2).map(move |row| map * height + row));
        rows.map(move |row| row * width)
    };
    let (batch, row_len) = (x.batch(), thinned[2]);
    let mut y = vec![0.0; batch * thinned.iter().product::<usize>()];
    let image = thinned.iter().product();
    for (at, out) in y.chunks_exact_mut(image).enumerate() {
        for (first, out) in rows(at).zip(out.chunks_exact_mut(row_len)) {
            let row = x.values()[first..first + width].iter().step_by(2);
            out.iter_mut().zip(row).for_each(|(out, x)| *out = *x);
        }
    }
    let of_x = x.outline();
    pass.record(move |gradient, _| {
        of_x.gradient(|| {
            let mut found = vec![0.0; of_x.len];
            for (at, gradient) in gradient.values().chunks_exact(image).enumerate() {
                for (first, gradient) in rows(at).zip(gradient.chunks_exact(row_len)) {
                    let row = found[first..first + width].iter_mut().step_by(2);
                    row.zip(gradient).for_each(|(found, gradient)| *found = *gradient);
                }
            }
            found
        })
    });
    Maps::new(y, thinned)
}

/// A row of two scores for each pixel of a single map: 0, and the pixel's value.
pub(super) fn against_zero(pass: &mut Pass<'_>, x: Maps) -> Maps {
    let of_x = x.outline();
    let scores = x.values().iter().flat_map(|&x| [0.0, x]).collect();
    pass.record(move |gradient, _| {
        of_x.gradient(|| gradient.values().iter().skip(1).step_by(2).copied().collect())
    });
    Maps::new(scores, [2, 1, 1])
}
#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::network::Operation;
    use crate::models::testing::Trial;

    const SHAPE: [usize; 3] = [2, 5, 7];

    fn check(run: Operation, naive: impl Fn(&[f64]) -> Vec<f64>) {
        Trial::run((3, SHAPE), Vec::new(), run).check(|x, _| naive(x));
    }

    /// The results of `of` for each map, one after the other.
    fn each_map(of: impl Fn(&[f64]) -> Vec<f64>) -> impl Fn(&[f64]) -> Vec<f64> {
        move |maps| maps.chunks(SHAPE[1] * SHAPE[2]).flat_map(&of).collect()
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definitions() {
        check(relu, |x| x.iter().map(|x| x.max(0.0)).collect());
        check(tanh, |x| x.iter().map(|x| x.tanh()).collect());
        check(eighth, |x| x.iter().map(|x| x / 8.0).collect());
        let [_, _, width] = SHAPE;
        let pixel = |map: &[f64], y: usize, x: usize| map[y * width + x];
        let mean = |map: &[f64], y: usize, x: usize| {
            let square = [(0, 0), (0, 1), (1, 0), (1, 1)];
            square.iter().map(|(down, right)| pixel(map, 2 * y + down, 2 * x + right)).sum::<f64>()
                / 4.0
        };
        let squares = || (0..2).flat_map(|y| (0..3).map(move |x| (y, x)));
        check(halve, each_map(|map| squares().map(|(y, x)| mean(map, y, x)).collect()));
        check(global_mean, each_map(|map| vec![map.iter().sum::<f64>() / map.len() as f64]));
        let largest = |map: &[f64]| vec![map.iter().copied().fold(f64::NEG_INFINITY, f64::max)];
        check(global_max, each_map(largest));
        let second = |map: &[f64]| -> Vec<f64> {
            let places = [0, 2, 4].into_iter().flat_map(|y| [0, 2, 4, 6].map(move |x| (y, x)));
            places.map(|(y, x)| pixel(map, y, x)).collect()
        };
        check(widen, |maps| {
            let images = maps.chunks(SHAPE.iter().product());
            let widened = |image: &[f64]| [each_map(second)(image), vec![0.0; 2 * 12]].concat();
            images.flat_map(widened).collect()
        });
        check(against_zero, |x| x.iter().flat_map(|&x| [0.0, x]).collect());
    }

    #[test]
    fn rectifiers_keep_what_is_not_a_number() {
        let mut pass = Pass::scoring(&[], &[]);
        let y = relu(&mut pass, Maps::new(vec![f32::NAN, -1.0, 2.0], [3, 1, 1]));
        assert!(y.values()[0].is_nan());
        assert_eq!(y.values()[1..], [0.0, 2.0]);
        let y = global_max(&mut pass, Maps::new(vec![1.0, f32::NAN, 2.0, 3.0], [1, 2, 2]));
        assert!(y.values()[0].is_nan());
    }
}
