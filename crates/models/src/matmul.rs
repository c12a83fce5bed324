//! Matrix products on slices. All processors that fuse products with sums compute the same bits.
//!
//! The library's sums depend on the processor in three cases, which this module avoids. If the
//! inner size is above [`DEPTH`], caches decide how many terms are summed at once. If the terms of
//! both factors are contiguous, small products have as many partial sums as a vector has values.
//! And on aarch64 combinations of rows round each product.

use std::ops::Range;

use pulp::{Arch, Simd, WithSimd};

use crate::lanes::{LANES, total};

/// The most terms that the library sums at once on every processor.
const DEPTH: usize = 512;
/// The most outputs of a small product.
const SMALL: usize = 256;
/// The most terms of which the library rounds each product, on every processor.
const FEW: usize = 2;

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

    /// The columns of a range, of the same values.
    fn part(self, columns: Range<usize>) -> Self {
        let from = columns.start * self.column_stride;
        Self { values: &self.values[from..], columns: columns.len(), ..self }
    }

    /// A row whose values are contiguous.
    fn row(self, row: usize) -> &'a [f32] {
        &self.values[row * self.row_stride..][..self.columns]
    }
}

/// `out ← left · right`, or `out ← out + left · right`, rows of `out` one after the other.
///
/// # Panics
/// If the shapes do not match.
pub(crate) fn multiply(left: Matrix<'_>, right: Matrix<'_>, accumulate: bool, out: &mut [f32]) {
    let (rows, inner, columns) = (left.rows, left.columns, right.columns);
    assert_eq!(inner, right.rows, "the inner sizes of a product are equal");
    assert_eq!(out.len(), rows * columns, "a product has its factors' rows and columns");
    if out.is_empty() {
        return;
    }
    let right = right.transposed();
    let is_small = out.len() <= SMALL || rows == 1 || columns == 1;
    if is_small && [left, right].iter().all(|matrix| matrix.column_stride == 1) {
        return Arch::new().dispatch(Rows { left, right, accumulate, out });
    }
    let blocks = inner.div_ceil(DEPTH).max(1);
    // The library's own choice on most processors.
    let depth = if rows.max(columns) <= 64 { DEPTH } else { inner.div_ceil(blocks) };
    for block in 0..blocks {
        let terms = block * depth..inner.min((block + 1) * depth);
        let (left, right) = (left.part(terms.clone()), right.part(terms));
        let accumulate = accumulate || block > 0;
        let (factors, rows) = if left.rows == 1 { (left, right) } else { (right, left) };
        if factors.rows == 1 && rows.row_stride == 1 && factors.columns > FEW {
            Arch::new().dispatch(Combination { factors, rows, accumulate, out });
        } else {
            multiply_block(left, right, accumulate, out);
        }
    }
}

/// The product of each row of `left` with each row of `right`, or its sum with `out`.
struct Rows<'a> {
    left: Matrix<'a>,
    right: Matrix<'a>,
    accumulate: bool,
    out: &'a mut [f32],
}

impl WithSimd for Rows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for (at, value) in self.out.iter_mut().enumerate() {
            let left = self.left.row(at / self.right.rows).chunks(Self::BLOCK);
            let right = self.right.row(at % self.right.rows).chunks(Self::BLOCK);
            let products = left.zip(right).map(|(left, right)| dot(simd, left, right));
            *value = products.fold(if self.accumulate { *value } else { 0.0 }, |sum, x| sum + x);
        }
    }
}

impl Rows<'_> {
    /// The terms that are summed before they are added to an output.
    const BLOCK: usize = 1024;
}

/// The scalar product, summed in lanes.
#[inline(always)]
fn dot<S: Simd>(simd: S, left: &[f32], right: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    let ((lefts, left), (rights, right)) = (left.as_chunks(), right.as_chunks());
    lefts.iter().zip(rights).for_each(|(left, right)| add_products(simd, left, right, &mut sums));
    add_products(simd, &padded(left), &padded(right), &mut sums);
    total(sums)
}

/// The last values of a row, and zeros.
fn padded(values: &[f32]) -> [f32; LANES] {
    std::array::from_fn(|at| values.get(at).copied().unwrap_or(0.0))
}

#[inline(always)]
fn add_products<S: Simd>(
    simd: S,
    left: &[f32; LANES],
    right: &[f32; LANES],
    sums: &mut [f32; LANES],
) {
    let (lefts, rights) = (S::as_simd_f32s(left).0, S::as_simd_f32s(right).0);
    for ((sum, &left), &right) in S::as_mut_simd_f32s(sums).0.iter_mut().zip(lefts).zip(rights) {
        *sum = simd.mul_add_e_f32s(left, right, *sum);
    }
}

/// The sum of rows of contiguous values, each times its factor, or its sum with `out`. A column of
/// `rows` is a row.
struct Combination<'a> {
    factors: Matrix<'a>,
    rows: Matrix<'a>,
    accumulate: bool,
    out: &'a mut [f32],
}

impl WithSimd for Combination<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { factors, rows, accumulate, out } = self;
        for term in 0..factors.columns {
            let factor = factors.values[term * factors.column_stride];
            let row = &rows.values[term * rows.column_stride..][..out.len()];
            if term == 0 && !accumulate {
                out.iter_mut().zip(row).for_each(|(out, value)| *out = value * factor);
            } else {
                add_scaled(simd, row, factor, out);
            }
        }
    }
}

