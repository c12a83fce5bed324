//! `demo`: the largest coefficients of a cosine transform of the momentum, by block; the sign of
//! their mean is the step.
//!
//! - **Momentum**: `δ ← m·δ + g`. The content of a message is subtracted from δ: this is error
//!   feedback with a residual of weight m. Ranks do not share momentum, and the optimizer needs
//!   none.
//! - **Blocks**: a tensor of two or more dimensions is a matrix: its first dimension by the product
//!   of the others. The sides of its blocks are the largest divisors of its dimensions up to 64. A
//!   vector is a matrix of one row.
//! - **Coefficients**: the orthonormal DCT-II in both directions. Each block sends the k
//!   coefficients with the largest absolute values, at the lowest positions among equals; no zeros.
//! - **Mean**: each coefficient is averaged over the ranks that sent it. The averages are
//!   transformed back, and the gradient of the step is the sign of every element (0 for 0).
//! - **Message**: a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw), their number as
//!   varint, the values and the positions. A coefficient has the position of the element at its
//!   place in the block. Values are f32, or with `values=sign` a bit each: then they decode to ±1,
//!   but their full values are subtracted from δ.
//! - **Range**: k from 1 to 4096; up to 2³² − 1 elements.
//! - **Error feedback**: on. Without it, the gradient itself is transformed, and no residual is
//!   kept.
//! - **Limits**: if max|c| is above 2¹⁰⁰, nothing is sent.
//! - **Deviations**: the paper multiplies g by the learning rate before adding it to δ; this
//!   changes no sign while the learning rate is constant. Dimensions with only small divisors, such
//!   as primes, make small blocks that send all coefficients; published code has the same rule.
//! - **Cost**: 8 bytes per element for the maximum, 12 to gather the tensor, 2·64 multiplications
//!   per element to transform, up to as many to transform back (zeros are skipped), and a sort of
//!   the positions of each row of blocks. Receivers transform back once, whatever the number of
//!   ranks.
//!
//! Reference: Peng, Quesnelle, Kingma: "DeMo: Decoupled Momentum Optimization", arXiv:2411.19870,
//! 2024, Algorithm 1.

mod blocks;
#[cfg(test)]
mod tests;

use std::ops::Bound::{Excluded, Included};
use std::sync::Arc;

use gradwire_bits::{DecodeError, bitmap, try_resize, varint};

use self::blocks::{Bases, Blocks, SquareBlock};
use crate::accumulator::{Accumulator, add_sent};
use crate::memories::{Encoding, Memory, Step};
use crate::numeric::chunks::{Largest, positions_in_parts};
use crate::parameters::{Parameters, either, real, whole};
use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::{
    Aggregation, Compressor, Context, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee,
    NonFinite, Residual, Unit, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "demo",
    summary: "the largest coefficients of a cosine transform of the momentum; the step uses the signs",
    formula: "x̂ = inverse DCT of the k largest coefficients of each block of δ, δ ← m·δ + g; then δ ← δ − x̂; the step is the sign of the mean",
    family: Family::Sparsification,
    error_feedback: true,
    examples: &["k=4096", "k=1,values=sign", "k=8,ef=off"],
    reference: "Peng et al., arXiv:2411.19870",
    payload: "code u8, count varint, values f32 or signs, positions",
    ..Entry::new(
        Params::PARAMETERS,
        |_| Guarantee::Neither("the step uses only the signs of the sum"),
        |values| {
            let Params { k, momentum, signs } = Params::new(values);
            Arc::new(Demo { k, signs, memory: Decoupled { momentum } })
        },
    )
};

crate::parameters! {
    /// The parameters of decoupled momentum.
    struct Params {
        /// number of coefficients to send per block
        k: usize = whole(32, 1..=4096),
        /// weight of the previous momentum
        momentum: f32 = real(0.999, Included(0.0), Excluded(1.0)),
        /// coefficients as f32, or their signs
        signs("values"): bool = either(&["f32", "sign"]),
    }
}

/// Decoupled momentum.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Demo {
    k: usize,
    signs: bool,
    memory: Decoupled,
}

