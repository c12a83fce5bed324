//! Products of a gradient, as a matrix, with thin factors.
//!
//! A tensor is a row-major matrix, its first dimension by the product of the others; factors are column-major. All results
//! are computed in the same order of operations on every machine.

use gradwire_bits::kernels;

/// The most columns of a factor.
pub const MAX_RANK: usize = 32;

/// Rows and columns of a tensor as a matrix; `None` for fewer than two dimensions, and for empty tensors, whose other
/// dimensions may have a product that overflows.
pub fn dimensions(shape: &[usize]) -> Option<[usize; 2]> {
    match shape {
        _ if shape.contains(&0) => None,
        [rows, rest @ ..] if !rest.is_empty() => Some([*rows, rest.iter().product()]),
        _ => None,
    }
}

/// Appends `C·Q`, rows × rank, to `out`; `C` has `rows` rows, `Q` as many rows as `C` has columns.
pub fn times(c: &[f32], rows: usize, q: &[f32], rank: usize, out: &mut Vec<f32>) {
    kernels::times_thin(c, q, rank, extend(out, rows * rank));
}

/// Appends `Cᵀ·P`, columns × rank, to `out`.
pub fn transposed_times(c: &[f32], columns: usize, p: &[f32], rank: usize, out: &mut Vec<f32>) {
    kernels::transposed_times_thin(c, p, rank, extend(out, columns * rank));
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

/// Orthonormalises the columns by Gram–Schmidt, applied twice. A column that is in the span of the previous ones, to
/// the precision of `f32`, becomes zero.
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

/// Replaces factors `A` with `rows` rows by `A·(AᵀA + λI)⁻¹`, where λ is `lambda` times the mean of the
/// diagonal of `AᵀA`, by Cholesky decomposition in double precision. Zeros stay. There are at most [`MAX_RANK`]
/// columns.
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

/// Replaces the lower triangle of a positive definite matrix by `L`, where the matrix is `L·Lᵀ`.
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
        times(&C, 3, &[1.0, 0.0, 1.0, -1.0], 2, &mut out);
        transposed_times(&C, 2, &[1.0, 1.0, 1.0], 1, &mut out);
        assert_eq!(out, [9.0, 1.0, 3.0, 5.0, -1.0, -1.0, -1.0, 9.0, 12.0]);
    }

    #[test]
    fn columns_become_orthonormal_or_nothing() {
        // The second is 3/5 of the first's direction and 1 of another; the third is their sum.
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
        // AᵀA = diag(4, 1); λ = 0.2 · 2.5 = 0.5; columns divide by 4.5 and 1.5.
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
