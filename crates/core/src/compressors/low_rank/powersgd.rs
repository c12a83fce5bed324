//! `powersgd`: two thin factors, by one step of subspace iteration per message.
//!
//! `C` is the corrected gradient, rows × columns; `Q`, columns × rank, is from the previous step.
//! `P = C·Q` is averaged over ranks and orthonormalised; `Q = Cᵀ·P` is averaged; the gradient
//! becomes `P·Qᵀ`. Both products are linear in `C`, so two rounds of all-reduce suffice, and all
//! ranks have the same `P` and `Q`. As `Q` changes little from step to step, the iteration
//! converges over steps, towards the leading singular vectors.
//!
//! - **Message**: `P` before it is orthonormalised, then `Q`, `f32` column by column:
//!   32·rank·(rows + columns) bits. Tensors of fewer than two dimensions, and tensors that this
//!   would not shrink, are sent uncompressed.
//! - **Aggregation**: two rounds of all-reduce. Under other exchanges each rank iterates on its own
//!   and both factors are gathered.
//! - **Range**: rank 1 to 32. The first step is exact for matrices of at most this rank; later the
//!   part of the row space that `Q` misses stays in the residual.
//! - **Error feedback**: on. The residual of a rank is `C − P·(Cᵀ·P)ᵀ`, with its own second factor;
//!   the residuals of all ranks add up to the error of the mean.
//! - **Draws**: `Q` starts uniform in [−1, 1), the same on every rank; a column that becomes zero
//!   is drawn again.
//! - **Deviations**: `Q` starts uniform (in the paper: normally distributed); columns of `Q` are
//!   scaled to norm 1 between steps, which changes no product but keeps tiny gradients from
//!   vanishing; Gram–Schmidt is applied twice. A rank whose product would overflow sends zeros; its
//!   residual keeps everything.
//! - **Cost**: 8 bytes per element for the sum, 4 for each factor, 8 for the residual, and rank
//!   multiplications per element in each of three matrix products.
//!
//! Reference: Vogels, Karimireddy, Jaggi: "PowerSGD: Practical Low-Rank Gradient Compression for
//! Distributed Optimization", NeurIPS 2019, Algorithms 1 and 2.

use super::factors::Alternation;
use crate::compressors::single_rank::SingleRank;
use crate::numeric::matrix::{MAX_RANK, normalise, orthonormalise};
use crate::parameters::whole;
use crate::{Entry, Family, Guarantee, Passes};

pub(crate) static ENTRY: Entry = Entry {
    id: "powersgd",
    summary: "two thin factors, by one step of subspace iteration",
    formula: "Ĉ = P·Qᵀ, P = orthonormal(C·Q_before), Q = Cᵀ·P",
    family: Family::LowRank,
    error_feedback: true,
    examples: &["rank=2", "rank=12", "rank=1"],
    reference: "Vogels et al., NeurIPS 2019",
    payload: "rank × (rows + columns) f32",
    passes: Passes { after: 1, ..Passes::TWO },
    ..Entry::of::<SingleRank<PowerSgd>>(|_| {
        Guarantee::Neither(
            "the product of factors from an earlier step may be orthogonal to the tensor",
        )
    })
};

crate::parameters! {
    /// Subspace iteration with a warm start.
    pub struct PowerSgd {
        /// columns of the factors
        pub rank: usize = whole(4, 1..=MAX_RANK as u64),
    }
}

impl Alternation for PowerSgd {
    fn rank(&self) -> usize {
        self.rank
    }

    fn after_first(&self, p: &mut [f32], rows: usize) {
        orthonormalise(p, rows);
    }

    fn normalise(&self, q: &mut [f32], columns: usize) {
        q.chunks_exact_mut(columns).for_each(normalise);
    }
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{Sender, f32s};
    use crate::{Floats, Round};

