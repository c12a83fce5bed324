//! `gradzip`: two thin factors by alternating least squares.
//!
//! `P` and `R` minimise `‖C − P·Rᵀ‖² + λ(‖P‖² + ‖R‖²)` in turn: `P = C·R·(RᵀR + λI)⁻¹`, averaged
//! over ranks; `R = Cᵀ·P·(PᵀP + λI)⁻¹`, averaged; the gradient becomes `P·Rᵀ`. Given one factor,
//! the other is linear in `C`, so two rounds of all-reduce suffice. The next step starts from `R`.
//!
//! - **Message**: `P`, then `R`, `f32` column by column: 32·rank·(rows + columns) bits. Tensors of
//!   fewer than two dimensions, and tensors that this would not shrink, are sent uncompressed.
//! - **Aggregation**: two rounds of all-reduce. Under other exchanges each rank factors on its own
//!   and both factors are gathered.
//! - **Range**: rank 1 to 32; λ from 10⁻⁹ to 1. With a smaller λ, only f32's rounding would
//!   regularise gradients of a lower rank than `rank`.
//! - **Error feedback**: on. The residual of a rank is `C − P·Rᵀ` with its own `R`; the residuals
//!   of all ranks add up to the error of the mean.
//! - **Draws**: `R` starts uniform in [−1, 1), the same on every rank; a column that becomes zero
//!   is drawn again.
//! - **Deviations**: λ is relative to the mean squared norm of its factor's columns, so it does not
//!   depend on the scale of gradients: an absolute λ above a gradient's singular values would make
//!   both factors vanish. For the same reason `R` is scaled to norm 1 between steps: if the
//!   gradient turned faster than `R` followed, `R` would grow and `P` shrink without bound. A rank
//!   whose product would overflow sends zeros; its residual keeps everything.
//! - **Cost**: 8 bytes per element for the sum, 4 for each factor, 8 for the residual, and rank
//!   multiplications per element in each of three matrix products.
//!
//! Reference: Cho, Muthusamy, Nemanich, Puri: "GradZip: Gradient Compression using Alternating
//! Matrix Factorization for Large-scale Deep Learning", NeurIPS 2019 workshop on systems for ML.

use std::ops::Bound::Included;

use super::factors::Alternation;
use crate::compressors::single_rank::SingleRank;
use crate::numeric::matrix::{MAX_RANK, normalise, regularised_inverse};
use crate::parameters::{real, whole};
use crate::{Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "gradzip",
    summary: "two thin factors, by alternating least squares",
    formula: "Ĉ = P·Rᵀ, P = C·R·(RᵀR + λρI)⁻¹ with R before, R = Cᵀ·P·(PᵀP + λρI)⁻¹, ρ the mean diagonal element of RᵀR or PᵀP",
    family: Family::LowRank,
    error_feedback: true,
    examples: &["rank=3,lambda=0.01"],
    reference: "Cho et al., NeurIPS workshop 2019",
    payload: "rank × (rows + columns) f32",
    passes: Passes { after: 1, ..Passes::TWO },
    ..Entry::of::<SingleRank<GradZip>>(|_| {
        Guarantee::Neither(
            "the product of factors from an earlier step may be orthogonal to the tensor",
        )
    })
};

crate::parameters! {
    /// Alternating least squares with a warm start.
    pub struct GradZip {
        /// columns of the factors
        pub rank: usize = whole(4, 1..=MAX_RANK as u64),
        /// regularisation of the least squares, as a fraction of the mean squared column norm;
        /// larger is more stable and less exact
        pub lambda: f64 = real(0.001, Included(1e-9), Included(1.0)),
    }
}

impl Alternation for GradZip {
    fn rank(&self) -> usize {
        self.rank
    }

    fn before_first(&self, q: &mut [f32], columns: usize) {
        regularised_inverse(q, columns, self.lambda);
    }

    fn before_second(&self, p: &mut [f32], rows: usize) {
        regularised_inverse(p, rows, self.lambda);
    }

