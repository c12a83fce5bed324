//! Products of a gradient, as a matrix, with thin factors.
//!
//! A tensor is a row-major matrix, its first dimension by the product of the others; factors are column-major. Results
//! that must be equal on all ranks are computed in plain loops, in the same order of operations on every machine; a
//! library computes products of a rank's own gradient.

use faer::linalg::matmul::matmul;
use faer::{Accum, MatMut, MatRef, Par};
use gradwire_bits::kernels::{self, Columns};

use crate::BLOCK;

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
pub fn times(c: &[f32], [rows, columns]: [usize; 2], q: &[f32], rank: usize, out: &mut Vec<f32>) {
    let product = extend(out, rows * rank);
    let c = MatRef::from_row_major_slice(c, rows, columns);
    let q = MatRef::from_column_major_slice(q, columns, rank);
    let product = MatMut::from_column_major_slice_mut(product, rows, rank);
    matmul(product, Accum::Replace, c, q, 1.0, Par::Seq);
}

/// Appends `Cᵀ·P`, columns × rank, to `out`.
pub fn transposed_times(
    c: &[f32],
    [rows, columns]: [usize; 2],
    p: &[f32],
    rank: usize,
    out: &mut Vec<f32>,
) {
    let product = extend(out, columns * rank);
    let c = MatRef::from_row_major_slice(c, rows, columns).transpose();
    let p = MatRef::from_column_major_slice(p, rows, rank);
    let product = MatMut::from_column_major_slice_mut(product, columns, rank);
    matmul(product, Accum::Replace, c, p, 1.0, Par::Seq);
}

fn extend(out: &mut Vec<f32>, by: usize) -> &mut [f32] {
    let start = out.len();
    out.resize(start + by, 0.0);
    &mut out[start..]
}

/// Elements of a product that are computed together, aligned to a cache line: access to a vector that crosses a line
/// takes twice as long.
#[repr(align(64))]
struct Tile([f32; BLOCK]);

/// Computes `P·Qᵀ`, a few rows or a part of one at a time, and calls a closure with each tile and its offset in the
/// matrix.
///
/// A tile stays in the first-level cache. Plain loops move 12 bytes to and from it per multiplication; the kernel keeps
/// sums in registers and reads one byte.
pub fn tiles_of_product(
    p: &[f32],
    q: &[f32],
    [rows, columns]: [usize; 2],
    mut take: impl FnMut(usize, &[f32]),
) {
    let mut tile = Tile([0.0; BLOCK]);
    let width = columns.clamp(1, BLOCK);
    let together = BLOCK / width;
    for first in (0..rows).step_by(together) {
        let count = together.min(rows - first);
        for start in (0..columns).step_by(width) {
            let width = width.min(columns - start);
            let tile = &mut tile.0[..count * width];
            let p = Columns { values: p, len: rows, first };
            let q = Columns { values: q, len: columns, first: start };
            kernels::product(tile, width, p, q);
            take(first * columns + start, tile);
        }
    }
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
    fn products_are_those_of_matrices() {
        let mut out = vec![9.0];
        times(&C, [3, 2], &[1.0, 0.0, 1.0, -1.0], 2, &mut out);
        assert_eq!(out, [9.0, 1.0, 3.0, 5.0, -1.0, -1.0, -1.0]);
        out.clear();
        transposed_times(&C, [3, 2], &[1.0, 1.0, 1.0], 1, &mut out);
        assert_eq!(out, [9.0, 12.0]);
        let mut seen = Vec::new();
        tiles_of_product(&[1.0, 2.0], &[3.0, 4.0, 5.0], [2, 3], |at, tile| {
            seen.push((at, tile.to_vec()));
        });
        assert_eq!(seen, [(0, vec![3.0, 4.0, 5.0, 6.0, 8.0, 10.0])]);
    }

    #[test]
    fn tiles_make_up_the_product() {
        // Several rows in a tile and tiles of fewer, rows longer than a tile.
        for [rows, columns] in [[9, 1000], [3, 2 * BLOCK + 5], [2 * BLOCK + 1, 1]] {
            let p: Vec<f32> = (0..2 * rows).map(|i| (i % 7) as f32).collect();
            let q: Vec<f32> = (0..2 * columns).map(|i| (i % 11) as f32 - 5.0).collect();
            let mut product = Vec::new();
            tiles_of_product(&p, &q, [rows, columns], |at, tile| {
                assert_eq!(at, product.len());
                product.extend_from_slice(tile);
            });
            assert_eq!(product.len(), rows * columns);
            for (at, &x) in product.iter().enumerate() {
                let (i, j) = (at / columns, at % columns);
                assert_eq!(x, p[i] * q[j] + p[rows + i] * q[columns + j]);
            }
        }
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
