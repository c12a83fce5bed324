//! Products of a large matrix with a thin one.

use fearless_simd::prelude::*;

use super::{cases, kernel};

/// Sums of a row use this many lanes on every processor.
const LANES: usize = 16;

type Lanes = [f32; LANES];
/// Whole chunks, and the rest.
type Vector<'a> = (&'a [Lanes], &'a [f32]);

kernel! {
    /// Replaces `out` by `C·Q`. `C` has rows × columns elements, row by row; `Q` has columns × rank
    /// and `out` rows × rank elements, column by column. An element is a sum in sixteen lanes; the
    /// upper half of them is added to the lower until one number is left. All processors compute
    /// the same bits.
    ///
    /// With AVX-512, sums of 4 × 4 elements stay in registers, and eight loads serve sixteen
    /// products; with AVX2, sums of 2 × 2 elements, and four loads serve four. Reads `C` once from
    /// memory, if `Q` fits in the cache.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn times_thin(
        simd,
        c: &[f32],
        q: &[f32],
        rank: usize,
        out: &mut [f32],
    ) {
        // As many sums as fit in the registers: in sixteen with SSE2 and AVX2, in 32 with others.
        match S::f32s::LEN {
            16 => in_blocks::<S, 4, 4, 1>(simd, c, q, rank, out),
            8 => in_blocks::<S, 2, 2, 2>(simd, c, q, rank, out),
            _ if cfg!(target_arch = "aarch64") => in_blocks::<S, 2, 2, 4>(simd, c, q, rank, out),
            _ => in_blocks::<S, 2, 1, 4>(simd, c, q, rank, out),
        }
    } plain {
        let [columns, rows] = sizes(c, q, rank, out);
        for (at, out) in out.iter_mut().enumerate() {
            let (chunks, rest) = vector(c, columns, at % rows);
            let (factors, last) = vector(q, columns, at / rows);
            let mut sums = [0.0; LANES];
            chunks.iter().zip(factors).for_each(|(x, y)| add_products(&mut sums, x, y));
            add_products(&mut sums, rest, last);
            *out = total(sums);
        }
    }
}

/// Computes the product in blocks of rows by columns. Sixteen lanes are `PARTS` registers.
#[inline(always)]
fn in_blocks<S: Simd, const ROWS: usize, const COLUMNS: usize, const PARTS: usize>(
    simd: S,
    c: &[f32],
    q: &[f32],
    rank: usize,
    out: &mut [f32],
) {
    let [columns, rows] = sizes(c, q, rank, out);
    for row in (0..rows).step_by(ROWS) {
        // Blocks past the end repeat the last row or column.
        let mut x = [(&[][..], &[][..]); ROWS];
        for (i, x) in x.iter_mut().enumerate() {
            *x = vector(c, columns, (row + i).min(rows - 1));
        }
        for column in (0..rank).step_by(COLUMNS) {
            let mut y = [(&[][..], &[][..]); COLUMNS];
            for (k, y) in y.iter_mut().enumerate() {
                *y = vector(q, columns, (column + k).min(rank - 1));
            }
            let sums = sums::<S, ROWS, COLUMNS, PARTS>(simd, x, y);
            for (i, (sums, (_, x))) in sums.iter().zip(x).enumerate().take(rows - row) {
                for (k, (sums, (_, y))) in sums.iter().zip(y).enumerate().take(rank - column) {
                    let mut sums = *sums;
                    add_products(&mut sums, x, y);
                    out[(column + k) * rows + row + i] = total(sums);
                }
            }
        }
    }
}

