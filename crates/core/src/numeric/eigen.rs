//! Second moments, and their eigenvectors.

use gradwire_bits::kernels;
use nalgebra::DMatrix;
use nalgebra::linalg::SymmetricEigen;

use super::matrix::abs_max;

/// `XᵀX` of a matrix with this number of columns, column after column.
pub(crate) fn products_of_columns(x: &[f32], columns: usize) -> DMatrix<f64> {
    let len = x.len().checked_div(columns).unwrap_or(0);
    let column = |at: usize| &x[at * len..(at + 1) * len];
    let mut products = DMatrix::zeros(columns, columns);
    for i in 0..columns {
        for j in 0..=i {
            let product = kernels::inner_product(column(i), column(j));
            (products[(i, j)], products[(j, i)]) = (product, product);
        }
    }
    products
}

/// The second moments `XᵀX` of the rows of a matrix with this number of columns, row after row, up
/// to a factor: the largest element is scaled to 1, so no square overflows. Products of 256 rows
/// are added in single precision.
pub(crate) fn moments_of_rows(x: &[f32], columns: usize) -> DMatrix<f64> {
    /// Rows that are transposed at a time, so columns stay in the cache.
    const ROWS: usize = 256;
    let scaled = scale(abs_max(x));
    let mut moments = DMatrix::zeros(columns, columns);
    let mut turned = Vec::with_capacity(x.len().min(ROWS * columns));
    let mut some = vec![0.0; columns * columns];
    for rows in x.chunks(ROWS * columns) {
        turned.clear();
        for at in 0..columns {
            turned.extend(rows[at..].iter().step_by(columns).map(&scaled));
        }
        kernels::times_thin(&turned, &turned, columns, &mut some);
        moments.iter_mut().zip(&some).for_each(|(sum, &x)| *sum += f64::from(x));
    }
    moments
}

/// Scales numbers such that this one becomes 1; 0 stays 0.
pub(super) fn scale(largest: f32) -> impl Fn(&f32) -> f32 {
    let scale = f64::from(largest).max(f64::MIN_POSITIVE).recip();
    move |&x| (f64::from(x) * scale) as f32
}

/// The eigenvalues of a symmetric matrix, in decreasing order, and a unit eigenvector for each.
/// `None` if the decomposition does not converge or an element is not finite. Takes 120 ms for 512
/// × 512, and time grows with the cube of the side.
pub(crate) fn decreasing(matrix: DMatrix<f64>) -> Option<(Vec<f64>, DMatrix<f64>)> {
    /// More steps than any matrix is known to need.
    const STEPS_OF_A_VALUE: usize = 100;
    let side = matrix.nrows();
    if side == 0 {
        return Some((Vec::new(), matrix));
    }
    if !matrix.iter().all(|x| x.is_finite()) {
        return None;
    }
    let found = SymmetricEigen::try_new(matrix, f64::EPSILON, STEPS_OF_A_VALUE * side)?;
    if !found.eigenvalues.iter().all(|x| x.is_finite()) {
        return None;
    }
    let mut order: Vec<usize> = (0..side).collect();
    order.sort_by(|&a, &b| found.eigenvalues[b].total_cmp(&found.eigenvalues[a]));
    let values = order.iter().map(|&at| found.eigenvalues[at]).collect();
    Some((values, found.eigenvectors.select_columns(&order)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_worked_by_hand() {
        // Columns (1, 3, 5) and (2, 4, 6); moments with 6 scaled to 1.
        let expected = DMatrix::from_row_slice(2, 2, &[35.0, 44.0, 44.0, 56.0]);
        assert_eq!(products_of_columns(&[1.0, 3.0, 5.0, 2.0, 4.0, 6.0], 2), expected);
        assert_eq!(products_of_columns(&[], 2), DMatrix::zeros(2, 2));
        for scale in [1.0, 1e-44, 1e37] {
            let rows = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0].map(|x| x * scale);
            let found = moments_of_rows(&rows, 2) * 36.0;
            assert!((found - &expected).abs().max() < 1e-4);
        }
        assert_eq!(moments_of_rows(&[], 2), DMatrix::zeros(2, 2));
    }

    #[test]
    fn moments_of_many_rows_are_sums() {
        let x: Vec<f32> = (0..3 * 1000).map(|at| (at % 9) as f32 / 4.0 - 1.0).collect();
        let moments = moments_of_rows(&x, 3);
        for (i, j) in [(0, 0), (0, 2), (2, 1)] {
            let sum: f32 = x.chunks(3).map(|row| row[i] * row[j]).sum();
            assert_eq!(moments[(i, j)], f64::from(sum));
        }
    }

    #[test]
    fn values_decrease_and_vectors_belong_to_them() {
        // Eigenvalues 4 and 2 along (1, 1) and (1, −1), and 3 along the third axis.
        let matrix = DMatrix::from_row_slice(3, 3, &[3.0, 1.0, 0.0, 1.0, 3.0, 0.0, 0.0, 0.0, 3.0]);
        let (values, vectors) = decreasing(matrix.clone()).unwrap();
        for (found, expected) in values.iter().zip([4.0, 3.0, 2.0]) {
            assert!((found - expected).abs() < 1e-12);
        }
        for (at, value) in values.iter().enumerate() {
            let vector = vectors.column(at);
            assert!((&matrix * vector - vector * *value).norm() < 1e-12);
            assert!((vector.norm() - 1.0).abs() < 1e-12);
        }
        assert!(decreasing(DMatrix::from_element(2, 2, f64::NAN)).is_none());
        assert!(decreasing(DMatrix::zeros(0, 0)).is_some());
    }
}
