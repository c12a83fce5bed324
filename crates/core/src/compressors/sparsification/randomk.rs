//! `randomk`: elements at random positions; the positions are not sent.
//!
//! - **Selection**: k = max(1, round(ratio·d)) positions without replacement, uniform over all sets
//!   of k. With `indices=shared` positions are drawn from the shared generator, keyed by (seed,
//!   tensor, step); with `indices=independent`, from the sender's generator, which is also keyed by
//!   the rank. Positions are drawn until k are different; they form a uniform set. If k is more
//!   than half of the elements, the omitted positions are drawn instead.
//! - **Message**: the values in order of position, k × f32. Positions are not sent: a receiver
//!   draws them again.
//! - **Aggregation**: linear if all ranks send the same positions. Messages with independent
//!   positions are gathered; their mean has up to ranks·k elements and a lower variance.
//! - **Range**: ratio in (0, 1]; up to 2³² − 1 elements. With `unbiased=on` values are multiplied
//!   by d / k (saturating at the largest finite number), so the expectation is the gradient, with
//!   variance (d / k − 1)·c². This needs `ef=off`.
//! - **Error feedback**: on, without the factor d / k. With the factor it is refused: each time an
//!   element is sent, its residual would grow by the factor d / k − 1.
//! - **Cost**: 8 bytes per element for the maximum, 12 to select, d bits of scratch, and a cache
//!   miss for each position.
//!
//! Reference: Stich, Cordonnier, Jaggi: "Sparsified SGD with Memory", NeurIPS 2018.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::{DecodeError, kernels};

use super::fraction;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::take::take_at_positions;
use crate::parameters::{Parameters, either, real};
use crate::wire::fields;
use crate::wire::positions::MOST_ELEMENTS;
use crate::{
    Aggregation, Compressor, Context, Coverage, DecodeArgs, Dtype, EncodeArgs, Entry, Family,
    Guarantee, Properties, Rng, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "randomk",
    summary: "elements at random positions",
    formula: "x̂ = c at k positions drawn at random (the same on all ranks, or not), 0 elsewhere, k = round(ratio·d)",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &[
        "ratio=0.1",
        "ratio=0.1,indices=independent",
        "ratio=0.9,unbiased=on,ef=off",
        "ratio=0.6",
        "indices=independent",
        "unbiased=on,ef=off",
    ],
    reference: "Stich, Cordonnier, Jaggi, NeurIPS 2018",
    payload: "k × f32",
    properties: |values| {
        let RandomK { unbiased, .. } = RandomK::new(values);
        Properties {
            value_bits: Some(32),
            draws_positions: true,
            // An element sent as d / k times itself leaves −(d / k − 1) times itself, which is
            // multiplied again when sent.
            allows_feedback: !unbiased,
            ..Properties::DEFAULT
        }
    },
    ..Entry::of::<RandomK>(|values| RandomK::new(values).guarantee())
};

crate::parameters! {
    /// Random sparsification.
    pub struct RandomK {
        /// fraction of elements to send
        pub ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
        /// multiply by d / k, so that the expectation is the gradient; only with ef=off
        pub unbiased: bool = either(&["off", "on"]),
        /// the same positions on all ranks, which makes messages linear, or different ones on each
        pub independent("indices"): bool = either(&["shared", "independent"]),
    }
}

impl RandomK {
    fn guarantee(&self) -> Guarantee {
        if self.unbiased { Guarantee::Unbiased } else { Guarantee::Contractive }
    }

    /// Reserves memory for the positions of a tensor, so [`draw`](Self::draw) allocates nothing.
    pub(in crate::compressors) fn make_room(
        &self,
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { positions, own, .. } = workspace;
        let Drawn(words) = own.get();
        words.clear();
        words.try_reserve(elements.div_ceil(32))?;
        positions.clear();
        Ok(positions.try_reserve(fraction::kept(self.ratio, elements) + ROOM)?)
    }

