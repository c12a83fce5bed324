//! The singular value decomposition, with reused memory.

use std::fmt;
use std::mem::MaybeUninit;

use faer::diag::DiagMut;
use faer::dyn_stack::MemStack;
use faer::linalg::svd::{ComputeSvdVectors, svd, svd_scratch};
use faer::{MatMut, MatRef, Par};

/// A decomposition A = Σ σ·u·vᵀ of a matrix, and its working memory.
#[derive(Default)]
pub struct Svd {
    /// The singular values, in decreasing order.
    pub values: Vec<f32>,
    /// Left vectors of unit length, one after the other.
    pub left: Vec<f32>,
    /// Right vectors of unit length, one after the other.
    pub right: Vec<f32>,
    scratch: Vec<MaybeUninit<u8>>,
}

impl fmt::Debug for Svd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Svd").field("values", &self.values).finish_non_exhaustive()
    }
}

impl Svd {
    /// Decomposes a row-major matrix of at least one row and column. Time is proportional to the product of its sides
    /// and the shorter side: 20 to 40 ms for 512 × 512, seconds for 4096 × 4096. Returns false if it does not converge.
    /// Results depend on the processor in the last bits.
    ///
    /// # Panics
    /// If there are not `rows · columns` elements.
    pub fn decompose(&mut self, matrix: &[f32], rows: usize, columns: usize) -> bool {
        let rank = rows.min(columns);
        self.values.resize(rank, 0.0);
        self.left.resize(rows * rank, 0.0);
        self.right.resize(columns * rank, 0.0);
        let thin = ComputeSvdVectors::Thin;
        let needed = svd_scratch::<f32>(rows, columns, thin, thin, Par::Seq, Default::default());
        let bytes = needed.unaligned_bytes_required();
        if self.scratch.len() < bytes {
            self.scratch.resize(bytes, MaybeUninit::uninit());
        }
        svd(
            MatRef::from_row_major_slice(matrix, rows, columns),
            DiagMut::from_slice_mut(&mut self.values),
            Some(MatMut::from_column_major_slice_mut(&mut self.left, rows, rank)),
            Some(MatMut::from_column_major_slice_mut(&mut self.right, columns, rank)),
            Par::Seq,
            MemStack::new(&mut self.scratch),
            Default::default(),
        )
        .is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diagonal_matrix_worked_by_hand() {
        let mut svd = Svd::default();
        assert!(svd.decompose(&[0.0, 3.0, 0.0, -4.0, 0.0, 0.0], 2, 3));
        let near = |a: f32, b: f32| (a - b).abs() < 1e-6;
        assert!(near(svd.values[0], 4.0) && near(svd.values[1], 3.0));
        // −4 stands in row 1 and column 0.
        assert!(near(svd.left[0], 0.0) && near(svd.left[1] * svd.right[0], -1.0));
    }

    #[test]
    fn products_make_up_the_matrix_whichever_side_is_longer() {
        let mut svd = Svd::default();
        for (rows, columns) in [(1, 1), (1, 7), (7, 1), (12, 5), (5, 12), (40, 40)] {
            let matrix: Vec<f32> =
                (0..rows * columns).map(|x| (x * x % 23) as f32 - 11.0).collect();
            assert!(svd.decompose(&matrix, rows, columns));
            assert!(svd.values.is_sorted_by(|a, b| a >= b));
            for (at, &x) in matrix.iter().enumerate() {
                let (row, column) = (at / columns, at % columns);
                let atom = |k: usize| {
                    svd.values[k] * svd.left[k * rows + row] * svd.right[k * columns + column]
                };
                let sum: f32 = (0..rows.min(columns)).map(atom).sum();
                assert!((sum - x).abs() < 1e-3, "{rows} × {columns}, {at}: {sum} for {x}");
            }
        }
    }
}