    /// Message, decoded message and residual of a matrix.
    fn play(spec: &str, shape: &[usize], gradient: &[f32]) -> (usize, Vec<f32>, Vec<f32>) {
        let mut sender = Sender::new(spec, shape);
        let (message, out) = sender.send(0, gradient);
        (message.len(), out, sender.residual().to_vec())
    }

    fn outer(a: &[f32], b: &[f32]) -> Vec<f32> {
        a.iter().flat_map(|a| b.iter().map(move |b| a * b)).collect()
    }

    fn close(a: &[f32], b: &[f32], within: f32) {
        a.iter().zip(b).for_each(|(a, b)| assert!((a - b).abs() <= within, "{a} and {b}"));
    }

    #[test]
    fn a_matrix_of_no_more_than_its_rank_is_exact() {
        let (a, b) = ([3.0, 0.0, -4.0, 1.0], [1.0, 2.0, -2.0, 0.5, 0.0]);
        let one = outer(&a, &b);
        // 4 + 5 numbers.
        let (len, decoded, residual) = play("powersgd:rank=1", &[4, 5], &one);
        assert_eq!(len, 36);
        close(&decoded, &one, 1e-5);
        close(&residual, &[0.0; 20], 1e-5);
        // Rank 2, and factors of two columns: 2 · (6 + 7) numbers for 42.
        let second = outer(&[1.0, 1.0, 0.0, 2.0, 0.0, 1.0], &[0.0, 1.0, 1.0, 0.0, -1.0, 2.0, 0.0]);
        let first = outer(&[0.0, 1.0, 5.0, 0.0, 1.0, 0.0], &[1.0, 0.0, 0.0, 3.0, 0.0, 0.0, -1.0]);
        let two: Vec<f32> = first.iter().zip(&second).map(|(a, b)| a + b).collect();
        let (len, decoded, _) = play("powersgd:rank=2", &[6, 7], &two);
        assert_eq!(len, 104);
        close(&decoded, &two, 2e-5);
    }

    #[test]
    fn what_factors_would_not_shrink_travels_as_it_is() {
        for (shape, gradient) in [
            (&[5][..], vec![1.0, -2.0, 0.5, 4.0, 1e-30]),
            (&[2, 2], vec![1.0, 2.0, 3.0, 4.0]),
            (&[3, 0], vec![]),
            // 3 · (4 + 4) numbers for 16: more than the matrix's rank costs.
            (&[4, 4], (0..16).map(|x| (x * x) as f32).collect()),
        ] {
            let (len, decoded, residual) = play("powersgd:rank=3", shape, &gradient);
            assert_eq!((len, &decoded), (4 * gradient.len(), &gradient));
            assert!(residual.iter().all(|&x| x == 0.0));
        }
    }

    #[test]
    fn the_iteration_goes_on_over_steps() {
        // Two directions, 10 and 9: one step from a random start mixes them, many steps find the
        // greater.
        let mut gradient = vec![0.0; 64];
        (gradient[0], gradient[9]) = (10.0, 9.0);
        let mut sender = Sender::new("powersgd:rank=1,ef=off", &[8, 8]);
        let (_, decoded) = (0..60).map(|step| sender.send(step, &gradient)).last().unwrap();
        gradient[9] = 0.0;
        close(&decoded, &gradient, 1e-3);
    }

    #[test]
    fn a_product_of_vectors_worked_by_hand() {
        // C = (3, 4)·(3, 0, 4)ᵀ. With Q = (1, 0, 0): P = (9, 12), orthonormal (3/5, 4/5), Q = 5·(3,
        // 0, 4). As f32 the fifths are rounded, but their products with small numbers round to
        // whole numbers.
        let gradient = [9.0, 0.0, 12.0, 12.0, 0.0, 16.0];
        let mut sender = Sender::starting_from("powersgd:rank=1", &[2, 3], &[1.0, 0.0, 0.0]);
        let (message, decoded) = sender.send(1, &gradient);
        assert_eq!(f32s(&message), [9.0, 12.0, 15.0, 0.0, 20.0]);
        assert_eq!(decoded, gradient);
        assert_eq!(sender.residual(), [0.0; 6]);
        // Q / 25 for the next step.
        assert_eq!(sender.kept(), [0.6, 0.0, 0.8]);
    }

