//! `acp-sgd`: one thin factor per step, `P` and `Q` in turn.
//!
//! `C` is the corrected gradient, rows × columns. One step computes `P = C·Q` with an orthonormal
//! `Q`, the next one `Q = Cᵀ·P` with an orthonormal `P`; the gradient becomes `P·Qᵀ`. The factor
//! that a step multiplies by is the orthonormalised mean from the step before, so all ranks have
//! it. Two steps together send as much as one step of `powersgd`, and each waits for one all-reduce
//! instead of two.
//!
//! - **Message**: the new factor, `f32` column by column: 32·rank·rows or 32·rank·columns bits.
//!   Tensors of fewer than two dimensions, and tensors that two factors would not shrink, are sent
//!   uncompressed.
//! - **Aggregation**: one round of all-reduce. Under other exchanges each rank alternates on its
//!   own. Receivers lack its other factor, so both are gathered, `P` first, and a message is as
//!   long as with `powersgd`.
//! - **Range**: rank 1 to 32.
//! - **Error feedback**: on. The residual of a rank is `C − P·Qᵀ`, with its own new factor; the
//!   residuals of all ranks add up to the error of the mean.
//! - **Draws**: `Q` starts uniform in [−1, 1), orthonormalised, the same on every rank; a column
//!   that becomes zero is drawn again.
//! - **Deviations**: the paper also starts `P` at random, but never uses it. A rank whose product
//!   would overflow sends zeros; its residual keeps everything.
//! - **State**: the orthonormal factor, and a mark for `P` or `Q`, in an array of rank·max(rows,
//!   columns) + 1 elements.
//! - **Cost**: 8 bytes per element for the sum, 4 for the new factor, 8 for the residual, and rank
//!   multiplications per element in each of two matrix products (`powersgd`: three).
//!
//! Reference: Zhang, Shi, Chu, Li: "Evaluation and Optimization of Gradient Compression for
//! Distributed Deep Learning", ICDCS 2023, Algorithm 1.

use gradwire_bits::DecodeError;

use super::factors::{Factors, check_unit, revive};
use crate::compressors::single_rank::SingleRank;
use crate::multi_round::{self, KeptValues, MultiRound, RankState, Round, RoundContext};
use crate::numeric::matrix::{MAX_RANK, orthonormalise, times, transposed_times};
use crate::parameters::whole;
use crate::{Context, Coverage, Entry, Family, Guarantee, Passes, Workspace};

pub(crate) static ENTRY: Entry = Entry {
    id: "acp-sgd",
    summary: "one of two thin factors at each step, in one all-reduce",
    formula: "Ĉ = P·Qᵀ; P = C·orthonormal(Q_before) and Q = Cᵀ·orthonormal(P_before) in turn",
    family: Family::LowRank,
    error_feedback: true,
    examples: &["rank=2", "rank=12", "rank=1"],
    reference: "Zhang et al., ICDCS 2023",
    payload: "rank × (rows or columns) f32; gathered rank × (rows + columns)",
    passes: Passes { after: 1, ..Passes::ONE },
    ..Entry::of::<SingleRank<AcpSgd>>(|_| {
        Guarantee::Neither(
            "the product of factors from an earlier step may be orthogonal to the tensor",
        )
    })
};

crate::parameters! {
    /// Subspace iteration, half a step at a time.
    pub struct AcpSgd {
        /// columns of the factors
        pub rank: usize = whole(4, 1..=MAX_RANK as u64),
    }
}

/// The kept factor; the next step multiplies by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Holds {
    Q,
    P,
}

/// The new factor of a step.
#[derive(Debug, Default)]
struct Product(Vec<f32>);

impl AcpSgd {
    /// The factor in the array, which ends with 1 for `P`. Before the first step the array is zero,
    /// and stands for a `Q` that is yet to be drawn.
    fn holds(kept: &[f32]) -> Holds {
        if kept.last() == Some(&1.0) { Holds::P } else { Holds::Q }
    }

    /// Numbers in the kept and in the new factor.
    fn lens(factors: &Factors, holds: Holds) -> [usize; 2] {
        match holds {
            Holds::Q => [factors.second(), factors.first()],
            Holds::P => [factors.first(), factors.second()],
        }
    }

    /// Draws columns of zeros (initially all) and orthonormalises the factor.
    fn prepare(factor: &mut [f32], length: usize, context: &Context<'_>) {
        if factor.chunks_exact(length).any(|column| column.iter().all(|&x| x == 0.0)) {
            revive(factor, length, context);
            orthonormalise(factor, length);
        }
    }

