//! The product of two thin matrices, added to a large one.

use core::ops::Range;

use super::add_scaled;
use super::thin::sizes;

/// A column-major matrix; the rows from `first` on are used.
#[derive(Debug, Clone, Copy)]
struct Columns<'a> {
    values: &'a [f32],
    /// The number of elements in a column, at least one.
    len: usize,
    first: usize,
}

impl<'a> Columns<'a> {
    fn each(self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.len).map(move |column| &column[self.first..])
    }

    /// Divides the first `width` rows into panels of a multiple of 64 rows that stay in the cache.
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    fn panels(self, width: usize) -> impl Iterator<Item = Range<usize>> {
        /// Elements of a panel: 256 KiB.
        const PANEL: usize = 1 << 16;
        let columns = self.values.len() / self.len;
        let step = (PANEL / columns / 64).max(1) * 64;
        (0..width).step_by(step).map(move |start| start..width.min(start + step))
    }
}

/// Adds `weight·P·Qᵀ` to a row-major matrix; `P` and `Q` are column-major, with `rank` columns.
/// Products are summed in order of the columns, and their sum is multiplied and added, without
/// fusing.
///
/// With AVX-512, sums of 4 × 64 elements stay in registers, and eight vector loads serve sixteen
/// products; with AVX2, sums of 4 × 16 elements, and six loads serve eight.
///
/// # Panics
/// If the lengths do not fit.
pub fn add_product(out: &mut [f32], p: &[f32], q: &[f32], rank: usize, weight: f32) {
    let [width, rows] = sizes(out, q, rank, p);
    if rank == 0 || out.is_empty() {
        return;
    }
    let p = Columns { values: p, len: rows, first: 0 };
    let q = Columns { values: q, len: width, first: 0 };
    let (high, wide) = whole_tiles(out, width, p, q, weight);
    add_plain(out, width, (high..rows, 0..width), p, q, weight);
    add_plain(out, width, (0..high, wide..width), p, q, weight);
}

/// Computes whole tiles with the processor's vector instructions; returns the number of rows and
/// columns in them.
#[allow(unused_variables, reason = "only x86-64 has such instructions")]
fn whole_tiles(
    out: &mut [f32],
    width: usize,
    p: Columns<'_>,
    q: Columns<'_>,
    weight: f32,
) -> (usize, usize) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        let high = out.len().checked_div(width).unwrap_or(0) / 4 * 4;
        if super::level::has_avx512() {
            // SAFETY: the processor has the features the function is compiled for.
            unsafe { avx512::tiles(out, width, p, q, weight) };
            return (high, width / 64 * 64);
        }
        if super::level::has_avx2() {
            // SAFETY: as above.
            unsafe { avx2::tiles(out, width, p, q, weight) };
            return (high, width / 16 * 16);
        }
    }
    (0, 0)
}

/// Adds a block of the product.
fn add_plain(
    out: &mut [f32],
    width: usize,
    (rows, columns): (Range<usize>, Range<usize>),
    p: Columns<'_>,
    q: Columns<'_>,
    weight: f32,
) {
    /// Sums kept until the last product is added.
    const TILE: usize = 256;
    let mut sums = [0.0; TILE];
    for row in rows {
        for start in columns.clone().step_by(TILE) {
            let end = columns.end.min(start + TILE);
            let sums = &mut sums[..end - start];
            sums.fill(0.0);
            for (p, q) in p.each().zip(q.each()) {
                add_scaled(sums, &q[start..end], p[row]);
            }
            add_scaled(&mut out[row * width + start..row * width + end], sums, weight);
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::Columns;
    use core::arch::x86_64::*;

    /// Computes the part of the product that consists of whole tiles.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn tiles(
        out: &mut [f32],
        width: usize,
        p: Columns<'_>,
        q: Columns<'_>,
        weight: f32,
    ) {
        let weight = _mm512_set1_ps(weight);
        for panel in q.panels(width / 64 * 64) {
            for (at, rows) in out.chunks_exact_mut((4 * width).max(1)).enumerate() {
                let p = Columns { first: 4 * at, ..p };
                for start in panel.clone().step_by(64) {
                    tile(rows, width, p, Columns { first: start, ..q }, weight);
                }
            }
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn tile(rows: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>, weight: __m512) {
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
            let (lanes, _) = row[q.first..q.first + 64].as_chunks_mut::<16>();
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                let scaled = _mm512_mul_ps(weight, sum);
                // SAFETY: the chunk holds the sixteen floats that are read and written.
                unsafe {
                    let added = _mm512_add_ps(_mm512_loadu_ps(lanes.as_ptr()), scaled);
                    _mm512_storeu_ps(lanes.as_mut_ptr(), added);
                }
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
    pub(super) fn tiles(
        out: &mut [f32],
        width: usize,
        p: Columns<'_>,
        q: Columns<'_>,
        weight: f32,
    ) {
        let weight = _mm256_set1_ps(weight);
        for panel in q.panels(width / 16 * 16) {
            for (at, rows) in out.chunks_exact_mut((4 * width).max(1)).enumerate() {
                let p = Columns { first: 4 * at, ..p };
                for start in panel.clone().step_by(16) {
                    tile(rows, width, p, Columns { first: start, ..q }, weight);
                }
            }
        }
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn tile(rows: &mut [f32], width: usize, p: Columns<'_>, q: Columns<'_>, weight: __m256) {
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
            let (lanes, _) = row[q.first..q.first + 16].as_chunks_mut::<8>();
            for (lanes, sum) in lanes.iter_mut().zip(sums) {
                let scaled = _mm256_mul_ps(weight, sum);
                // SAFETY: the chunk holds the eight floats that are read and written.
                unsafe {
                    let added = _mm256_add_ps(_mm256_loadu_ps(lanes.as_ptr()), scaled);
                    _mm256_storeu_ps(lanes.as_mut_ptr(), added);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn a_product_by_hand() {
        // (1, 2)·(3, 4, 5)ᵀ + (1, −1)·(1, 0, 2)ᵀ.
        let (p, q) = ([1.0, 2.0, 1.0, -1.0], [3.0, 4.0, 5.0, 1.0, 0.0, 2.0]);
        let mut out = [1.0; 6];
        add_product(&mut out, &p, &q, 2, -2.0);
        assert_eq!(out, [-7.0, -7.0, -13.0, -9.0, -15.0, -15.0]);
        add_product(&mut [], &[], &q, 2, 1.0);
        add_product(&mut out, &[], &[], 0, 1.0);
    }

    #[test]
    fn products_of_any_size_are_those_of_whole_numbers() {
        // Whole tiles, rows and columns past them, more columns than kept sums, and several panels.
        for [rows, columns, rank] in
            [[9, 1000, 2], [3, 259, 2], [41, 1, 2], [4, 64, 1], [6, 130, 3], [5, 9000, 9]]
        {
            let p: Vec<f32> = (0..rank * rows).map(|i| (i % 7) as f32).collect();
            let q: Vec<f32> = (0..rank * columns).map(|i| (i % 11) as f32 - 5.0).collect();
            let mut out = vec![1.0; rows * columns];
            add_product(&mut out, &p, &q, rank, 3.0);
            for (at, &x) in out.iter().enumerate() {
                let (i, j) = (at / columns, at % columns);
                let sum: f32 = (0..rank).map(|k| p[k * rows + i] * q[k * columns + j]).sum();
                assert_eq!(x, 1.0 + 3.0 * sum);
            }
        }
    }
}