#[inline(always)]
fn add_scaled<S: Simd>(simd: S, row: &[f32], factor: f32, out: &mut [f32]) {
    let factor = simd.splat_f32s(factor);
    let ((rows, row), (outs, out)) = (S::as_simd_f32s(row), S::as_mut_simd_f32s(out));
    for (out, &values) in outs.iter_mut().zip(rows) {
        *out = simd.mul_add_e_f32s(values, factor, *out);
    }
    let sums =
        simd.mul_add_e_f32s(simd.partial_load_f32s(row), factor, simd.partial_load_f32s(out));
    simd.partial_store_f32s(out, sums);
}

/// `out ← left · right ᵀ`, or `out ← out + left · right ᵀ`, by the library.
#[allow(unsafe_code, reason = "gemm takes pointers")]
fn multiply_block(left: Matrix<'_>, right: Matrix<'_>, accumulate: bool, out: &mut [f32]) {
    let (rows, inner, columns) = (left.rows, left.columns, right.rows);
    let stride = |stride: usize| stride as isize;
    // SAFETY: `Matrix::new` checks that a matrix has rows·columns values; transposed matrices and
    // parts are of the same values. Their strides reach only these. `out` has rows·columns values,
    // as the caller has checked, and does not overlap the factors, which are shared borrows.
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
            stride(right.column_stride),
            stride(right.row_stride),
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
    use crate::lanes::{is_fused, waves};

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

    /// `sum + left · right`, rounded once if products are fused.
    fn add_product(sum: f32, (left, right): (f32, f32)) -> f32 {
        if is_fused() { left.mul_add(right, sum) } else { sum + left * right }
    }

    /// Terms one after the other, in blocks: a vector's in one block, those of small products in
    /// blocks of 512, others in blocks of equal lengths of at most 512. Products of blocks of one
    /// or two terms are rounded.
    fn in_order(terms: &[(f32, f32)], rows: usize, columns: usize) -> f32 {
        let block = match rows.min(columns) {
            1 => terms.len(),
            _ if rows.max(columns) <= 64 => 512,
            _ => terms.len().div_ceil(terms.len().div_ceil(512)),
        };
        let sum = |block: &[(f32, f32)]| match block {
            [_] | [_, _] => block.iter().map(|(left, right)| left * right).sum(),
            _ => block.iter().copied().fold(0.0, add_product),
        };
        terms.chunks(block).map(sum).fold(0.0, |total: f32, sum: f32| total + sum)
    }

    /// Blocks of 1024 terms; sixteen sums of every sixteenth term, added by halves.
    fn in_lanes(terms: &[(f32, f32)]) -> f32 {
        let every = |block: &[(f32, f32)], lane: usize| {
            block.iter().copied().skip(lane).step_by(16).fold(0.0, add_product)
        };
        let sum = |block: &[(f32, f32)]| {
            let mut lanes: Vec<f32> = (0..16).map(|lane| every(block, lane)).collect();
            while let [_, _, ..] = lanes[..] {
                let upper = lanes.split_off(lanes.len() / 2);
                lanes.iter_mut().zip(upper).for_each(|(sum, term)| *sum += term);
            }
            lanes[0]
        };
        terms.chunks(1024).map(sum).fold(0.0, |total, sum| total + sum)
    }

    /// Checks each value of a product of two factors, each row-major or column-major.
    fn check([rows, inner, columns]: [usize; 3], turned: [bool; 2]) {
        let (left, right) = (waves(rows * inner, 0.7), waves(inner * columns, 1.3));
        let matrix = |values, rows, columns, turned| match turned {
            true => Matrix::new(values, rows).transposed(),
            false => Matrix::new(values, columns),
        };
        let left = matrix(&left, rows, inner, turned[0]);
        let right = matrix(&right, inner, columns, turned[1]);
        let mut out = vec![f32::NAN; rows * columns];
        multiply(left, right, false, &mut out);
        let is_small = out.len() <= 256 || rows.min(columns) == 1;
        let in_lanes_of = is_small && left.column_stride == 1 && right.row_stride == 1;
        for (at, found) in out.into_iter().enumerate() {
            let lefts = (0..inner)
                .map(|i| left.values[at / columns * left.row_stride + i * left.column_stride]);
            let rights = (0..inner)
                .map(|i| right.values[i * right.row_stride + at % columns * right.column_stride]);
            let terms: Vec<_> = lefts.zip(rights).collect();
            let expected =
                if in_lanes_of { in_lanes(&terms) } else { in_order(&terms, rows, columns) };
            assert_eq!(found, expected, "{rows}×{inner}×{columns}, {turned:?}: value {at}");
        }
    }

    #[test]
    fn every_processor_sums_in_the_same_order() {
        let small = [
            [3, 1, 5],
            [3, 2, 5],
            [3, 513, 5],
            [3, 17, 5],
            [16, 800, 16],
            [16, 1500, 16],
            [17, 800, 16],
        ];
        let large = [[70, 511, 3], [65, 1030, 70]];
        let vectors = [[1, 700, 300], [300, 1100, 1], [1, 40, 1], [1, 3, 50], [50, 17, 1]];
        for shape in [&small[..], &large, &vectors].concat() {
            for turned in [[false, false], [false, true], [true, false], [true, true]] {
                check(shape, turned);
            }
        }
    }

    /// The library's kernels for this processor, which need features of the library, are several
    /// times as fast as its scalar ones. They do not round products before adding them.
    #[test]
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
        let rest = if is_fused() { 1.0 / 16_777_216.0 } else { 0.0 };
        assert_eq!(out, [rest; SIDE * SIDE]);
    }
}
