//! The largest singular values of a matrix, and their vectors.
//!
//! Take any orthonormal basis of the shorter side of a matrix: the matrix is the sum of each basis
//! vector times its product with the matrix. The vectors are called *short* here and their products
//! *long*. If the basis consists of singular vectors, the length of a product is the singular
//! value.
//!
//! All vectors together are found exactly, from the eigenvectors of the inner products of rows or
//! columns. Fewer vectors are found by subspace iteration from a random start: Halko, Martinsson,
//! Tropp, "Finding structure with randomness", SIAM Review 2011, Algorithm 4.4 with one iteration.

use gradwire_bits::kernels;
use nalgebra::DMatrix;

use super::eigen::{decreasing, products_of_columns};
use super::matrix::{normalise, times, transposed_times};
use crate::{BLOCK, Helpers, Rng};

/// A row-major matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    /// The elements.
    pub(crate) values: &'a [f32],
    /// The number of rows, at least one.
    pub(crate) rows: usize,
    /// The number of columns, at least one.
    pub(crate) columns: usize,
}

impl Matrix<'_> {
    /// Whether a short vector has an element per row.
    fn is_wide(self) -> bool {
        self.rows <= self.columns
    }

    /// The length of short vectors.
    pub(crate) fn short(self) -> usize {
        self.rows.min(self.columns)
    }

    /// The length of long vectors.
    pub(crate) fn long(self) -> usize {
        self.rows.max(self.columns)
    }

    /// Appends the products with short vectors.
    fn long_products(self, short: &[f32], out: &mut Vec<f32>, helpers: &mut Helpers) {
        let count = short.len() / self.short();
        match self.is_wide() {
            true => transposed_times(self.values, self.columns, short, count, out, helpers),
            false => times(self.values, self.rows, short, count, out, helpers),
        }
    }

    /// Appends the products with long vectors.
    fn short_products(self, long: &[f32], out: &mut Vec<f32>, helpers: &mut Helpers) {
        let count = long.len() / self.long();
        match self.is_wide() {
            true => times(self.values, self.rows, long, count, out, helpers),
            false => transposed_times(self.values, self.columns, long, count, out, helpers),
        }
    }

    /// Appends the products with the unit vectors: the rows of a wide matrix, else the columns.
    fn all_products(self, out: &mut Vec<f32>) {
        match self.is_wide() {
            true => out.extend_from_slice(self.values),
            false => (0..self.columns)
                .for_each(|at| out.extend(self.values[at..].iter().step_by(self.columns))),
        }
    }
}

/// The largest singular values of a matrix and their vectors, and working memory.
#[derive(Debug, Default)]
pub(crate) struct Svd {
    /// The singular values that were found, in decreasing order.
    pub(crate) values: Vec<f32>,
    /// The norm of the rest of the matrix; 0 if all values were requested.
    pub(crate) rest: f64,
    /// Short vectors, orthonormal; empty for the unit vectors.
    basis: Vec<f32>,
    /// The product of each with the matrix.
    products: Vec<f32>,
    /// The singular vectors, in the basis.
    rotation: DMatrix<f64>,
    scratch: Vec<f32>,
}

impl Svd {
    /// Finds the `count` largest singular values and their vectors, or all of them. Elements must
    /// be finite, and small enough that sums of their squares do not overflow.
    ///
    /// Reads the matrix four times, with `count` multiplications per element, and finds the
    /// eigenvectors of `count` × `count` numbers seven times, or once for all vectors. Returns
    /// false if this does not converge.
    pub(crate) fn decompose(
        &mut self,
        matrix: Matrix<'_>,
        count: usize,
        random: &mut Rng,
        helpers: &mut Helpers,
    ) -> bool {
        let Self { basis, products, scratch, .. } = self;
        basis.clear();
        products.clear();
        let all = count >= matrix.short();
        if all {
            matrix.all_products(products);
        } else {
            append_uniform(count * matrix.long(), random, products);
            for first in [true, false] {
                if !first && !make_orthonormal(products, matrix.long(), scratch) {
                    return false;
                }
                basis.clear();
                matrix.short_products(products, basis, helpers);
                if !make_orthonormal(basis, matrix.short(), scratch) {
                    return false;
                }
                products.clear();
                matrix.long_products(basis, products, helpers);
            }
        }
        let found = products.len() / matrix.long();
        let Some((squares, rotation)) = decreasing(products_of_columns(products, found)) else {
            return false;
        };
        self.values.clear();
        self.values.extend(squares.iter().map(|x| x.max(0.0).sqrt() as f32));
        self.rotation = rotation;
        self.rest = if all { 0.0 } else { rest(matrix.values, &squares) };
        true
    }

