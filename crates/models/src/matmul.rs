//! Matrix products on slices.

/// A row-major or column-major matrix.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a> Matrix<'a> {
    /// Rows of `columns` values, one after the other.
    ///
    /// # Panics
    /// If the values are not whole rows.
    pub(crate) fn new(values: &'a [f32], columns: usize) -> Self {
        assert_eq!(values.len() % columns, 0, "a matrix has whole rows");
        let rows = values.len() / columns;
        Self { values, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The transposed matrix, of the same values.
    pub(crate) fn transposed(self) -> Self {
        Self {
            values: self.values,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }
}

/// `out ← left · right`, or `out ← out + left · right`, rows of `out` one after the other.
///
/// # Panics
/// If the shapes do not match.
#[allow(unsafe_code, reason = "gemm takes pointers")]
pub(crate) fn multiply(left: Matrix<'_>, right: Matrix<'_>, accumulate: bool, out: &mut [f32]) {
    let (rows, inner, columns) = (left.rows, left.columns, right.columns);
    assert_eq!(inner, right.rows, "the inner sizes of a product are equal");
    assert_eq!(out.len(), rows * columns, "a product has its factors' rows and columns");
    if out.is_empty() {
        return;
    }
    let stride = |stride: usize| stride as isize;
    // SAFETY: a matrix has rows·columns values: `Matrix::new` checks that, and transposing keeps
    // it. Its strides reach exactly these values. `out` has rows·columns values, checked above, and
    // does not overlap the factors, which are shared borrows.
    unsafe {
        // The product is computed as right ᵀ · left ᵀ: the library prefers outputs whose columns
        // are contiguous.
        gemm_f32::gemm::f32::get_gemm_fn()(
            columns,
            rows,
            inner,
            out.as_mut_ptr(),
            stride(columns),
            1,
            accumulate,
            right.values.as_ptr(),
            stride(right.row_stride),
            stride(right.column_stride),
            left.values.as_ptr(),
            stride(left.row_stride),
            stride(left.column_stride),
            1.0,
            1.0,
            false,
            false,
            false,
            gemm_common::Parallelism::None,
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn products_by_hand() {
        let (left, right) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [1.0, 0.0, -1.0, 2.0, 1.0, 1.0]);
        let mut out = [f32::NAN; 4];
        multiply(Matrix::new(&left, 3), Matrix::new(&right, 2), false, &mut out);
        assert_eq!(out, [2.0, 7.0, 5.0, 16.0]);
        multiply(Matrix::new(&left, 3), Matrix::new(&right, 3).transposed(), true, &mut out);
        assert_eq!(out, [2.0 - 2.0, 7.0 + 7.0, 5.0 - 2.0, 16.0 + 19.0]);
        let mut out = [0.0; 9];
        multiply(Matrix::new(&left, 3).transposed(), Matrix::new(&left, 3), false, &mut out);
        assert_eq!(out, [17.0, 22.0, 27.0, 22.0, 29.0, 36.0, 27.0, 36.0, 45.0]);
    }

    /// The library's kernels for this processor, which need features of the library, are several
    /// times as fast as its scalar ones. They do not round products before adding them.
    #[test]
    #[cfg(target_arch = "x86_64")]
    fn products_are_fused_where_the_processor_can() {
        let a = 1.0 + 1.0 / 4096.0;
        // Rounded, its square is this.
        let square: f32 = 1.0 + 1.0 / 2048.0;
        // Large enough for the kernels: −square·1 + a·a, and zeros between.
        const SIDE: usize = 32;
        let mut row = [0.0; SIDE];
        (row[0], row[16]) = (-square, a);
        let column = |at: usize| [if at == 16 { a } else { 1.0 }; SIDE];
        let right: Vec<f32> = (0..SIDE).flat_map(column).collect();
        let mut out = [0.0; SIDE * SIDE];
        let left = row.repeat(SIDE);
        multiply(Matrix::new(&left, SIDE), Matrix::new(&right, SIDE), false, &mut out);
        let rest = if std::is_x86_feature_detected!("fma") { 1.0 / 16_777_216.0 } else { 0.0 };
        assert_eq!(out, [rest; SIDE * SIDE]);
    }
}