    /// Draws the positions of a tensor and step from a stream of its generator, in increasing
    /// order.
    pub(in crate::compressors) fn draw(
        &self,
        stream: u32,
        context: &Context<'_>,
        elements: usize,
        workspace: &mut Workspace,
    ) {
        let Workspace { positions, own, .. } = workspace;
        let Drawn(words) = own.get();
        let rng = if self.independent { context.rng(stream) } else { context.shared_rng(stream) };
        draw_set(rng, fraction::kept(self.ratio, elements), elements, words);
        words.iter_mut().for_each(|word| *word = word.to_le());
        positions.clear();
        positions.reserve(fraction::kept(self.ratio, elements) + ROOM);
        kernels::ones(bytemuck::cast_slice(words), 0, positions);
    }

    fn factor(&self, count: usize, elements: usize) -> f32 {
        if self.unbiased { (elements as f64 / count as f64) as f32 } else { 1.0 }
    }
}

/// A uniform set of `count` numbers below `elements`, as a bitmap.
fn draw_set(mut rng: Rng, count: usize, elements: usize, bitmap: &mut Vec<u32>) {
    bitmap.clear();
    bitmap.resize(elements.div_ceil(32), 0);
    let inverted = count > elements / 2;
    let mut missing = if inverted { elements - count } else { count };
    let mut words = [0; 512];
    while missing > 0 {
        // Two words per draw. A batch has no more draws than positions are missing, so none is
        // wasted.
        let draws = &mut words[..2 * missing.min(256)];
        rng.fill(draws);
        for draw in draws.as_chunks::<2>().0 {
            let draw = u64::from(draw[0]) | u64::from(draw[1]) << 32;
            let at = ((u128::from(draw) * elements as u128) >> 64) as usize;
            let (word, bit) = (&mut bitmap[at / 32], 1 << (at % 32));
            missing -= usize::from(*word & bit == 0);
            *word |= bit;
        }
    }
    if inverted {
        bitmap.iter_mut().for_each(|word| *word = !*word);
        if let (Some(last), used @ 1..) = (bitmap.last_mut(), elements % 32) {
            *last &= (1 << used) - 1;
        }
    }
}

/// Positions that the kernel may write past the last.
const ROOM: usize = 64;

/// A bit for each element: whether it is drawn.
#[derive(Debug, Default)]
struct Drawn(Vec<u32>);

