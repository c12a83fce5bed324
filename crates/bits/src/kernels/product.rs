//! Products of thin matrices.

use core::ops::Range;

use super::add_scaled;

/// A column-major matrix, of which the rows from `first` on are used.
#[derive(Debug, Clone, Copy)]
pub struct Columns<'a> {
    /// The elements, column by column.
    pub values: &'a [f32],
    /// The number of elements in a column, at least one.
    pub len: usize,
    /// The first row that is used.
    pub first: usize,
}

impl<'a> Columns<'a> {
    fn each(self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.len).map(move |column| &column[self.first..])
    }
}

/// Replaces `out`, rows of `width` elements, by the same number of rows of `P·Qᵀ`. Products are summed in order of the
/// columns, without fusing.
///
/// With AVX-512, sums of 4 × 64 elements stay in registers, and eight vector loads serve sixteen products; with AVX2, sums of
/// 4 × 16 elements, and six loads serve eight.
///
/// # Panics
/// If a column of P has fewer elements than `out` has rows, or a column of Q fewer than `width`.
pub fn product(out: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>) {
    let rows = out.len().checked_div(width).unwrap_or(0);
    let (high, wide) = whole_tiles(out, width, p, q);
    product_plain(out, width, (high..rows, 0..width), p, q);
    product_plain(out, width, (0..high, wide..width), p, q);
}

/// Computes what the processor's vector instructions do in whole tiles; returns how many rows and columns that is.
#[allow(unused_variables, reason = "only x86-64 has such instructions")]
fn whole_tiles(out: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>) -> (usize, usize) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        use super::level::Level;
        let high = out.len().checked_div(width).unwrap_or(0) / 4 * 4;
        if Level::Avx512.is_used() {
            // SAFETY: the processor has the features the function is compiled for.
            unsafe { avx512::tiles(out, width, p, q) };
            return (high, width / 64 * 64);
        }
        if Level::Avx2.is_used() {
            // SAFETY: as above.
            unsafe { avx2::tiles(out, width, p, q) };
            return (high, width / 16 * 16);
        }
    }
    (0, 0)
}

/// Computes a block of the product.
fn product_plain(
    out: &mut [f32],
    width: usize,
    (rows, columns): (Range<usize>, Range<usize>),
    p: Columns<'_>,
    q: Columns<'_>,
) {
    if rows.is_empty() || columns.is_empty() {
        return;
    }
    let out = &mut out[rows.start * width..rows.end * width];
    out.chunks_exact_mut(width).for_each(|row| row[columns.clone()].fill(0.0));
    for (p, q) in p.each().zip(q.each()) {
        for (row, &p) in out.chunks_exact_mut(width).zip(&p[rows.clone()]) {
            add_scaled(&mut row[columns.clone()], &q[columns.clone()], p);
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::Columns;
    use core::arch::x86_64::*;

    /// Computes the part of the product that consists of whole tiles.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn tiles(out: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>) {
        for start in (0..width / 64 * 64).step_by(64) {
            for (at, rows) in out.chunks_exact_mut((4 * width).max(1)).enumerate() {
                let p = Columns { first: p.first + 4 * at, ..p };
                tile(rows, width, start, p, Columns { first: q.first + start, ..q });
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn tile(rows: &mut [f32], width: usize, start: usize, p: Columns<'_>, q: Columns<'_>) {
        let mut sums = [[_mm512_setzero_ps(); 4]; 4];
        for (p, q) in p.each().zip(q.each()) {
            let (p, (q, _)) = (&p[..4], q[..64].as_chunks::<16>());
            // SAFETY: each chunk holds the sixteen floats that are read.
            let q: [__m512; 4] =
                core::array::from_fn(|i| unsafe { _mm512_loadu_ps(q[i].as_ptr()) });
            for i in 0..4 {
                let p = _mm512_set1_ps(p[i]);
                for j in 0..4 {
                    sums[i][j] = _mm512_add_ps(sums[i][j], _mm512_mul_ps(p, q[j]));
                }
            }
        }
        for (row, sums) in rows.chunks_exact_mut(width).zip(sums) {
            let (lanes, _) = row[start..start + 64].as_chunks_mut::<16>();
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                // SAFETY: the chunk holds the sixteen floats that are written.
                unsafe { _mm512_storeu_ps(lanes.as_mut_ptr(), sum) };
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::Columns;
    use core::arch::x86_64::*;

    /// Computes the part of the product that consists of whole tiles.
    #[target_feature(enable = "avx2")]
    pub(super) fn tiles(out: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>) {
        for start in (0..width / 16 * 16).step_by(16) {
            for (at, rows) in out.chunks_exact_mut((4 * width).max(1)).enumerate() {
                let p = Columns { first: p.first + 4 * at, ..p };
                tile(rows, width, start, p, Columns { first: q.first + start, ..q });
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn tile(rows: &mut [f32], width: usize, start: usize, p: Columns<'_>, q: Columns<'_>) {
        let mut sums = [[_mm256_setzero_ps(); 2]; 4];
        for (p, q) in p.each().zip(q.each()) {
            let (p, (q, _)) = (&p[..4], q[..16].as_chunks::<8>());
            // SAFETY: each chunk holds the eight floats that are read.
            let q: [__m256; 2] =
                core::array::from_fn(|i| unsafe { _mm256_loadu_ps(q[i].as_ptr()) });
            for i in 0..4 {
                let p = _mm256_set1_ps(p[i]);
                for j in 0..2 {
                    sums[i][j] = _mm256_add_ps(sums[i][j], _mm256_mul_ps(p, q[j]));
                }
            }
        }
        for (row, sums) in rows.chunks_exact_mut(width).zip(sums) {
            let (lanes, _) = row[start..start + 16].as_chunks_mut::<8>();
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                // SAFETY: the chunk holds the eight floats that are written.
                unsafe { _mm256_storeu_ps(lanes.as_mut_ptr(), sum) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_by_hand() {
        // (1, 2)·(3, 4, 5)ᵀ + (1, −1)·(1, 0, 2)ᵀ.
        let p = Columns { values: &[1.0, 2.0, 1.0, -1.0], len: 2, first: 0 };
        let q = Columns { values: &[3.0, 4.0, 5.0, 1.0, 0.0, 2.0], len: 3, first: 0 };
        let mut out = [9.0; 6];
        product(&mut out, 3, p, q);
        assert_eq!(out, [4.0, 4.0, 7.0, 5.0, 8.0, 8.0]);
    }
}