/// The momentum without the content of messages: a residual with a weight.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Decoupled {
    momentum: f32,
}

impl Memory for Decoupled {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let weights = Residual { beta: self.momentum, gamma: 1.0 };
        let feedback = step.feedback.map(|(_, momentum)| (weights, momentum));
        let source = encoding.source(step.input.gradient, feedback, step.scratch)?;
        encoding.encode(&mut source.with_kept(step.kept))
    }

    fn replaces_momentum(&self) -> bool {
        self.momentum > 0.0
    }
}

/// The largest value that a tensor may have, and a bound on coefficients in messages.
const LARGEST: [f32; 2] = [1.267_650_6e30, 1e33];

/// The buffers that only this method uses.
#[derive(Debug, Default)]
struct TransformBuffers {
    /// The sent coefficients, at their positions.
    coefficients: Vec<f32>,
    largest: Largest,
    bases: Bases,
}

impl Demo {
    /// Collects the coefficients to send, with their positions in increasing order, and subtracts
    /// them. The helpers share the blocks.
    fn extract(&self, c: &mut [f32], blocks: Blocks, workspace: &mut Workspace) {
        let Workspace { positions, own, helpers, .. } = workspace;
        let TransformBuffers { coefficients, largest, bases } = own.get();
        // Without memory for the matrices nothing is sent.
        if bases.prepare(&blocks).is_err() {
            return;
        }
        coefficients.resize(c.len(), 0.0);
        positions.clear();
        let parts = helpers.parts(c.len(), blocks.unit());
        if parts.is_one() {
            return self.extract_part((c, coefficients), 0, blocks, (bases, largest), positions);
        }
        let each = c.chunks_mut(parts.len()).zip(coefficients.chunks_mut(parts.len()));
        positions_in_parts(parts, each, helpers, positions, |start, (c, coefficients), found| {
            let (blocks, largest) = (blocks.of_part(c.len()), &mut Largest::default());
            self.extract_part((c, coefficients), start, blocks, (bases, largest), found);
        });
    }

    /// [`extract`](Self::extract) for a part that begins with the element at `base`.
    fn extract_part(
        &self,
        (c, coefficients): (&mut [f32], &mut [f32]),
        base: usize,
        blocks: Blocks,
        (bases, largest): (&Bases, &mut Largest),
        positions: &mut Vec<u32>,
    ) {
        let mut transform = bases.transform(&blocks);
        let (mut block, mut all): (SquareBlock, SquareBlock) = ([0.0; _], [0.0; _]);
        let (block, all) = (&mut block[..blocks.size()], &mut all[..blocks.size()]);
        for top in blocks.tops() {
            let first = positions.len();
            for start in blocks.starts(top) {
                blocks.read(c, start, block);
                transform.forward(block, all);
                block.fill(0.0);
                for (at, value) in largest.take(all, self.k.min(all.len())) {
                    let place = blocks.place(start, at);
                    positions.push((base + place) as u32);
                    (coefficients[place], block[at]) = (value, value);
                }
                transform.inverse(block, all);
                blocks.add(all, -1.0, start, c);
            }
            positions[first..].sort_unstable();
        }
    }

    /// Reads a message: the positions are in the workspace, the values in its buffer of the same
    /// name.
    fn read(
        &self,
        mut message: &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { positions, values, helpers, .. } = workspace;
        let (code, count) = positions::take_header(&mut message, elements)?;
        positions::make_room(count, elements, values)?;
        if self.signs {
            let bits = fields::take(&mut message, bitmap::len(count))?;
            if count % 8 > 0 && bits[count / 8] >> (count % 8) != 0 {
                return Err(DecodeError::Corrupt("the padding after the last sign is not zero"));
            }
            let sign = |at: usize| if bits[at / 8] >> (at % 8) & 1 == 1 { -1.0 } else { 1.0 };
            values.extend((0..count).map(sign));
        } else {
            for _ in 0..count {
                let value = fields::take_finite(&mut message)?;
                if value.abs() > LARGEST[1] {
                    return Err(DecodeError::Corrupt("a coefficient is too large"));
                }
                values.push(value);
            }
        }
        code.decode(message, count, elements, positions, helpers)
    }
}