/// The sums of the whole chunks of a block.
#[inline(always)]
fn sums<S: Simd, const ROWS: usize, const COLUMNS: usize, const PARTS: usize>(
    simd: S,
    x: [Vector<'_>; ROWS],
    y: [Vector<'_>; COLUMNS],
) -> [[Lanes; COLUMNS]; ROWS] {
    let len = x[0].0.len();
    let (x, y) = (x.map(|(chunks, _)| &chunks[..len]), y.map(|(chunks, _)| &chunks[..len]));
    let zero = [S::f32s::splat(simd, 0.0); PARTS];
    let (mut sums, mut factors) = ([[zero; COLUMNS]; ROWS], [zero; COLUMNS]);
    for at in 0..len {
        for (factor, y) in factors.iter_mut().zip(y) {
            *factor = registers(simd, &y[at]);
        }
        for (sums, x) in sums.iter_mut().zip(x) {
            let x: [S::f32s; PARTS] = registers(simd, &x[at]);
            for (sums, factor) in sums.iter_mut().zip(&factors) {
                for ((sum, &x), &y) in sums.iter_mut().zip(&x).zip(factor) {
                    *sum += x * y;
                }
            }
        }
    }
    let mut lanes = [[[0.0; LANES]; COLUMNS]; ROWS];
    for (lanes, sums) in lanes.as_flattened_mut().iter_mut().zip(sums.as_flattened()) {
        for (lanes, sum) in lanes.chunks_exact_mut(S::f32s::LEN).zip(sums) {
            sum.store_slice(lanes);
        }
    }
    lanes
}

#[inline(always)]
fn registers<S: Simd, const PARTS: usize>(simd: S, lanes: &Lanes) -> [S::f32s; PARTS] {
    let mut parts = [S::f32s::splat(simd, 0.0); PARTS];
    for (part, lanes) in parts.iter_mut().zip(lanes.chunks_exact(S::f32s::LEN)) {
        *part = S::f32s::from_slice(simd, lanes);
    }
    parts
}

/// The vector of this length at an index.
#[inline(always)]
fn vector(of: &[f32], len: usize, at: usize) -> Vector<'_> {
    of[at * len..(at + 1) * len].as_chunks()
}

#[inline(always)]
fn add_products(sums: &mut Lanes, x: &[f32], y: &[f32]) {
    for ((sum, x), y) in sums.iter_mut().zip(x).zip(y) {
        *sum += x * y;
    }
}

/// The sum of the lanes: adds halves until one number is left.
#[inline(always)]
fn total(mut lanes: Lanes) -> f32 {
    for half in [8, 4, 2, 1] {
        let (low, high) = lanes.split_at_mut(half);
        low.iter_mut().zip(high).for_each(|(x, y)| *x += *y);
    }
    lanes[0]
}

kernel! {
    /// Replaces `out` by `Dᵀ·P`, where `D` consists of consecutive columns of `C`, from index
    /// `first` on. `C` is row-major with `columns` columns. `P` has as many rows as `C`, and `out`
    /// one for each column of `D`; both are column-major with `rank` columns. An element is a sum
    /// in order of the rows.
    ///
    /// Reads `D` once from memory, if `out` fits in the cache.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn transposed_times_thin(
        simd,
        c: &[f32],
        columns: usize,
        first: usize,
        p: &[f32],
        rank: usize,
        out: &mut [f32],
    ) {
        let [rows, used] = [p.len(), out.len()].map(|len| len.checked_div(rank).unwrap_or(0));
        assert!(
            p.len() == rows * rank
                && out.len() == used * rank
                && (rank == 0 || rows * columns == c.len() && first + used <= columns),
            "{} elements in {columns} columns, from the one at {first}, and thin matrices of {} and {} with {rank} columns do not fit",
            c.len(),
            p.len(),
            out.len()
        );
        out.fill(0.0);
        let mut row = 0;
        while row < rows {
            let together = if row + 4 <= rows { 4 } else { 1 };
            let c = &c[row * columns..(row + together) * columns];
            for k in 0..rank {
                let (p, out) = (&p[k * rows + row..], &mut out[k * used..(k + 1) * used]);
                if together == 4 {
                    add_rows::<S, 4>(simd, c, first, p, out);
                } else {
                    add_rows::<S, 1>(simd, c, first, p, out);
                }
            }
            row += together;
        }
    } plain {
        let [rows, used] = [p.len(), out.len()].map(|len| len.checked_div(rank).unwrap_or(0));
        for (at, out) in out.iter_mut().enumerate() {
            let (k, j) = (at / used, at % used);
            let products = (0..rows).map(|i| c[i * columns + first + j] * p[k * rows + i]);
            *out = products.fold(0.0, |sum, product| sum + product);
        }
    }
}