    #[test]
    fn what_lies_across_the_factor_is_left() {
        // (4, −3), orthogonal to P, in the second column, which Q misses: C = (3, 4)·(3, 4, 0)ᵀ +
        // (4, −3)·(0, 1, 0)ᵀ.
        let gradient = [9.0, 16.0, 0.0, 12.0, 13.0, 0.0];
        let mut sender = Sender::starting_from("powersgd:rank=1", &[2, 3], &[1.0, 0.0, 0.0]);
        let (message, decoded) = sender.send(1, &gradient);
        assert_eq!(f32s(&message), [9.0, 12.0, 15.0, 20.0, 0.0]);
        assert_eq!(decoded, [9.0, 12.0, 0.0, 12.0, 16.0, 0.0]);
        assert_eq!(sender.residual(), [0.0, 4.0, 0.0, 0.0, -3.0, 0.0]);
        assert_eq!(sender.kept(), [0.6, 0.8, 0.0]);
    }

    #[test]
    fn columns_beyond_the_rank_of_the_matrix_are_zero() {
        // C = (3, 4, 0, 0, 0)·(1, 0, 0, 0)ᵀ; both columns of P are along (3, 4), so the second
        // drops out.
        let mut gradient = [0.0; 20];
        (gradient[0], gradient[4]) = (3.0, 4.0);
        let start = [1.0, 0.0, 0.0, 0.0, 2.0, 0.0, 0.0, 0.0];
        let mut sender = Sender::starting_from("powersgd:rank=2", &[5, 4], &start);
        let (message, decoded) = sender.send(1, &gradient);
        let p = [3.0, 4.0, 0.0, 0.0, 0.0, 6.0, 8.0, 0.0, 0.0, 0.0];
        let q = [5.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        assert_eq!(f32s(&message), [&p[..], &q].concat());
        assert_eq!(decoded, gradient);
        assert_eq!(sender.kept(), [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn what_is_left_of_the_largest_floats_is_finite() {
        // P is the second column. Its product with Q has the opposite sign to the first element,
        // which is near the largest float.
        let mut gradient = [0.0; 16];
        (gradient[0], gradient[4]) = (3.4e38, 3.4e38);
        (gradient[1], gradient[5]) = (0.574e38, -0.819e38);
        let mut sender = Sender::starting_from("powersgd:rank=1", &[4, 4], &[0.0, 1.0, 0.0, 0.0]);
        for step in 1..4 {
            sender.send(step, if step == 1 { &gradient } else { &[0.0; 16] });
            assert!(sender.residual().iter().all(|x| x.is_finite()), "{step}");
        }
    }

    #[test]
    fn two_ranks_worked_by_hand() {
        // The matrix with the orthogonal part, and (3, 4)·(−1, 0, 1)ᵀ: P is (9, 12) and (−3, −4),
        // with the mean (3, 4).
        let gradients = [[9.0, 16.0, 0.0, 12.0, 13.0, 0.0], [-3.0, 0.0, 3.0, -4.0, 0.0, 4.0]];
        let addends =
            [[[9.0, 12.0, 0.0], [-3.0, -4.0, 0.0]], [[15.0, 20.0, 0.0], [-5.0, 0.0, 5.0]]];
        // The second factors' mean, and its product with (3/5, 4/5).
        let means = [3.0, 4.0, 5.0, 10.0, 2.5];
        let decoded = [3.0, 6.0, 1.5, 4.0, 8.0, 2.0];
        let left = [[0.0, 4.0, 0.0, 0.0, -3.0, 0.0], [0.0; 6]];
        for rank in 0..2 {
            let start = [1.0, 0.0, 0.0];
            let sender = Sender::starting_from("powersgd:rank=1", &[2, 3], &start);
            let (Sender { mut encoder, tensor }, mut addend) = (sender, Vec::new());
            for (round, known) in [(0, 0), (1, 2)] {
                let floats = Floats::F32(&gradients[rank]);
                let means = &means[..known];
                assert!(
                    encoder
                        .contribute(&tensor, 7, round, floats, means, &mut addend)
                        .unwrap()
                        .is_some()
                );
                assert_eq!(addend, addends[round][rank][..2 + round]);
            }
            let mut out = [0.0; 6];
            encoder.conclude(&tensor, 7, &means, &mut out).unwrap();
            assert_eq!(out, decoded);
            assert_eq!(encoder.residual("t").unwrap(), left[rank]);
        }
    }

    #[test]
    fn with_plain_memory_rounds_forget_nothing() {
        // The steps of a sender with special residual weights, and of a sender with the usual ones.
        let left = |spec: &str| {
            let sender = Sender::starting_from(spec, &[2, 3], &[1.0, 0.0, 0.0]);
            let Sender { encoder, tensor } = sender;
            let mut encoder = encoder.with_plain_memory();
            for (step, gradient) in
                [(7, [9.0, 16.0, 0.0, 12.0, 13.0, 0.0]), (8, [1.0, 0.0, 2.0, 0.0, 3.0, 0.0])]
            {
                let (mut means, mut addend) = (Vec::new(), Vec::new());
                for round in 0..2 {
                    let floats = Floats::F32(&gradient);
                    encoder.contribute(&tensor, step, round, floats, &means, &mut addend).unwrap();
                    means.extend_from_slice(&addend);
                }
                encoder.conclude(&tensor, step, &means, &mut [0.0; 6]).unwrap();
            }
            encoder.residual("t").unwrap().to_vec()
        };
        assert_eq!(left("powersgd:rank=1,beta=0.5,gamma=2"), left("powersgd:rank=1"));
    }

    #[test]
    fn a_device_is_given_the_factors() {
        let start = [1.0, 0.0, 0.0];
        let sender = Sender::starting_from("powersgd:rank=1", &[2, 3], &start);
        let Sender { mut encoder, tensor } = sender;
        // As for the two ranks above. No number of P exceeds 1.
        let means = [3.0, 4.0, 5.0, 10.0, 2.5];
        let first = vec![f32::MAX, 1.0, 0.0, 0.0];
        let second = vec![f32::MAX / 2.0, 0.6, 0.8];
        for (round, known, len, expected) in [(0, 0, 2, first), (1, 2, 3, second)] {
            let mut form = Vec::new();
            let asked = encoder.device_round(&tensor, 7, round, &means[..known], &mut form);
            assert_eq!(asked.unwrap(), Some(Round::mean(len)));
            assert_eq!(f32s(&form), expected);
        }
        let mut form = Vec::new();
        assert_eq!(encoder.device_round(&tensor, 7, 2, &means, &mut form).unwrap(), None);
        let mut infinite = means;
        infinite[4] = f32::INFINITY;
        for wrong in [&means[..4], &infinite] {
            assert!(encoder.device_conclude(&tensor, 7, wrong, &mut Vec::new()).is_err());
        }
        encoder.device_conclude(&tensor, 7, &means, &mut form).unwrap();
        assert_eq!(f32s(&form), [0.6, 0.8, 5.0, 10.0, 2.5]);
        assert!(encoder.residual("t").is_none(), "the device has the residual");
        // The next step starts from Q of norm 1.
        let kept = Sender { encoder, tensor }.kept();
        close(&kept, &[10.0 / 525f32.sqrt(), 20.0 / 525f32.sqrt(), 5.0 / 525f32.sqrt()], 1e-6);
    }
}
