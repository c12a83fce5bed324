//! Budgets below one bit: one bit for each of a random sample of the elements.

use gradwire_bits::{DecodeError, try_resize};

use super::Eden;
use crate::compressors::sparsification::fraction;
use crate::compressors::sparsification::randomk::RandomK;
use crate::numeric::take::take_at_positions;
use crate::tools::give_back;
use crate::wire::positions::MOST_ELEMENTS;
use crate::{
    Context, Coverage, DecodeArgs, EncodeArgs, Floats, Residual, SCRATCH, Source, Workspace,
};

/// The stream of the positions. The stream of the signs is 0.
const POSITIONS: u32 = 1;

/// A random sample, and how it is encoded.
pub(super) struct Sample {
    positions: RandomK,
    one_bit: Eden,
}

/// The values of a decoded message, and the errors of an encoded one.
#[derive(Debug, Default)]
struct SampleBuffers {
    values: Vec<f32>,
    left: Vec<f32>,
    scratch: Vec<f32>,
}

impl Eden {
    /// The sample for a budget below one bit; `None` for other budgets.
    pub(super) fn sample(&self) -> Option<Sample> {
        let Self { bits, huffman } = *self;
        let positions = RandomK { ratio: bits, unbiased: false, independent: true };
        (bits < 1.0).then_some(Sample { positions, one_bit: Self { bits: 1.0, huffman } })
    }
}

impl Sample {
    fn kept(&self, elements: usize) -> usize {
        fraction::kept(self.positions.ratio, elements)
    }

    fn draw(&self, context: &Context<'_>, elements: usize, workspace: &mut Workspace) {
        self.positions.draw(POSITIONS, context, elements, workspace);
    }

    pub(super) fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let elements = source.len();
        self.draw(context, elements, workspace);
        let mut buffers = std::mem::take(workspace.own::<SampleBuffers>());
        let SampleBuffers { left, scratch, .. } = &mut buffers;
        // Error feedback sends the other elements later. Without it, the sent ones stand for all.
        let keeps_residual = source.keeps_residual();
        let share = elements as f64 / self.kept(elements).max(1) as f64;
        let factor = if keeps_residual { 1.0 } else { share as f32 };
        take_at_positions(source, factor, workspace);
        let values = std::mem::take(&mut workspace.values);
        left.clear();
        left.resize(if keeps_residual { values.len() } else { 0 }, 0.0);
        scratch.resize(SCRATCH, 0.0);
        let feedback = keeps_residual.then_some((Residual::PLAIN, &mut left[..]));
        let mut sample = Source::new(Floats::F32(&values), feedback, scratch)
            .expect("the source and its multiples are finite");
        self.one_bit.encode_all(EncodeArgs { source: &mut sample, context, workspace, message });
        give_back(source, &workspace.positions, left, &mut workspace.helpers);
        workspace.values = values;
        *workspace.own() = buffers;
        Coverage::Positions
    }

    pub(super) fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, context, weight, workspace, out } = args;
        let mut values = std::mem::take(&mut workspace.own::<SampleBuffers>().values);
        let decoded = self.decode(message, context, out.len(), workspace, &mut values);
        if decoded.is_ok() {
            let Workspace { positions, helpers, .. } = &mut *workspace;
            helpers.add_at(positions, &values, out, |value| weight * value);
        }
        workspace.own::<SampleBuffers>().values = values;
        decoded
    }

    /// Replaces `values` by the values of a message, and leaves its positions in the workspace.
    fn decode(
        &self,
        message: &[u8],
        context: &Context<'_>,
        elements: usize,
        workspace: &mut Workspace,
        values: &mut Vec<f32>,
    ) -> Result<(), DecodeError> {
        values.clear();
        try_resize(values, self.kept(elements), 0.0)?;
        self.one_bit.decode_all(DecodeArgs {
            message,
            context,
            weight: 1.0,
            workspace,
            out: values,
        })?;
        self.positions.make_room(elements, workspace)?;
        self.draw(context, elements, workspace);
        Ok(())
    }

    pub(super) fn value_bits(&self) -> Option<u32> {
        self.one_bit.properties().value_bits
    }

    pub(super) fn max_len(&self, elements: usize) -> usize {
        self.one_bit.max_len_of_all(self.kept(elements))
    }

    /// The most elements of a tensor whose sample has up to `most` elements.
    pub(super) fn most_elements(&self, most: usize) -> usize {
        if most == 0 { 0 } else { fraction::largest(self.positions.ratio, most).min(MOST_ELEMENTS) }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{skewed, square};
    use crate::BLOCK;
    use crate::compressors::testing::{encode, residual, round_trip};

    #[test]
    fn errors_are_those_of_one_bit_of_a_sample() {
        let gradient = skewed(40 * BLOCK);
        let whole = square(gradient.iter().copied());
        for bits in [0.1, 0.5, 0.9] {
            let decoded = round_trip(&format!("eden:bits={bits}"), &gradient);
            let found = square(gradient.iter().zip(decoded).map(|(x, y)| x - y)) / whole;
            let expected = std::f64::consts::PI / (2.0 * bits) - 1.0;
            assert!((found / expected - 1.0).abs() < 0.1, "{bits} bits: {found}, not {expected}");
            let found = square(residual(&format!("eden:bits={bits},ef=on"), &gradient)) / whole;
            let expected = 1.0 - bits * std::f64::consts::FRAC_2_PI;
            assert!((found / expected - 1.0).abs() < 0.05, "{bits} bits: {found}, not {expected}");
        }
    }

    #[test]
    fn messages_have_one_bit_of_the_sampled_elements() {
        // 0.3·10 000 elements: a block of 2048, and 952 in a block of 1024.
        assert_eq!(encode("eden:bits=0.3", &skewed(10_000)).len(), 2 * 4 + (2048 + 1024) / 8);
        assert_eq!(encode("eden:bits=0.1", &[3.0]).len(), 5);
        assert!(encode("eden:bits=0.1", &[]).is_empty());
    }

    #[test]
    fn the_sampled_elements_stand_for_all() {
        // Two of four equal elements, each doubled; rotated and quantized alike, they are exact.
        let decoded = round_trip("eden:bits=0.5", &[1.0; 4]);
        let sum: f32 = decoded.iter().sum();
        assert!((3.9..4.1).contains(&sum), "{decoded:?}");
        // With error feedback the residual is the unsent part.
        let kept = residual("eden:bits=0.5,ef=on", &[1.0; 4]);
        let sent = round_trip("eden:bits=0.5,ef=on", &[1.0; 4]);
        kept.iter().zip(&sent).for_each(|(kept, sent)| assert!((kept + sent - 1.0).abs() < 1e-6));
        let all = round_trip("eden:bits=0.5", &[f32::MAX; 4]);
        assert!(all.iter().all(|x| x.is_finite()), "{all:?}");
    }
}