    /// Computes the new factor, and subtracts its product with the kept one from the gradient.
    fn multiply(&self, factors: &Factors, state: &mut RankState<'_>) -> Holds {
        let Factors { dimensions: [rows, columns], rank } = *factors;
        let holds = Self::holds(state.kept);
        let [held, _] = Self::lens(factors, holds);
        let operand = &mut state.kept[..held];
        let Workspace { own, helpers, .. } = &mut *state.workspace;
        let Product(product) = own.get();
        product.clear();
        match holds {
            Holds::Q => {
                Self::prepare(operand, columns, state.context);
                times(state.corrected, rows, operand, rank, product, helpers);
                factors.keep_in_range(operand, product, state.corrected);
                factors.subtract(product, operand, state.corrected, helpers);
            }
            Holds::P => {
                Self::prepare(operand, rows, state.context);
                transposed_times(state.corrected, columns, operand, rank, product, helpers);
                factors.keep_in_range(operand, product, state.corrected);
                factors.subtract(operand, product, state.corrected, helpers);
            }
        }
        holds
    }
}

/// A factor, padding to the length of the longer one, and a mark of which factor it is.
impl KeptValues for AcpSgd {
    fn len(&self, shape: &[usize]) -> usize {
        Factors::of(shape, self.rank).map_or(0, |f| f.first().max(f.second()) + 1)
    }

    fn check(&self, values: &[f32]) -> Result<(), String> {
        let Some((mark, factor)) = values.split_last() else { return Ok(()) };
        check_unit(factor)?;
        match [0.0, 1.0].contains(mark) {
            true => Ok(()),
            false => Err(format!("its last element is {mark}, but must be 0 or 1")),
        }
    }
}

impl MultiRound for AcpSgd {
    fn kept(&self) -> Option<&dyn KeptValues> {
        Some(self)
    }

    fn round(&self, context: &RoundContext<'_>, round: usize) -> Option<Round> {
        let factors = Factors::of(context.context.shape, self.rank);
        let len = match (factors, context.single_rank, round) {
            (None, _, 0) => context.context.shape.iter().product(),
            (Some(factors), true, 0) => factors.first(),
            (Some(factors), true, 1) => factors.second(),
            (Some(factors), false, 0) => Self::lens(&factors, Self::holds(context.kept))[1],
            _ => return None,
        };
        Some(Round::mean(len))
    }

    fn contribute(&self, round: usize, state: &mut RankState<'_>, addend: &mut Vec<f32>) {
        let Some(factors) = Factors::of(state.context.shape, self.rank) else {
            return multi_round::contribute_raw(state, addend);
        };
        let holds = match round {
            0 => self.multiply(&factors, state),
            _ => Self::holds(state.kept),
        };
        // A single rank sends both factors, P in round 0 and Q in round 1.
        let sends_kept = state.single_rank && (holds == Holds::P) == (round == 0);
        let Product(product) = state.workspace.own();
        let [held, _] = Self::lens(&factors, holds);
        addend.extend_from_slice(if sends_kept { &state.kept[..held] } else { product });
    }

    fn settle(&self, state: &mut RankState<'_>) -> Coverage {
        let Some(factors) = Factors::of(state.context.shape, self.rank) else {
            return Coverage::All;
        };
        let [rows, columns] = factors.dimensions;
        let holds = Self::holds(state.kept);
        let new = match (state.single_rank, holds) {
            (false, _) => state.means,
            (true, Holds::Q) => factors.split(state.means).0,
            (true, Holds::P) => factors.split(state.means).1,
        };
        let (factor, rest) = state.kept.split_at_mut(new.len());
        factor.copy_from_slice(new);
        rest.fill(0.0);
        match holds {
            Holds::Q => {
                orthonormalise(factor, rows);
                rest[rest.len() - 1] = 1.0;
            }
            Holds::P => orthonormalise(factor, columns),
        }
        Coverage::All
    }

    fn decode_add(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        let Some(factors) = Factors::of(context.context.shape, self.rank) else {
            return multi_round::add_raw(means, weight, out);
        };
        let (p, q) = match (context.single_rank, Self::holds(context.kept)) {
            (true, _) => factors.split(means),
            (false, Holds::Q) => (means, &context.kept[..factors.second()]),
            (false, Holds::P) => (&context.kept[..factors.first()], means),
        };
        factors.check(p, q)?;
        factors.add(p, q, weight, out, &mut workspace.helpers);
        Ok(())
    }

    /// The number of elements of the square matrix whose factors have `message_len` bytes.
    fn max_elements(&self, message_len: usize) -> usize {
        super::factors::max_elements(self.rank, message_len)
    }
}

#[cfg(test)]
mod tests {
    use crate::Floats;
    use crate::compressors::testing::{Sender, f32s};

