//! Products of a large matrix with a thin one.

use super::kernel;

/// Sums of a row use this many lanes on every processor.
const LANES: usize = 16;

/// Replaces `out` by `C·Q`. `C` has rows × columns elements, row by row; `Q` has columns × rank and
/// `out` rows × rank elements, column by column. An element is a sum in sixteen lanes; the upper
/// half of them is added to the lower until one number is left. All processors compute the same
/// bits.
///
/// With AVX-512, sums of 4 × 4 elements stay in registers, and eight loads serve sixteen products;
/// with AVX2, sums of 2 × 2 elements, and four loads serve four. Reads `C` once from memory, if `Q`
/// fits in the cache.
///
/// # Panics
/// If the lengths do not fit.
pub fn times_thin(c: &[f32], q: &[f32], rank: usize, out: &mut [f32]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    {
        if super::level::has_avx512() {
            // SAFETY: the processor has the features the function is compiled for.
            return unsafe { avx512::times(c, q, rank, out) };
        }
        if super::level::has_avx2() {
            // SAFETY: as above.
            return unsafe { avx2::times(c, q, rank, out) };
        }
    }
    in_blocks(c, q, rank, out, |[(row, _)]: [Vector<'_>; 1], [(column, _)]: [Vector<'_>; 1]| {
        let mut sums = [0.0; LANES];
        row.iter().zip(column).for_each(|(x, y)| add_products(&mut sums, x, y));
        [[sums]]
    });
}

type Lanes = [f32; LANES];
/// Whole chunks, and the rest.
type Vector<'a> = (&'a [Lanes], &'a [f32]);

/// Computes the product in blocks of rows by columns; a closure returns the sums of their whole
/// chunks.
#[inline(always)]
fn in_blocks<const ROWS: usize, const COLUMNS: usize>(
    c: &[f32],
    q: &[f32],
    rank: usize,
    out: &mut [f32],
    sums: impl Fn([Vector<'_>; ROWS], [Vector<'_>; COLUMNS]) -> [[Lanes; COLUMNS]; ROWS],
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
            let sums = sums(x, y);
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

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::{LANES, Lanes, Vector, in_blocks};
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn times(c: &[f32], q: &[f32], rank: usize, out: &mut [f32]) {
        in_blocks(c, q, rank, out, |x: [Vector<'_>; 4], y: [Vector<'_>; 4]| {
            let len = x[0].0.len();
            let x = [&x[0].0[..len], &x[1].0[..len], &x[2].0[..len], &x[3].0[..len]];
            let y = [&y[0].0[..len], &y[1].0[..len], &y[2].0[..len], &y[3].0[..len]];
            let mut sums = [[_mm512_setzero_ps(); 4]; 4];
            for at in 0..len {
                // SAFETY: a chunk holds the sixteen floats that are read.
                let load = |lanes: &[Lanes]| unsafe { _mm512_loadu_ps(lanes[at].as_ptr()) };
                let y = [load(y[0]), load(y[1]), load(y[2]), load(y[3])];
                for i in 0..4 {
                    let x = load(x[i]);
                    for k in 0..4 {
                        sums[i][k] = _mm512_add_ps(sums[i][k], _mm512_mul_ps(x, y[k]));
                    }
                }
            }
            let mut lanes = [[[0.0; LANES]; 4]; 4];
            for i in 0..4 {
                for k in 0..4 {
                    // SAFETY: the array holds the sixteen floats that are written.
                    unsafe { _mm512_storeu_ps(lanes[i][k].as_mut_ptr(), sums[i][k]) };
                }
            }
            lanes
        });
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::{LANES, Lanes, Vector, in_blocks};
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn times(c: &[f32], q: &[f32], rank: usize, out: &mut [f32]) {
        in_blocks(c, q, rank, out, |x: [Vector<'_>; 2], y: [Vector<'_>; 2]| {
            let len = x[0].0.len();
            let (x, y) = ([&x[0].0[..len], &x[1].0[..len]], [&y[0].0[..len], &y[1].0[..len]]);
            let mut sums = [[[_mm256_setzero_ps(); 2]; 2]; 2];
            for at in 0..len {
                // SAFETY: a chunk holds the two times eight floats that are read.
                let load = |lanes: &[Lanes]| unsafe {
                    let lanes = lanes[at].as_ptr();
                    [_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes.add(8))]
                };
                let y = [load(y[0]), load(y[1])];
                for i in 0..2 {
                    let x = load(x[i]);
                    for k in 0..2 {
                        for half in 0..2 {
                            let product = _mm256_mul_ps(x[half], y[k][half]);
                            sums[i][k][half] = _mm256_add_ps(sums[i][k][half], product);
                        }
                    }
                }
            }
            let mut lanes = [[[0.0; LANES]; 2]; 2];
            for i in 0..2 {
                for k in 0..2 {
                    let ([low, high], to) = (sums[i][k], lanes[i][k].as_mut_ptr());
                    // SAFETY: the array holds the two times eight floats that are written.
                    unsafe {
                        _mm256_storeu_ps(to, low);
                        _mm256_storeu_ps(to.add(8), high);
                    }
                }
            }
            lanes
        });
    }
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
                    add_rows::<4>(c, first, p, out);
                } else {
                    add_rows::<1>(c, first, p, out);
                }
            }
            row += together;
        }
    }
}

/// Adds rows, from their element at `first` on, each times its factor, to a row, one after the
/// other.
#[inline(always)]
fn add_rows<const ROWS: usize>(c: &[f32], first: usize, factors: &[f32], out: &mut [f32]) {
    let (columns, used) = (c.len() / ROWS, out.len());
    let rows: [&[f32]; ROWS] = core::array::from_fn(|i| &c[i * columns + first..][..used]);
    let factors: &[f32; ROWS] = factors.first_chunk().expect("a factor for each row");
    for (j, sum) in out.iter_mut().enumerate() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

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
    fn products_of_any_size_are_those_of_whole_numbers() {
        for [rows, columns, rank] in [[1, 1, 1], [5, 3, 2], [7, 40, 5], [9, 16, 4], [2, 100, 9]] {
            let whole = |at: usize| ((at * 7 + at / 3) % 11) as f32 - 5.0;
            let c: Vec<f32> = (0..rows * columns).map(whole).collect();
            let [p, q] = [rows, columns].map(|len| (0..len * rank).map(whole).collect::<Vec<_>>());
            let mut out = vec![9.0; rows * rank];
            times_thin(&c, &q, rank, &mut out);
            for (at, &x) in out.iter().enumerate() {
                let (k, i) = (at / rows, at % rows);
                let sum: f32 = (0..columns).map(|j| c[i * columns + j] * q[k * columns + j]).sum();
                assert_eq!(x, sum, "{rows} × {columns}, {rank}");
            }
            for first in [0, columns / 3] {
                let used = columns - first;
                let mut out = vec![9.0; used * rank];
                transposed_times_thin(&c, columns, first, &p, rank, &mut out);
                for (at, &x) in out.iter().enumerate() {
                    let (k, j) = (at / used, first + at % used);
                    let sum: f32 = (0..rows).map(|i| c[i * columns + j] * p[k * rows + i]).sum();
                    assert_eq!(x, sum, "{rows} × {columns}, {rank}");
                }
            }
        }
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