    /// Appends a unit singular vector of the shorter side, and its product with the matrix. The
    /// length of the product is the singular value.
    pub(crate) fn vectors(
        &self,
        at: usize,
        matrix: Matrix<'_>,
        short: &mut Vec<f32>,
        long: &mut Vec<f32>,
    ) {
        let turn = self.rotation.column(at);
        if self.basis.is_empty() {
            short.extend(turn.iter().map(|&x| x as f32));
        } else {
            append_sum(&self.basis, matrix.short(), turn.as_slice(), short);
        }
        append_sum(&self.products, matrix.long(), turn.as_slice(), long);
    }

    /// Appends random directions of the shorter side, orthonormal and orthogonal to the found
    /// vectors, and their products with the matrix. Each is uniform among all remaining directions.
    ///
    /// # Panics
    /// If there are fewer directions.
    pub(crate) fn directions(
        &self,
        count: usize,
        matrix: Matrix<'_>,
        random: &mut Rng,
        (short, long): (&mut Vec<f32>, &mut Vec<f32>),
        helpers: &mut Helpers,
    ) {
        let (side, first) = (matrix.short(), short.len());
        assert!(self.basis.len() + count * side <= side * side, "{count} directions of {side}");
        for _ in 0..count {
            let start = short.len();
            short.extend((0..side).map(|_| random.normal()));
            let (before, direction) = short.split_at_mut(start);
            normalise(direction);
            for _ in 0..2 {
                let others =
                    self.basis.chunks_exact(side).chain(before[first..].chunks_exact(side));
                for other in others {
                    let along = kernels::inner_product(other, direction);
                    kernels::add_scaled(direction, other, -along as f32);
                }
            }
            normalise(direction);
        }
        matrix.long_products(&short[first..], long, helpers);
    }
}

/// Appends the weighted sum of columns of this length.
fn append_sum(columns: &[f32], len: usize, weights: &[f64], out: &mut Vec<f32>) {
    let start = out.len();
    out.resize(start + len, 0.0);
    for (column, &weight) in columns.chunks_exact(len).zip(weights) {
        kernels::add_scaled(&mut out[start..], column, weight as f32);
    }
}

/// The norm of a matrix without these squared singular values. At least the amount that rounding
/// may hide, so the rest has a chance to be drawn.
fn rest(matrix: &[f32], squares: &[f64]) -> f64 {
    const ROUNDING: f64 = 1e-7;
    let all = kernels::sum_of_squares(matrix);
    (all - squares.iter().sum::<f64>()).max(ROUNDING * all).sqrt()
}

/// Appends numbers from [−1, 1).
fn append_uniform(count: usize, random: &mut Rng, out: &mut Vec<f32>) {
    let mut words = [0; BLOCK];
    for start in (0..count).step_by(BLOCK) {
        let words = &mut words[..BLOCK.min(count - start)];
        random.fill(words);
        out.extend(words.iter().map(|&word| (word as i32 >> 8) as f32 / (1 << 23) as f32));
    }
}

