//! Principal components of the rows of a matrix.

use super::eigen;
use super::matrix::{abs_max, orthonormalise};
use super::svd::orthonormal;

/// Writes the leading eigenvectors of the second moments `XᵀX` of rows with this number of columns
/// to `components`, one after the other, with unit length. Once the rows have no further direction
/// beyond rounding, zeros follow. All are zero if a decomposition does not converge.
///
/// If there are fewer rows than columns, the inner products of the rows are decomposed instead. The
/// time grows with the cube of the smaller number, and is 120 ms for 512.
pub(crate) fn leading(rows: &[f32], columns: usize, components: &mut [f32]) {
    let found = if rows.len() < columns * columns {
        of_few_rows(rows, columns)
    } else {
        of_moments(rows, columns, components.len())
    };
    let found = found.unwrap_or_default();
    let len = found.len().min(components.len());
    components[..len].copy_from_slice(&found[..len]);
    components[len..].fill(0.0);
    // Removes the rounding errors of the sums of rows.
    orthonormalise(&mut components[..len], columns);
}

fn of_few_rows(rows: &[f32], columns: usize) -> Option<Vec<f32>> {
    let scaled: Vec<f32> = rows.iter().map(eigen::scale(abs_max(rows))).collect();
    let mut found = Vec::new();
    orthonormal(&scaled, columns, &mut found)?;
    Some(found)
}

fn of_moments(rows: &[f32], columns: usize, len: usize) -> Option<Vec<f32>> {
    let (_, vectors) = eigen::decreasing(eigen::moments_of_rows(rows, columns))?;
    Some(vectors.iter().take(len).map(|&x| x as f32).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of five columns along two orthogonal directions; the second is longer.
    fn rows(count: usize, scale: f32) -> Vec<f32> {
        let row = |at: usize| {
            let (a, b) = (1.0 - 2.0 * (at / 2 % 2) as f32, 2.0 - 4.0 * (at % 2) as f32);
            [a, 3.0 * b, -a, 0.0, b].map(|x| x * scale)
        };
        (0..count).flat_map(row).collect()
    }

    #[test]
    fn few_rows_have_the_components_of_their_moments() {
        for scale in [1.0, 1e-40, 1e37] {
            for count in [4, 8] {
                let mut found = vec![9.0; 3 * 5];
                leading(&rows(count, scale), 5, &mut found);
                let (long, short) = (10f32.sqrt().recip(), 2f32.sqrt().recip());
                let expected = [[0.0, 3.0 * long, 0.0, 0.0, long], [short, 0.0, -short, 0.0, 0.0]];
                for (found, expected) in found.chunks(5).zip(expected) {
                    let along: f32 = found.iter().zip(expected).map(|(x, y)| x * y).sum();
                    assert!((along.abs() - 1.0).abs() < 1e-5, "{count} at {scale}: {found:?}");
                }
                assert!(count > 4 || found[10..] == [0.0; 5], "{found:?}");
            }
        }
    }

    #[test]
    fn components_of_nothing_are_zero() {
        for rows in [vec![], vec![0.0; 10], vec![0.0; 50]] {
            let mut found = vec![9.0; 5];
            leading(&rows, 5, &mut found);
            // Zeros have no direction; any unit vector is an eigenvector of their moments.
            let norm: f32 = found.iter().map(|x| x * x).sum();
            assert!(norm == 0.0 || (rows.len() == 50 && (norm - 1.0).abs() < 1e-6), "{found:?}");
        }
    }
}
