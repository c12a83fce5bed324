//! The orthonormal discrete cosine transform (DCT-II) of small blocks, with the same bits on every
//! machine.

use gradwire_bits::{DecodeError, kernels, try_resize};

/// The largest side of a block.
pub(crate) const MAX_SIDE: usize = 64;

/// The matrix D of a side s: `D[i][j] = √(2/s)·cos(π·(2j + 1)·i / 2s)`, and √(1/s) in row 0.
#[derive(Debug, Clone)]
pub(crate) struct Basis {
    rows: Vec<f32>,
    columns: Vec<f32>,
}

impl Basis {
    /// The matrix of a side from 1 to [`MAX_SIDE`].
    pub(crate) fn new(side: usize) -> Result<Self, DecodeError> {
        let element = |row: usize, column: usize| {
            let norm = if row == 0 { 1.0 } else { 2.0 };
            ((norm / side as f64).sqrt() * cosine((2 * column + 1) * row, side)) as f32
        };
        let all = |of: &dyn Fn(usize, usize) -> f32| -> Result<_, DecodeError> {
            let mut all = Vec::new();
            try_resize(&mut all, side * side, 0.0)?;
            all.iter_mut().enumerate().for_each(|(at, x)| *x = of(at / side, at % side));
            Ok(all)
        };
        Ok(Self { rows: all(&element)?, columns: all(&|column, row| element(row, column))? })
    }

    pub(crate) fn side(&self) -> usize {
        self.rows.len().isqrt()
    }
}

/// cos(π·m / 2s), from its series: only sums and products, so the bits do not depend on a library.
fn cosine(m: usize, s: usize) -> f64 {
    match m % (4 * s) {
        m if m > 2 * s => cosine(4 * s - m, s),
        m if m > s => -cosine(2 * s - m, s),
        m => {
            let x = std::f64::consts::FRAC_PI_2 * m as f64 / s as f64;
            // The next term is below 10⁻¹⁷.
            let series = |sum: f64, n: usize| 1.0 - x * x / ((2 * n - 1) * 2 * n) as f64 * sum;
            (1..=11).rev().fold(1.0, series)
        }
    }
}

/// The two sides of a block, and working memory.
pub(crate) struct Transform<'a> {
    high: &'a Basis,
    wide: &'a Basis,
    half: Square,
    kept: [Square; 2],
}

/// The elements of the largest block.
type Square = [f32; MAX_SIDE * MAX_SIDE];

impl<'a> Transform<'a> {
    /// The transform of blocks with the rows of `high` and the columns of `wide`.
    pub(crate) fn new(high: &'a Basis, wide: &'a Basis) -> Self {
        let zeros = [0.0; MAX_SIDE * MAX_SIDE];
        Self { high, wide, half: zeros, kept: [zeros; 2] }
    }

    /// `D·X·Dᵀ`, row by row.
    pub(crate) fn forward(&mut self, block: &[f32], out: &mut [f32]) {
        self.products(&self.high.columns, block, &self.wide.columns, out);
    }

    /// `Dᵀ·C·D`, row by row: the inverse. Rows and columns of zeros take hardly any time.
    pub(crate) fn inverse(&mut self, block: &[f32], out: &mut [f32]) {
        self.products(&self.high.rows, block, &self.wide.rows, out);
    }

    /// The product of a matrix given by columns, the block, and the transpose of another matrix
    /// given by columns.
    fn products(&mut self, left: &'a [f32], block: &[f32], right: &'a [f32], out: &mut [f32]) {
        let (high, wide) = (self.high.side(), self.wide.side());
        // The transpose of the first product: its rows are the columns that the second one needs.
        let half = &mut self.half[..high * wide];
        product(half, block, left, high, &mut self.kept);
        product(out, half, right, wide, &mut self.kept);
    }
}