/// Replaces vectors of this length by orthonormal ones with the same span, without directions of
/// rounding errors. Returns false if the decomposition does not converge.
fn make_orthonormal(vectors: &mut Vec<f32>, len: usize, scratch: &mut Vec<f32>) -> bool {
    // The second time it removes the rounding errors of the first.
    orthonormal(vectors, len, scratch).is_some() && orthonormal(scratch, len, vectors).is_some()
}

/// Writes orthonormal vectors with the span of others: the leading eigenvectors of their second
/// moments, in decreasing order of the eigenvalues. `None` if the decomposition does not converge.
pub(super) fn orthonormal(vectors: &[f32], len: usize, out: &mut Vec<f32>) -> Option<()> {
    /// A direction is rounding if its squared extent is at most this share of the largest one.
    const MIN_SHARE: f64 = 1e-10;
    let (squares, turn) = decreasing(products_of_columns(vectors, vectors.len() / len))?;
    out.clear();
    let least = squares.first().map_or(0.0, |largest| largest * MIN_SHARE);
    for (at, &square) in squares.iter().enumerate().take_while(|&(_, &x)| x > least) {
        let weights: Vec<f64> = turn.column(at).iter().map(|x| x / square.sqrt()).collect();
        append_sum(vectors, len, &weights, out);
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rng(stream: u32) -> Rng {
        Rng::new(1, 2, 3, 4, stream)
    }

    /// All atoms, or the found ones and directions for the rest, must add up to the matrix.
    fn assert_complete(svd: &Svd, matrix: Matrix<'_>) {
        let (mut short, mut long) = (Vec::new(), Vec::new());
        (0..svd.values.len()).for_each(|at| svd.vectors(at, matrix, &mut short, &mut long));
        let missing = matrix.short() - svd.values.len();
        svd.directions(
            missing,
            matrix,
            &mut rng(7),
            (&mut short, &mut long),
            &mut Helpers::default(),
        );
        let atoms = || short.chunks(matrix.short()).zip(long.chunks(matrix.long()));
        for (at, &x) in matrix.values.iter().enumerate() {
            let (row, column) = (at / matrix.columns, at % matrix.columns);
            let (s, l) = if matrix.is_wide() { (row, column) } else { (column, row) };
            let sum: f32 = atoms().map(|(short, long)| short[s] * long[l]).sum();
            assert!((sum - x).abs() < 1e-3, "{matrix:?}, {at}: {sum} for {x}");
        }
        for (at, one) in short.chunks(matrix.short()).enumerate() {
            for (other, two) in short.chunks(matrix.short()).enumerate() {
                let expected = if at == other { 1.0 } else { 0.0 };
                assert!((kernels::inner_product(one, two) - expected).abs() < 1e-5);
            }
        }
    }

    #[test]
    fn a_diagonal_matrix_worked_by_hand() {
        let matrix = Matrix { values: &[0.0, 3.0, 0.0, -4.0, 0.0, 0.0], rows: 2, columns: 3 };
        let mut svd = Svd::default();
        assert!(svd.decompose(matrix, 2, &mut rng(0), &mut Helpers::default()));
        let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(near(svd.values[0], 4.0) && near(svd.values[1], 3.0) && svd.rest == 0.0);
        // −4 is in row 1 and column 0.
        let (mut short, mut long) = (Vec::new(), Vec::new());
        svd.vectors(0, matrix, &mut short, &mut long);
        assert!(near(short[0], 0.0) && near(short[1] * long[0], -4.0));
    }

    #[test]
    fn atoms_make_up_the_matrix_whichever_side_is_longer() {
        let mut svd = Svd::default();
        for (rows, columns) in [(1, 1), (1, 7), (7, 1), (12, 5), (5, 12), (40, 40)] {
            let values: Vec<f32> =
                (0..rows * columns).map(|x| (x * x % 23) as f32 - 11.0).collect();
            let matrix = Matrix { values: &values, rows, columns };
            for count in [1, 3, 40] {
                assert!(svd.decompose(matrix, count, &mut rng(0), &mut Helpers::default()));
                assert!(svd.values.is_sorted_by(|a, b| a >= b));
                assert_complete(&svd, matrix);
            }
        }
    }

    #[test]
    fn the_largest_values_are_found_and_the_rest_is_measured() {
        // Columns are orthogonal, of lengths 2^9, 2^8, …, 2^0: they are the singular values.
        let rows = 16;
        let sign =
            |a: usize, b: usize| if (a & b).count_ones().is_multiple_of(2) { 0.25 } else { -0.25 };
        let values: Vec<f32> = (0..rows * 10)
            .map(|at| sign(at / 10, at % 10 + 1) * (1 << (9 - at % 10)) as f32)
            .collect();
        let mut svd = Svd::default();
        assert!(svd.decompose(
            Matrix { values: &values, rows, columns: 10 },
            4,
            &mut rng(0),
            &mut Helpers::default()
        ));
        for (found, expected) in svd.values.iter().zip([512.0, 256.0, 128.0, 64.0]) {
            assert!((found / expected - 1.0).abs() < 0.01, "{:?}", svd.values);
        }
        // 32² + 16² + … + 1 = 1365.
        assert!((svd.rest * svd.rest / 1365.0 - 1.0).abs() < 0.1, "{}", svd.rest);
    }

    #[test]
    fn small_values_beside_a_large_one_are_found() {
        let mut values = vec![0.0; 64];
        for (at, sigma) in [5.0, 20_000.0, 1.0, 2.0, 0.5, 3.0, 0.25, 10.0].into_iter().enumerate() {
            values[at * 8 + at] = sigma;
        }
        let mut svd = Svd::default();
        assert!(svd.decompose(
            Matrix { values: &values, rows: 8, columns: 8 },
            3,
            &mut rng(0),
            &mut Helpers::default()
        ));
        for (found, expected) in svd.values.iter().zip([20_000.0, 10.0, 5.0]) {
            assert!((found / expected - 1.0).abs() < 0.1, "{:?}", svd.values);
        }
        assert_eq!(svd.values.len(), 3);
    }

    #[test]
    fn directions_are_uniform() {
        // One of 5 dimensions is found, along the first axis: random directions have a mean square
        // of ¼ in each other dimension.
        let mut values = vec![0.0; 25];
        values[0] = 1.0;
        let matrix = Matrix { values: &values, rows: 5, columns: 5 };
        let (mut svd, draws) = (Svd::default(), 4000);
        assert!(svd.decompose(matrix, 2, &mut rng(0), &mut Helpers::default()));
        assert_eq!(svd.values.len(), 1);
        let (mut short, mut long) = (Vec::new(), Vec::new());
        for draw in 0..draws {
            svd.directions(
                2,
                matrix,
                &mut rng(10 + draw),
                (&mut short, &mut long),
                &mut Helpers::default(),
            );
        }
        for (i, j) in [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4), (1, 2), (3, 4)] {
            let sum: f32 = short.chunks(5).map(|d| d[i] * d[j]).sum();
            let expected = if i == j && i > 0 { 0.25 } else { 0.0 };
            // The variance of a product is below 1/10.
            let room = 5.0 * (0.1 / (2 * draws) as f32).sqrt();
            assert!((sum / (2 * draws) as f32 - expected).abs() < room, "{i}, {j}: {sum}");
        }
    }

    #[test]
    fn a_matrix_of_fewer_dimensions_has_as_many_values() {
        // A matrix of rank 1: the other vectors of a random start would be rounding errors.
        let values: Vec<f32> = (0..600).map(|at| ((at / 30) * (at % 30)) as f32).collect();
        let mut svd = Svd::default();
        let matrix = Matrix { values: &values, rows: 20, columns: 30 };
        assert!(svd.decompose(matrix, 8, &mut rng(0), &mut Helpers::default()));
        assert_eq!(svd.values.len(), 1);
        assert!(svd.rest > 0.0 && svd.rest < 1e-3 * f64::from(svd.values[0]));
        assert_complete(&svd, matrix);
    }
}
