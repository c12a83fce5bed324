//! The product of two thin matrices, added to a large one.

use core::ops::Range;

use fearless_simd::prelude::*;

use super::thin::sizes;
use super::{cases, kernel};

/// A column-major matrix; the rows from `first` on are used.
#[derive(Debug, Clone, Copy)]
struct Columns<'a> {
    values: &'a [f32],
    /// The number of elements in a column, at least one.
    len: usize,
    first: usize,
}

impl<'a> Columns<'a> {
    #[inline(always)]
    fn each(self) -> impl Iterator<Item = &'a [f32]> {
        self.values.chunks_exact(self.len).map(move |column| &column[self.first..])
    }

    /// Divides the first `width` rows into panels of a multiple of 64 rows that stay in the cache.
    #[inline(always)]
    fn panels(self, width: usize) -> impl Iterator<Item = Range<usize>> {
        /// Elements of a panel: 256 KiB.
        const PANEL: usize = 1 << 16;
        let columns = self.values.len() / self.len;
        let step = (PANEL / columns / 64).max(1) * 64;
        (0..width).step_by(step).map(move |start| start..width.min(start + step))
    }
}

kernel! {
    /// Adds `weight·P·Qᵀ` to a row-major matrix; `P` and `Q` are column-major, with `rank` columns.
    /// Products are summed in order of the columns, and their sum is multiplied and added, without
    /// fusing.
    ///
    /// With AVX-512, sums of 4 × 64 elements stay in registers, and eight vector loads serve
    /// sixteen products; with AVX2, sums of 4 × 16 elements, and six loads serve eight.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn add_product(
        simd,
        out: &mut [f32],
        p: &[f32],
        q: &[f32],
        rank: usize,
        weight: f32,
    ) {
        // As many sums as fit in the registers: in sixteen with SSE2 and AVX2, in 32 with others.
        if S::f32s::LEN == 16 || cfg!(target_arch = "aarch64") {
            in_tiles::<S, 4>(simd, out, p, q, rank, weight);
        } else {
            in_tiles::<S, 2>(simd, out, p, q, rank, weight);
        }
    } plain {
        let Some((width, rows, p, q)) = factors(out, p, q, rank) else { return };
        add_block(out, width, (0..rows, 0..width), p, q, weight);
    }
}

/// The width and the number of rows of the product, and its factors, unless it is empty.
#[inline(always)]
fn factors<'a>(
    out: &[f32],
    p: &'a [f32],
    q: &'a [f32],
    rank: usize,
) -> Option<(usize, usize, Columns<'a>, Columns<'a>)> {
    let [width, rows] = sizes(out, q, rank, p);
    let columns = |values, len| Columns { values, len, first: 0 };
    (rank > 0 && !out.is_empty()).then(|| (width, rows, columns(p, rows), columns(q, width)))
}

/// Computes tiles of four rows of `VECTORS` registers, and then what is not in whole tiles.
#[inline(always)]
fn in_tiles<S: Simd, const VECTORS: usize>(
    simd: S,
    out: &mut [f32],
    p: &[f32],
    q: &[f32],
    rank: usize,
    weight: f32,
) {
    let Some((width, rows, p, q)) = factors(out, p, q, rank) else { return };
    let columns = VECTORS * S::f32s::LEN;
    let (high, wide) = (rows / 4 * 4, width / columns * columns);
    for panel in q.panels(wide) {
        for (at, rows) in out.chunks_exact_mut(4 * width).enumerate() {
            let p = Columns { first: 4 * at, ..p };
            for start in panel.clone().step_by(columns) {
                let q = Columns { first: start, ..q };
                add_tile::<S, VECTORS>(simd, rows, width, p, q, weight);
            }
        }
    }
    add_block(out, width, (high..rows, 0..width), p, q, weight);
    add_block(out, width, (0..high, wide..width), p, q, weight);
}

#[inline(always)]
fn add_tile<S: Simd, const VECTORS: usize>(
    simd: S,
    rows: &mut [f32],
    width: usize,
    p: Columns<'_>,
    q: Columns<'_>,
    weight: f32,
) {
    let columns = VECTORS * S::f32s::LEN;
    let mut sums = [[S::f32s::splat(simd, 0.0); VECTORS]; 4];
    let mut factors = sums[0];
    for (p, q) in p.each().zip(q.each()) {
        for (factor, q) in factors.iter_mut().zip(q[..columns].chunks_exact(S::f32s::LEN)) {
            *factor = S::f32s::from_slice(simd, q);
        }
        for (sums, &p) in sums.iter_mut().zip(&p[..4]) {
            for (sum, &q) in sums.iter_mut().zip(&factors) {
                *sum += S::f32s::splat(simd, p) * q;
            }
        }
    }
    for (row, sums) in rows.chunks_exact_mut(width).zip(&sums) {
        let lanes = row[q.first..q.first + columns].chunks_exact_mut(S::f32s::LEN);
        for (lanes, &sum) in lanes.zip(sums) {
            (S::f32s::from_slice(simd, lanes) + sum * weight).store_slice(lanes);
        }
    }
}

/// Adds a block of the product.
#[inline(always)]
fn add_block(
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
                add_row(sums, &q[start..end], p[row]);
            }
            add_row(&mut out[row * width + start..row * width + end], sums, weight);
        }
    }
}

#[inline(always)]
fn add_row(out: &mut [f32], values: &[f32], weight: f32) {
    out.iter_mut().zip(values).for_each(|(o, x)| *o += weight * x);
}

cases![("add_product", |input, output| {
    let ([rows, columns, rank], [mut out, p]) = thin(input);
    let q = input.elements(columns * rank, |at| f32::from_bits(input.word(at + 2)));
    add_product(&mut out, &p[..rows * rank], &q, rank, input.x);
    output.computed(&out);
}),];

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
