//! Products of a gradient, as a matrix, with thin factors.
//!
//! A tensor is a row-major matrix: its first dimension by the product of the others. Factors are
//! column-major. All results are computed in the same order of operations on every machine.

use std::iter::repeat;
use std::ops::Range;

use gradwire_bits::kernels;

use crate::{Helpers, MIN_DIVIDED};

/// The most columns of a factor.
pub const MAX_RANK: usize = 32;

/// Rows and columns of a tensor as a matrix; `None` for fewer than two dimensions, and for empty
/// tensors (the product of their other dimensions may overflow).
pub fn dimensions(shape: &[usize]) -> Option<[usize; 2]> {
    match shape {
        _ if shape.contains(&0) => None,
        [rows, rest @ ..] if !rest.is_empty() => Some([*rows, rest.iter().product()]),
        _ => None,
    }
}

/// Appends `C·Q`, rows × rank, to `out`; `C` has `rows` rows, `Q` as many rows as `C` has columns.
/// The helpers share the rows.
pub(crate) fn times(
    c: &[f32],
    rows: usize,
    q: &[f32],
    rank: usize,
    out: &mut Vec<f32>,
    helpers: &mut Helpers,
) {
    let columns = c.len().checked_div(rows).unwrap_or(0);
    let panels = Panels::new(rows, columns, LINE, helpers);
    panels.fill(extend(out, rows * rank), repeat(()), helpers, |range, panel, ()| {
        let c = &c[range.start * columns..range.end * columns];
        kernels::times_thin(c, q, rank, panel);
    });
}

/// Appends `Cᵀ·P`, columns × rank, to `out`. The helpers share the columns.
pub(crate) fn transposed_times(
    c: &[f32],
    columns: usize,
    p: &[f32],
    rank: usize,
    out: &mut Vec<f32>,
    helpers: &mut Helpers,
) {
    let rows = c.len().checked_div(columns).unwrap_or(0);
    let panels = Panels::new(columns, rows, LINE, helpers);
    panels.fill(extend(out, columns * rank), repeat(()), helpers, |range, panel, ()| {
        kernels::transposed_times_thin(c, columns, range.start, p, rank, panel);
    });
}

/// Adds `weight·P·Qᵀ` to a row-major matrix; `P` has a row per row of the matrix, and `Q` a row per
/// column. The helpers share the rows.
pub(crate) fn add_product(
    out: &mut [f32],
    [p, q]: [&[f32]; 2],
    rank: usize,
    weight: f32,
    helpers: &mut Helpers,
) {
    let rows = p.len() / rank;
    let panels = Panels::new(rows, out.len().checked_div(rows).unwrap_or(0), LINE, helpers);
    if panels.is_one() {
        return kernels::add_product(out, p, q, rank, weight);
    }
    let columns = out.len() / rows;
    helpers.share(panels.ranges().zip(out.chunks_mut(panels.len * columns)), |(range, out)| {
        let mut part = Vec::with_capacity(range.len() * rank);
        p.chunks_exact(rows).for_each(|column| part.extend_from_slice(&column[range.clone()]));
        kernels::add_product(out, &part, q, rank, weight);
    });
}

/// The rows of a panel are a multiple of this: a multiple of four, for the kernels, and of a cache
/// line.
const LINE: usize = 16;

/// A division of the rows of a thin matrix among threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Panels {
    rows: usize,
    /// Rows of a panel; the last may have fewer.
    pub(crate) len: usize,
}

impl Panels {
    /// Panels per thread, so a thread that is held up leaves work to the others.
    const EACH: usize = 4;

    /// Panels of a multiple of `unit` rows, equally many per thread, for a product with a matrix of
    /// `rows × width` elements, or its transpose.
    pub(crate) fn new(rows: usize, width: usize, unit: usize, helpers: &Helpers) -> Self {
        let divided = helpers.count() > 0 && rows * width >= MIN_DIVIDED;
        let panels = if divided { Self::EACH * (helpers.count() + 1) } else { 1 };
        Self { rows, len: rows.div_ceil(panels).next_multiple_of(unit) }
    }

    pub(crate) fn is_one(self) -> bool {
        self.len >= self.rows
    }

