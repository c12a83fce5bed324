//! Device forms of methods with two thin factors: the host makes factors, and the device multiplies
//! by them.
//!
//! - **A round**: the largest absolute value allowed in an addend (an addend beyond it, or with
//!   NaN, becomes all zeros). Then, in the first round, the factor that multiplies `C`; in the
//!   second round `P` and, unless it is `P`, the factor that multiplies `Cᵀ`. After the second
//!   addend, `Q`, the device subtracts `P·Qᵀ` from `C`.
//! - **A transcript**: `P` and `Q`; the device adds `P·Qᵀ`. For equal bits on all ranks it adds the
//!   products in order of the columns, and rounds each product and each sum.
//! - **A tensor that is sent uncompressed**: nothing; the addend is `C`, and the residual becomes
//!   zero. The transcript is the mean.
//!
//! Numbers are `f32`, factors are stored column by column.

use gradwire_bits::DecodeError;

use super::factors::{Alternation, FactorBuffers, Factors};
use crate::Workspace;
use crate::multi_round::DeviceRounds;
use crate::multi_round::{RankState, RoundContext};
use crate::wire::fields::{put_f32, put_f32s};

impl<M: Alternation> DeviceRounds for M {
    fn round(&self, round: usize, state: &mut RankState<'_>, form: &mut Vec<u8>) {
        let Some(factors) = Factors::of(state.context.shape, self.rank()) else { return };
        let buffers: &mut FactorBuffers = state.workspace.own();
        if round == 0 {
            self.prepare_first(&factors, state.kept, state.context, buffers);
            put_f32(f32::MAX, form);
            put_f32s(&buffers.operand, form);
        } else {
            self.prepare_second(&factors, state.means, buffers);
            put_f32(factors.largest_second(&buffers.p), form);
            put_f32s(&buffers.p, form);
            if buffers.operand != buffers.p {
                put_f32s(&buffers.operand, form);
            }
        }
    }

    fn transcript(
        &self,
        means: &[f32],
        context: &RoundContext<'_>,
        workspace: &mut Workspace,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        form.try_reserve(4 * means.len())?;
        let Some(factors) = Factors::of(context.context.shape, self.rank()) else {
            put_f32s(means, form);
            return Ok(());
        };
        let (p, q) = self.checked(&factors, means, workspace.own())?;
        put_f32s(p, form);
        put_f32s(q, form);
        Ok(())
    }
}