/// The sign of each element.
fn signs(mean: &mut [f32]) {
    mean.iter_mut().for_each(|x| *x = if *x == 0.0 { 0.0 } else { x.signum() });
}

impl Compressor for Demo {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let largest = source.abs_max();
        let mut spare = std::mem::take(&mut workspace.block);
        let (c, _) = source.take_all(&mut spare, workspace);
        workspace.positions.clear();
        if largest <= LARGEST[0] && !c.is_empty() {
            self.extract(c, Blocks::of(context.shape, c.len()), workspace);
        }
        let Workspace { positions, own, helpers, .. } = &mut *workspace;
        let TransformBuffers { coefficients, .. } = own.get();
        let code = PositionCode::shortest(positions, c.len());
        positions::put_header(code, positions.len(), message);
        let values = positions.iter().map(|&at| coefficients[at as usize]);
        if self.signs {
            let start = message.len();
            message.resize(start + bitmap::len(positions.len()), 0);
            for (at, value) in values.enumerate() {
                message[start + at / 8] |= u8::from(value < 0.0) << (at % 8);
            }
        } else {
            values.for_each(|value| fields::put_f32(value, message));
        }
        code.encode(positions, c.len(), helpers, message);
        workspace.block = spare;
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, context, weight, workspace, out } = args;
        let mut sums = std::mem::take(&mut workspace.block);
        sums.clear();
        let decoded = try_resize(&mut sums, self.sums(&[out.len()]), 0.0).and_then(|()| {
            let (workspace, sums) = (&mut *workspace, &mut sums[..]);
            let args = DecodeArgs { message, context, weight: 1.0, workspace, out: sums };
            self.accumulate(args)
        });
        let decoded = decoded.and_then(|()| self.finish(&sums, context, weight, workspace, out));
        workspace.block = sums;
        decoded
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&self.memory)
    }

    fn accumulator(&self) -> Option<&dyn Accumulator> {
        Some(self)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Vote(signs)
    }

    fn max_len(&self, elements: usize) -> usize {
        let values = elements.saturating_mul(4);
        values.saturating_add(1 + varint::len(elements as u64) + bitmap::len(elements))
    }
}

impl Accumulator for Demo {
    fn sums(&self, shape: &[usize]) -> usize {
        2 * shape.iter().product::<usize>()
    }

    fn accumulate(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        self.read(message, out.len() / 2, workspace)?;
        let Workspace { positions, values, helpers, .. } = workspace;
        add_sent(out, weight, (positions, values), |value| value, helpers);
        Ok(())
    }

    fn finish(
        &self,
        sums: &[f32],
        context: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        if out.is_empty() {
            return Ok(());
        }
        let blocks = Blocks::of(context.shape, out.len());
        let Workspace { own, helpers, .. } = workspace;
        let TransformBuffers { bases, .. } = own.get();
        bases.prepare(&blocks)?;
        let (values, weights) = sums.split_at(out.len());
        let unit = Unit { items: blocks.unit(), elements: blocks.unit() };
        helpers.add_in_parts(values, unit, out, |first, values, out| {
            let (blocks, weights) = (blocks.of_part(out.len()), &weights[first..]);
            let mut transform = bases.transform(&blocks);
            let (mut block, mut back): (SquareBlock, SquareBlock) = ([0.0; _], [0.0; _]);
            let (block, back) = (&mut block[..blocks.size()], &mut back[..blocks.size()]);
            for start in blocks.tops().flat_map(|top| blocks.starts(top)) {
                blocks.read(values, start, block);
                blocks.read(weights, start, back);
                for (value, &weight) in block.iter_mut().zip(&*back) {
                    *value = if weight > 0.0 { *value / weight } else { 0.0 };
                }
                transform.inverse(block, back);
                blocks.add(back, weight, start, out);
            }
        });
        Ok(())
    }
}