    /// The rows of each panel.
    fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        (0..self.rows).step_by(self.len).map(move |at| at..self.rows.min(at + self.len))
    }

    /// Fills a column-major matrix. `fill` gets the range of rows of a panel, a column-major buffer
    /// for those rows, and the panel's own value.
    pub(crate) fn fill<T: Send>(
        self,
        out: &mut [f32],
        mut values: impl Iterator<Item = T> + Send,
        helpers: &mut Helpers,
        fill: impl Fn(Range<usize>, &mut [f32], T) + Sync,
    ) {
        if self.is_one() {
            return values.by_ref().take(1).for_each(|value| fill(0..self.rows, out, value));
        }
        let mut columns: Vec<_> =
            out.chunks_exact_mut(self.rows).map(|column| column.chunks_mut(self.len)).collect();
        let places = self.ranges().map(move |range| {
            let places: Vec<_> = columns.iter_mut().filter_map(Iterator::next).collect();
            (range, places)
        });
        helpers.share(places.zip(values), |((range, places), value)| {
            let mut panel = vec![0.0; range.len() * places.len()];
            fill(range.clone(), &mut panel, value);
            let columns = panel.chunks_exact(range.len());
            places
                .into_iter()
                .zip(columns)
                .for_each(|(place, column)| place.copy_from_slice(column));
        });
    }
}

fn extend(out: &mut Vec<f32>, by: usize) -> &mut [f32] {
    let start = out.len();
    out.resize(start + by, 0.0);
    &mut out[start..]
}

/// The inner product, in order and in double precision.
pub fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&a, &b)| f64::from(a) * f64::from(b)).sum()
}

/// The largest absolute value.
pub fn abs_max(values: &[f32]) -> f32 {
    f32::from_bits(kernels::abs_max_bits(values))
}

/// Orthonormalises the columns by Gram–Schmidt, applied twice. A column in the span of the previous
/// ones, to the precision of `f32`, becomes zero.
pub fn orthonormalise(columns: &mut [f32], rows: usize) {
    /// If less than this fraction of a column's norm is left, the rest is rounding error.
    const ROUNDING: f64 = 1e-5;
    for at in (0..columns.len()).step_by(rows.max(1)) {
        let (before, column) = columns.split_at_mut(at);
        let column = &mut column[..rows];
        normalise(column);
        for _ in 0..2 {
            for other in before.chunks_exact(rows) {
                let along = dot(other, column);
                for (x, &y) in column.iter_mut().zip(other) {
                    *x = (f64::from(*x) - along * f64::from(y)) as f32;
                }
            }
        }
        if dot(column, column).sqrt() <= ROUNDING { column.fill(0.0) } else { normalise(column) }
    }
}

/// Scales a column to norm 1; zeros stay.
pub fn normalise(column: &mut [f32]) {
    let norm = dot(column, column).sqrt();
    if norm > 0.0 {
        column.iter_mut().for_each(|x| *x = (f64::from(*x) / norm) as f32);
    }
}

/// Replaces factors `A` with `rows` rows by `A·(AᵀA + λI)⁻¹`, with λ = `lambda` times the mean of
/// the diagonal of `AᵀA`. Uses Cholesky decomposition in double precision. Zeros stay. There are at
/// most [`MAX_RANK`] columns.
pub fn regularised_inverse(factors: &mut [f32], rows: usize, lambda: f64) {
    let rank = factors.len().checked_div(rows).unwrap_or(0);
    let column = |at: usize| &factors[at * rows..(at + 1) * rows];
    let mut gram = [0.0; MAX_RANK * MAX_RANK];
    for i in 0..rank {
        for j in 0..=i {
            gram[i * rank + j] = dot(column(i), column(j));
        }
    }
    let trace: f64 = (0..rank).map(|i| gram[i * rank + i]).sum();
    if trace == 0.0 {
        return;
    }
    (0..rank).for_each(|i| gram[i * rank + i] += lambda * trace / rank as f64);
    cholesky(&mut gram, rank);
    let mut solution = [0.0; MAX_RANK];
    for row in 0..rows {
        for i in 0..rank {
            let known: f64 = (0..i).map(|j| gram[i * rank + j] * solution[j]).sum();
            solution[i] = (f64::from(factors[i * rows + row]) - known) / gram[i * rank + i];
        }
        for i in (0..rank).rev() {
            let known: f64 = (i + 1..rank).map(|j| gram[j * rank + i] * solution[j]).sum();
            solution[i] = (solution[i] - known) / gram[i * rank + i];
        }
        (0..rank).for_each(|i| factors[i * rows + row] = solution[i] as f32);
    }
}