/// Writes `P·Qᵀ`; both are given by their `rank` columns. Skips zero columns of P, because their
/// products are zero.
fn product(out: &mut [f32], p: &[f32], q: &[f32], rank: usize, [of_p, of_q]: &mut [Square; 2]) {
    let (rows, width) = (p.len() / rank, q.len() / rank);
    let mut kept = 0;
    for (p, q) in p.chunks_exact(rows).zip(q.chunks_exact(width)) {
        if p.iter().fold(0, |bits, x| bits | x.to_bits()) != 0 {
            of_p[kept * rows..][..rows].copy_from_slice(p);
            of_q[kept * width..][..width].copy_from_slice(q);
            kept += 1;
        }
    }
    out.fill(0.0);
    kernels::add_product(out, &of_p[..kept * rows], &of_q[..kept * width], kept, 1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bases_are_orthonormal_cosines() {
        for side in [1, 2, 3, 7, 20, 64] {
            let basis = Basis::new(side).unwrap();
            for i in 0..side {
                for j in 0..side {
                    let angle = std::f64::consts::PI * ((2 * j + 1) * i) as f64 / (2 * side) as f64;
                    let norm = (if i == 0 { 1.0 } else { 2.0 } / side as f64).sqrt();
                    let expected = (norm * angle.cos()) as f32;
                    assert!((basis.rows[i * side + j] - expected).abs() < 1e-7);
                    assert_eq!(basis.columns[j * side + i], basis.rows[i * side + j]);
                    let dot: f64 = (0..side)
                        .map(|k| {
                            f64::from(basis.rows[i * side + k])
                                * f64::from(basis.rows[j * side + k])
                        })
                        .sum();
                    assert!((dot - f64::from(u8::from(i == j))).abs() < 1e-6);
                }
            }
        }
    }

    #[test]
    fn transforms_by_a_double_sum_and_back() {
        for [high, wide] in [[1, 1], [1, 5], [4, 1], [3, 7], [64, 64], [6, 64]] {
            let (of_rows, of_columns) = (Basis::new(high).unwrap(), Basis::new(wide).unwrap());
            let block: Vec<f32> =
                (0..high * wide).map(|at| ((at * 37) % 19) as f32 - 9.0).collect();
            let mut transform = Transform::new(&of_rows, &of_columns);
            let [mut found, mut back] = [vec![0.0; high * wide], vec![0.0; high * wide]];
            transform.forward(&block, &mut found);
            for at in [0, high * wide / 2, high * wide - 1] {
                let (u, v) = (at / wide, at % wide);
                let expected: f64 = (0..high * wide)
                    .map(|x| {
                        let (i, j) = (x / wide, x % wide);
                        let factors = [of_rows.rows[u * high + i], of_columns.rows[v * wide + j]];
                        f64::from(block[x]) * f64::from(factors[0]) * f64::from(factors[1])
                    })
                    .sum();
                assert!((f64::from(found[at]) - expected).abs() < 1e-3, "{high} × {wide}: {at}");
            }
            transform.inverse(&found, &mut back);
            back.iter().zip(&block).for_each(|(a, b)| assert!((a - b).abs() < 1e-4));
        }
    }

    #[test]
    fn what_is_left_out_changes_no_bit() {
        let (high, wide) = (Basis::new(20).unwrap(), Basis::new(64).unwrap());
        let mut block = vec![0.0; 20 * 64];
        (block[7], block[65], block[1279]) = (3.7, -1.3, 1e-3);
        let mut found = vec![9.0; 20 * 64];
        Transform::new(&high, &wide).inverse(&block, &mut found);
        // With all columns: the transpose of the first product, then the second.
        let (mut half, mut all) = (vec![0.0; 20 * 64], vec![0.0; 20 * 64]);
        kernels::add_product(&mut half, &block, &high.rows, 20, 1.0);
        kernels::add_product(&mut all, &half, &wide.rows, 64, 1.0);
        let bits = |values: &[f32]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
        assert_eq!(bits(&found), bits(&all));
    }
}