    #[test]
    fn two_messages_worked_by_hand() {
        // C = (3, 4)·(3, 0, 4)ᵀ, and Q = (1, 0, 0) to begin with: P = (9, 12), and Ĉ = P·Qᵀ is the
        // first column.
        let gradient = [9.0, 0.0, 12.0, 12.0, 0.0, 16.0];
        let mut sender = Sender::starting_from("acp-sgd:rank=1", &[2, 3], &[1.0, 0.0, 0.0, 0.0]);
        let (message, decoded) = sender.send(1, &gradient);
        assert_eq!(f32s(&message), [9.0, 12.0, 1.0, 0.0, 0.0]);
        assert_eq!(decoded, [9.0, 0.0, 0.0, 12.0, 0.0, 0.0]);
        assert_eq!(sender.residual(), [0.0, 0.0, 12.0, 0.0, 0.0, 16.0]);
        // P, orthonormal, and the mark of P.
        assert_eq!(sender.kept(), [0.6, 0.8, 0.0, 1.0]);
        // C and the residual: (3, 4)·(3, 0, 8)ᵀ. Q = 5·(3, 0, 8), and nothing is left.
        let (message, decoded) = sender.send(2, &gradient);
        assert_eq!(f32s(&message), [0.6, 0.8, 15.0, 0.0, 40.0]);
        assert_eq!(decoded, [9.0, 0.0, 24.0, 12.0, 0.0, 32.0]);
        assert_eq!(sender.residual(), [0.0; 6]);
        let norm = 73f64.sqrt();
        assert_eq!(sender.kept(), [(3.0 / norm) as f32, 0.0, (8.0 / norm) as f32, 0.0]);
    }

    #[test]
    fn two_ranks_in_all_reduce_worked_by_hand() {
        // With Q = (1, 0, 0) the first factors are (9, 12) and (−3, −4), in the mean (3, 4).
        let gradients = [[9.0, 0.0, 12.0, 12.0, 0.0, 16.0], [-3.0, 0.0, 3.0, -4.0, 0.0, 4.0]];
        let addends = [[9.0, 12.0], [-3.0, -4.0]];
        let left = [[0.0, 0.0, 12.0, 0.0, 0.0, 16.0], [0.0, 0.0, 3.0, 0.0, 0.0, 4.0]];
        // Then with P = (3/5, 4/5): Q of (3, 4)·(3, 0, 8)ᵀ and of (3, 4)·(−1, 0, 2)ᵀ.
        let second = [[15.0, 0.0, 40.0], [-5.0, 0.0, 10.0]];
        for rank in 0..2 {
            let sender = Sender::starting_from("acp-sgd:rank=1", &[2, 3], &[1.0, 0.0, 0.0, 0.0]);
            let (Sender { mut encoder, tensor }, mut addend) = (sender, Vec::new());
            let floats = Floats::F32(&gradients[rank]);
            assert!(encoder.contribute(&tensor, 7, 0, floats, &[], &mut addend).unwrap().is_some());
            assert_eq!(addend, addends[rank]);
            let means = [3.0, 4.0];
            assert!(
                encoder.contribute(&tensor, 7, 1, floats, &means, &mut addend).unwrap().is_none()
            );
            let mut out = [0.0; 6];
            encoder.conclude(&tensor, 7, &means, &mut out).unwrap();
            assert_eq!(out, [3.0, 0.0, 0.0, 4.0, 0.0, 0.0]);
            assert_eq!(encoder.residual("t").unwrap(), left[rank]);
            assert!(encoder.contribute(&tensor, 8, 0, floats, &[], &mut addend).unwrap().is_some());
            assert_eq!(addend, second[rank]);
            let mut out = [0.0; 6];
            encoder.conclude(&tensor, 8, &[5.0, 0.0, 25.0], &mut out).unwrap();
            // P is rounded.
            let expected = [3.0, 0.0, 15.0, 4.0, 0.0, 20.0];
            out.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-5, "{out:?}"));
            assert_eq!(encoder.residual("t").unwrap(), [0.0; 6]);
        }
    }

    #[test]
    fn the_iteration_goes_on_over_steps() {
        // Two directions, 10 and 9: many half steps find the greater.
        let mut gradient = vec![0.0; 64];
        (gradient[0], gradient[9]) = (10.0, 9.0);
        let mut sender = Sender::new("acp-sgd:rank=1,ef=off", &[8, 8]);
        let (_, decoded) = (0..120).map(|step| sender.send(step, &gradient)).last().unwrap();
        gradient[9] = 0.0;
        decoded.iter().zip(&gradient).for_each(|(a, b)| assert!((a - b).abs() <= 1e-3));
    }
}