/// Adds rows, from their element at `first` on, each times its factor, to a row, one after the
/// other.
#[inline(always)]
fn add_rows<S: Simd, const ROWS: usize>(
    simd: S,
    c: &[f32],
    first: usize,
    factors: &[f32],
    out: &mut [f32],
) {
    let (columns, used) = (c.len() / ROWS, out.len());
    let rows: [&[f32]; ROWS] = core::array::from_fn(|i| &c[i * columns + first..][..used]);
    let factors: &[f32; ROWS] = factors.first_chunk().expect("a factor for each row");
    let mut j = 0;
    // For 128 bits, the compiler finds better instructions for the loop below.
    while S::f32s::LEN > 4 && j + S::f32s::LEN <= used {
        let lanes = &mut out[j..j + S::f32s::LEN];
        let mut sum = S::f32s::from_slice(simd, lanes);
        for (row, &factor) in rows.iter().zip(factors) {
            sum += S::f32s::from_slice(simd, &row[j..j + S::f32s::LEN]) * factor;
        }
        sum.store_slice(lanes);
        j += S::f32s::LEN;
    }
    for (j, sum) in out.iter_mut().enumerate().skip(j) {
        for (row, factor) in rows.iter().zip(factors) {
            *sum += row[j] * factor;
        }
    }
}

/// The column lengths of a thin factor and of the product; the large matrix has as many elements as
/// their product.
#[inline(always)]
pub(super) fn sizes(c: &[f32], factor: &[f32], rank: usize, out: &[f32]) -> [usize; 2] {
    let sizes @ [inner, outer] =
        [factor, out].map(|thin| thin.len().checked_div(rank).unwrap_or(0));
    assert!(
        inner * rank == factor.len()
            && outer * rank == out.len()
            && (rank == 0 || inner * outer == c.len()),
        "a matrix of {} elements and thin ones of {} and {} with {rank} columns do not fit",
        c.len(),
        factor.len(),
        out.len()
    );
    sizes
}

cases![
    ("times_thin", |input, output| {
        let ([rows, columns, rank], [c, q]) = thin(input);
        let mut out = input.elements(rows * rank, |_| 9.0);
        times_thin(&c, &q[..columns * rank], rank, &mut out);
        output.computed(&out);
    }),
    ("transposed_times_thin", |input, output| {
        let ([rows, columns, rank], [c, p]) = thin(input);
        for first in [0, columns / 3] {
            let mut out = input.elements((columns - first) * rank, |_| 9.0);
            transposed_times_thin(&c, columns, first, &p[..rows * rank], rank, &mut out);
            output.computed(&out);
        }
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    // 3 × 2, row by row.
    const C: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

    #[test]
    fn products_by_hand() {
        let mut out = [9.0; 6];
        times_thin(&C, &[1.0, 0.0, 1.0, -1.0], 2, &mut out);
        assert_eq!(out, [1.0, 3.0, 5.0, -1.0, -1.0, -1.0]);
        let mut out = [9.0; 4];
        transposed_times_thin(&C, 2, 0, &[1.0, 1.0, 1.0, 1.0, 0.0, -1.0], 2, &mut out);
        assert_eq!(out, [9.0, 12.0, -4.0, -4.0]);
        // Only the second column.
        transposed_times_thin(&C, 2, 1, &[1.0, 1.0, 1.0, 1.0, 0.0, -1.0], 2, &mut out[..2]);
        assert_eq!(out, [12.0, -4.0, -4.0, -4.0]);
        times_thin(&[], &[], 3, &mut []);
        transposed_times_thin(&[], 0, 0, &[1.0], 1, &mut []);
    }

    #[test]
    #[should_panic(expected = "do not fit")]
    fn sizes_that_do_not_fit_are_refused() {
        times_thin(&C, &[1.0; 4], 2, &mut [0.0; 4]);
    }

    #[test]
    #[should_panic(expected = "from the one at 1")]
    fn columns_past_the_last_are_refused() {
        transposed_times_thin(&C, 2, 1, &[1.0; 3], 1, &mut [0.0; 2]);
    }
}