/// Replaces the lower triangle of a positive definite matrix `L·Lᵀ` by `L`.
fn cholesky(matrix: &mut [f64], size: usize) {
    for i in 0..size {
        for j in 0..=i {
            let known: f64 = (0..j).map(|k| matrix[i * size + k] * matrix[j * size + k]).sum();
            let rest = matrix[i * size + j] - known;
            // Rounding can make a pivot zero or negative.
            matrix[i * size + j] = match i == j {
                true => rest.max(f64::MIN_POSITIVE).sqrt(),
                false => rest / matrix[j * size + j],
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // 3 × 2, row by row.
    const C: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    #[test]
    fn the_first_dimension_is_the_rows() {
        assert_eq!(dimensions(&[4, 3, 2]), Some([4, 6]));
        assert_eq!((dimensions(&[4, 0]), dimensions(&[0, usize::MAX, 2])), (None, None));
        assert_eq!((dimensions(&[4]), dimensions(&[])), (None, None));
    }

    #[test]
    fn products_are_appended() {
        let mut out = vec![9.0];
        let mut alone = Helpers::default();
        times(&C, 3, &[1.0, 0.0, 1.0, -1.0], 2, &mut out, &mut alone);
        transposed_times(&C, 2, &[1.0, 1.0, 1.0], 1, &mut out, &mut alone);
        assert_eq!(out, [9.0, 1.0, 3.0, 5.0, -1.0, -1.0, -1.0, 9.0, 12.0]);
    }

    #[test]
    fn threads_compute_the_same_products() {
        for [rows, columns] in [[700, 400], [17, 20_000], [90_001, 3], [1, MIN_DIVIDED]] {
            let number = |at: usize| ((at * 7 + at / 3) % 101) as f32 / 3.0 - 15.0;
            let numbers = |len: usize| (0..len).map(number).collect::<Vec<_>>();
            let (c, p, q) = (numbers(rows * columns), numbers(rows * 3), numbers(columns * 3));
            let products = |helpers: &mut Helpers| {
                let (mut out, mut sum) = (Vec::new(), c.clone());
                times(&c, rows, &q, 3, &mut out, helpers);
                transposed_times(&c, columns, &p, 3, &mut out, helpers);
                add_product(&mut sum, [&p, &q], 3, 0.3, helpers);
                (out, sum)
            };
            let alone = products(&mut Helpers::default());
            let together = products(&mut Helpers::new(2));
            assert_eq!(alone, together, "{rows} × {columns}");
        }
    }

    #[test]
    fn columns_become_orthonormal_or_nothing() {
        // The second is 3/5 in the first's direction and 1 in another; the third is their sum.
        let mut columns = [3.0, 4.0, 0.0, 3.0, 4.0, 7.0, 6.0, 8.0, 7.0];
        orthonormalise(&mut columns, 3);
        let expected = [0.6, 0.8, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0];
        for (x, y) in columns.iter().zip(expected) {
            assert!((x - y).abs() < 1e-6, "{columns:?}");
        }
        let mut extremes = [f32::MAX, f32::MAX, 1e-45, 0.0];
        orthonormalise(&mut extremes, 2);
        let half = 0.5f32.sqrt();
        for (x, y) in extremes.iter().zip([half, half, half, -half]) {
            assert!((x - y).abs() < 1e-6, "{extremes:?}");
        }
    }

    #[test]
    fn the_inverse_is_that_of_the_regularised_gram_matrix() {
        // AᵀA = diag(4, 1); λ = 0.2 · 2.5 = 0.5; columns are divided by 4.5 and 1.5.
        let mut factors = [2.0, 0.0, 0.0, 1.0];
        regularised_inverse(&mut factors, 2, 0.2);
        for (x, y) in factors.iter().zip([2.0 / 4.5, 0.0, 0.0, 1.0 / 1.5]) {
            assert!((x - y).abs() < 1e-6, "{factors:?}");
        }
        let mut coupled = [1.0, 1.0, 1.0, 0.0];
        // AᵀA = [[2, 1], [1, 1]], its inverse [[1, -1], [-1, 2]].
        regularised_inverse(&mut coupled, 2, 0.0);
        for (x, y) in coupled.iter().zip([0.0, 1.0, 1.0, -1.0]) {
            assert!((x - y).abs() < 1e-6, "{coupled:?}");
        }
        let mut nothing = [0.0; 4];
        regularised_inverse(&mut nothing, 2, 0.1);
        assert_eq!(nothing, [0.0; 4]);
    }
}