    fn normalise(&self, q: &mut [f32], _: usize) {
        normalise(q);
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{Sender, f32s};

    /// The decoded value of a constant gradient after some steps.
    fn decoded(spec: &str, shape: &[usize], gradient: &[f32], steps: u64) -> (usize, Vec<f32>) {
        let mut sender = Sender::new(spec, shape);
        let (message, out) = (0..steps).map(|step| sender.send(step, gradient)).last().unwrap();
        (message.len(), out)
    }

    #[test]
    fn each_factor_shrinks_a_matrix_of_rank_one_by_lambda() {
        // As λ is relative, P·Rᵀ = C / (1 + λ) after the second factor, whatever the scale of the
        // first.
        let (a, b) = ([3.0f32, 0.0, -4.0, 1.0], [1.0f32, 2.0, -2.0, 0.5, 0.0]);
        let gradient: Vec<f32> = a.iter().flat_map(|a| b.iter().map(move |b| a * b)).collect();
        let (len, out) = decoded("gradzip:rank=1,lambda=0.25", &[4, 5], &gradient, 1);
        assert_eq!(len, 36);
        for (x, g) in out.iter().zip(&gradient) {
            assert!((x - g / 1.25).abs() < 1e-5, "{x} for {g}");
        }
    }

    #[test]
    fn steps_converge_to_the_greatest_singular_value() {
        let mut gradient = vec![0.0; 64];
        (gradient[0], gradient[9]) = (10.0, 9.0);
        let (_, out) = decoded("gradzip:rank=1,lambda=0.000001,ef=off", &[8, 8], &gradient, 60);
        gradient[9] = 0.0;
        for (x, g) in out.iter().zip(&gradient) {
            assert!((x - g).abs() < 1e-3, "{x} for {g}");
        }
    }

    #[test]
    fn vectors_travel_as_they_are() {
        assert_eq!(decoded("gradzip", &[3], &[1.0, -2.0, 1e-40], 1), (12, vec![1.0, -2.0, 1e-40]));
    }

    #[test]
    fn a_single_column_worked_by_hand() {
        // λ = 1 doubles RᵀR = 2: P = C·R / 4 = (1, 1). PᵀP is 2 as well: R = Cᵀ·P / 4.
        let gradient = [5.0, -1.0, 6.0, 3.0, 1.0, 0.0];
        let mut sender =
            Sender::starting_from("gradzip:rank=1,lambda=1", &[2, 3], &[1.0, 1.0, 0.0]);
        let (message, decoded) = sender.send(1, &gradient);
        assert_eq!(f32s(&message), [1.0, 1.0, 2.0, 0.0, 1.5]);
        assert_eq!(decoded, [2.0, 0.0, 1.5, 2.0, 0.0, 1.5]);
        assert_eq!(sender.residual(), [3.0, -1.0, 4.5, 1.0, 1.0, -1.5]);
        // R / 2.5 for the next step.
        assert_eq!(sender.kept(), [0.8, 0.0, 0.6]);
    }

    #[test]
    fn two_columns_worked_by_hand() {
        // RᵀR = diag(14, 2), its mean is 8 and λ adds 2: columns are divided by 16 and by 4. So are
        // the columns of P, which are equal: the first and fourth columns of C are 16 and 4 times
        // them.
        let (a, b) = ([1.0, 2.0, 3.0, 0.0, 0.0], [0.0, 0.0, 0.0, 1.0, 1.0]);
        let start = [a, b].concat();
        let matrix = |first: f32, fourth: f32| -> Vec<f32> {
            (0..5).flat_map(|row| [first * a[row], 0.0, 0.0, fourth * b[row], 0.0]).collect()
        };
        let mut sender = Sender::starting_from("gradzip:rank=2,lambda=0.25", &[5, 5], &start);
        let (message, decoded) = sender.send(1, &matrix(16.0, 4.0));
        // R: 16·14 / 16 of the first, 4·2 / 4 of the second.
        let r = [14.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 2.0, 0.0];
        assert_eq!(f32s(&message), [start, r.to_vec()].concat());
        assert_eq!(decoded, matrix(14.0, 2.0));
        assert_eq!(sender.residual(), matrix(2.0, 2.0));
        // Scaled as a whole, by √(14² + 2²), so one column stays seven times the other.
        let norm = 200f64.sqrt();
        assert_eq!(sender.kept(), r.map(|x| (f64::from(x) / norm) as f32));
    }
}