impl Compressor for RandomK {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        self.draw(0, context, source.len(), workspace);
        let factor = self.factor(workspace.positions.len(), source.len());
        take_at_positions(source, factor, workspace);
        fields::put_f32s(&workspace.values, message);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, context, weight, workspace, out } = args;
        fields::expect_len(message, self.max_len(out.len()))?;
        self.make_room(out.len(), workspace)?;
        self.draw(0, context, out.len(), workspace);
        let Workspace { positions, helpers, .. } = workspace;
        fields::add_f32s_at(positions, message.as_chunks().0, weight, out, helpers);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        fraction::kept(self.ratio, elements).saturating_mul(4)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        if message_len < 4 {
            return 0;
        }
        fraction::largest(self.ratio, message_len / 4).min(MOST_ELEMENTS)
    }

    fn aggregation(&self) -> Aggregation<'_> {
        match self.independent {
            true => Aggregation::Gather,
            false => Aggregation::Linear(Dtype::F32),
        }
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Pairs of the drawn elements.
impl DeviceForm for RandomK {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, context, elements, workspace } = args;
        let pairs = Pairs::<0>::read(form, fraction::kept(self.ratio, elements), elements)?;
        self.make_room(elements, workspace)?;
        self.draw(0, context, elements, workspace);
        if !pairs.positions().eq(workspace.positions.iter().copied()) {
            return Err(DecodeError::Corrupt("the positions differ from the drawn positions"));
        }
        pairs.copy_to(&mut workspace.positions, &mut workspace.values)?;
        fields::put_f32s(&workspace.values, message);
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, context, elements, workspace } = args;
        fields::expect_len(message, self.max_len(elements))?;
        self.make_room(elements, workspace)?;
        self.draw(0, context, elements, workspace);
        let values = message.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
        pairs::write(&[], &workspace.positions, values, form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual, round_trip};
    use crate::{Decoder, Encoder, Floats, Spec, Tensor};

    fn set(seed: u64, count: usize, elements: usize) -> Vec<usize> {
        let mut bitmap = Vec::new();
        draw_set(Rng::new(seed, 0, 0, 0, 0), count, elements, &mut bitmap);
        (0..32 * bitmap.len()).filter(|at| bitmap[at / 32] >> (at % 32) & 1 == 1).collect()
    }

    #[test]
    fn sets_have_the_size_and_the_range_asked_for() {
        for (count, elements) in
            [(0, 0), (1, 1), (1, 33), (16, 33), (17, 33), (33, 33), (900, 1000)]
        {
            let set = set(7, count, elements);
            assert_eq!(set.len(), count);
            assert!(set.iter().all(|&at| at < elements));
        }
    }

    #[test]
    fn every_set_is_equally_likely() {
        // Each of the 15 pairs among 6 occurs 2 000 times in 30 000 draws, with a standard
        // deviation of 43.
        let mut seen = std::collections::HashMap::new();
        for seed in 0..30_000 {
            *seen.entry(set(seed, 2, 6)).or_insert(0i32) += 1;
        }
        assert_eq!(seen.len(), 15);
        assert!(seen.values().all(|&times| (times - 2_000).abs() < 220), "{seen:?}");
    }

    #[test]
    fn a_full_ratio_sends_everything_in_order() {
        let expected = [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        assert_eq!(encode("randomk:ratio=1", &[1.0, -2.0]), expected);
        assert_eq!(residual("randomk:ratio=1", &[1.0, -2.0]), [0.0, 0.0]);
    }

    #[test]
    fn the_factor_is_the_inverse_of_the_fraction_sent() {
        // Two of eight: each sent value is four times its element.
        let spec = "randomk:ratio=0.25,unbiased=on,ef=off";
        assert_eq!(encode(spec, &[1.0; 8]), [0, 0, 0x80, 0x40, 0, 0, 0x80, 0x40]);
        assert_eq!(round_trip(spec, &[f32::MAX; 8]).iter().filter(|&&x| x == f32::MAX).count(), 2);
    }

    #[test]
    fn independent_ranks_send_what_the_receiver_draws_for_them() {
        let gradient: Vec<f32> = (1..=4000).map(|x| x as f32).collect();
        let tensor = Tensor::new("t", &[4000]);
        let sent = |spec: &str, rank: u32| {
            let spec: Spec = spec.parse().unwrap();
            let (mut message, mut out) = (Vec::new(), vec![0.0; 4000]);
            Encoder::new(&spec, 1, rank)
                .encode(&tensor, 2, Floats::F32(&gradient), &mut message)
                .unwrap();
            Decoder::new(&spec, 1).decode_add(&tensor, 2, rank, &message, 1.0, &mut out).unwrap();
            let sent: Vec<usize> = (0..4000).filter(|&at| out[at] != 0.0).collect();
            assert!(sent.len() == 40 && sent.iter().all(|&at| out[at] == gradient[at]));
            sent
        };
        let [first, second] = [0, 1].map(|rank| sent("randomk:indices=independent", rank));
        // Two sets of 40 of 4000 share 0.4 elements on average; six have a chance of 10⁻⁶.
        assert!(first.iter().filter(|at| second.contains(at)).count() < 6);
        assert_eq!(sent("randomk", 0), sent("randomk", 1));
        // The sender's draw: the first 40 different ones of its stream.
        let mut rng = Rng::new(1, tensor.id(), 0, 2, 0);
        let mut words = [0; 80];
        rng.fill(&mut words);
        let draws = words.as_chunks::<2>().0.iter().map(|&[low, high]| {
            let draw = u128::from(low) | u128::from(high) << 32;
            ((draw * 4000) >> 64) as usize
        });
        assert!(draws.into_iter().all(|at| first.contains(&at)));
    }

    #[test]
    fn a_message_of_another_length_is_refused() {
        let mut out = [0.0; 300];
        let mut result = |len: usize| decode("randomk", &vec![0; len], 1.0, &mut out);
        assert_eq!(result(12), Ok(()));
        assert_eq!(result(11), Err(DecodeError::Truncated));
        assert_eq!(result(16), Err(DecodeError::Trailing { extra: 4 }));
    }
}
