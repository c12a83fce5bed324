//! `sbc`: sparse binary compression: sends one tail of the tensor as its mean.
//!
//! - **Selection** (Algorithm 2): the tails of the corrected tensor c are its k largest and its k
//!   smallest elements, k = max(1, round(p·d)). The tail whose mean is larger in absolute value is
//!   sent, each element as the mean; the other tail stays in the residual. A tail contains only
//!   strictly positive or only strictly negative elements, so it may have fewer than k. Among equal
//!   values, the lowest positions belong to it; if the means are equal, the negative tail is sent.
//!   A tensor of zeros sends nothing. `select=sampled` estimates thresholds, and which mean is
//!   larger, from a sample of runs: 1/256 of the elements, but at least 32·d/k and 1024, or all. It
//!   sends the elements that reach the threshold, at most the first 2k, as their own mean. If the
//!   sample has only zeros, tails are exact.
//! - **Message**: a byte with the parameter b of the position code (lowest 5 bits; 31 for many
//!   positions, whose code is in parts, after b), the sign (bit 5), whether the count is not k and
//!   follows (bit 6), and whether the mean is a bfloat16 (bit 7); the count as varint if it
//!   follows; unless that is 0, the mean, and the positions in the Golomb code with parameter 2^b
//!   (Algorithm 3). The message contains b, so a decoder does not depend on how it was chosen:
//!   `golomb=derived` uses b* of equation 5 for the density of the message, `golomb=cheapest` the
//!   neighbour of b* with the shortest code for these positions.
//! - **Range**: p in (0, 1); up to 2³² − 1 elements. An empty tensor has an empty message.
//! - **Error feedback**: on; the residual of a sent element is its difference from the mean.
//! - **Momentum masking**: the trainer does it; the encoder reports the positions.
//! - **Cost**: 8 bytes per element to gather both tails, 12 to select one of them.
//!
//! Deviations: the thresholds of Algorithm 2 are applied to the update ΔW; the paper writes W.
//! `golomb=cheapest` searches parameters up to two away from Algorithm 3's. The sample of
//! `select=sampled` is evenly spaced; the paper draws it. A tail has only elements of its sign;
//! Algorithm 2 takes the mean of the k largest, or smallest, of all elements. `mean=bf16` is not in
//! the paper: it rounds the mean towards zero, and the residual keeps the rest; a mean below 2⁻¹³³
//! becomes 0. At p = 0.01 equation 5 gives 8.11 bits per position, not the printed 8.38.
//!
//! Reference: Sattler, Wiedemann, Müller, Samek: "Sparse Binary Compression: Towards Distributed
//! Deep Learning with minimal Communication", 2018, section II.

use std::ops::Bound::Excluded;

use gradwire_bits::kernels::Side;
use gradwire_bits::{DecodeError, rice, varint};

use crate::compressors::sparsification::fraction;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::tails::{Tail, sampled_tails, tails};
use crate::numeric::take::{clear, take_exactly, take_reaching};
use crate::parameters::{Parameters, either, real};
use crate::tools::give_back;
use crate::wire::fields;
use crate::wire::positions::{PositionCode, make_room};
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Floats, Guarantee, Passes,
    Properties, SCRATCH, Source, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "sbc",
    summary: "the tail with the larger mean, each element decoded to that mean",
    formula: "x̂ = μ on the tail of k = round(p·d) elements whose mean μ is larger in magnitude, 0 elsewhere",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &[
        "p=0.02",
        "p=0.02,golomb=derived",
        "p=0.02,mean=bf16",
        "p=0.02,select=sampled",
        "p=0.3",
        "p=0.05,select=sampled",
        "p=0.001,golomb=derived",
        "mean=bf16,every=10",
    ],
    reference: "Sattler et al. 2018",
    payload: "b, sign and flags u8, [count varint], mean f32 or bf16, gaps Golomb",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(0), ..Properties::DEFAULT },
    ..Entry::of::<Sbc>(|values| Sbc::new(values).guarantee())
};

crate::parameters! {
    /// Sparse binary compression.
    pub struct Sbc {
        /// fraction of elements to send
        p: f64 = real(0.01, Excluded(0.0), Excluded(1.0)),
        /// exact tails, or thresholds estimated from a sample
        sampled("select"): bool = either(&["exact", "sampled"]),
        /// Golomb parameter of the positions: the cheapest, or that of equation 5
        derived("golomb"): bool = either(&["cheapest", "derived"]),
        /// format of the mean
        short_mean("mean"): bool = either(&["f32", "bf16"]),
    }
}

const PARAMETER: u8 = 0x1f;
/// Instead of the parameter: the code is in parts, and the parameter follows the mean.
const IN_PARTS: u8 = 0x1f;
const NEGATIVE: u8 = 0x20;
const COUNTED: u8 = 0x40;
const SHORT: u8 = 0x80;

impl Sbc {
    fn guarantee(&self) -> Guarantee {
        match self.sampled {
            true => Guarantee::Neither(
                "the sample has the same positions at every step, and may miss all large elements",
            ),
            false => Guarantee::Contractive,
        }
    }

    /// k, the number of elements of a full tail.
    fn kept(&self, elements: usize) -> usize {
        fraction::kept(self.p, elements)
    }

    /// The most elements that a message carries.
    fn most(&self, elements: usize) -> usize {
        let kept = self.kept(elements);
        if self.sampled { kept.saturating_mul(2).min(elements) } else { kept }
    }

    /// The tail to send, estimated from a sample; `None` if tails are exact or the sample has only
    /// zeros.
    fn sampled_winner(
        &self,
        source: &mut Source<'_>,
        kept: usize,
        workspace: &mut Workspace,
    ) -> Option<Tail> {
        let tail = self.sampled.then(|| larger(sampled_tails(source, kept, workspace.own())))?;
        (tail.count > 0).then_some(tail)
    }

    /// The mean, rounded as in the message.
    fn level(&self, mean: f32) -> f32 {
        if self.short_mean { f32::from_bits(mean.to_bits() & 0xffff_0000) } else { mean }
    }

    /// The value of the elements of a tail in the message.
    fn signed_level(&self, tail: Tail) -> f32 {
        let level = self.level(tail.mean);
        if tail.side == Side::Below { -level } else { level }
    }

    fn parameter(&self, positions: &[u32], elements: usize) -> u32 {
        let derived = rice::optimal_parameter(positions.len(), elements);
        if self.derived {
            return derived;
        }
        let near = derived.saturating_sub(2)..=(derived + 2).min(rice::MAX_PARAMETER);
        let cost = |&b: &u32| (rice::len_bits(positions, b), b.abs_diff(derived));
        near.min_by_key(cost).unwrap_or(derived)
    }

    /// Moves the elements of the tail to send to the workspace, and returns the tail. `source` has
    /// a tensor of `elements` elements, or the candidates among them.
    fn send_winner(
        &self,
        source: &mut Source<'_>,
        elements: usize,
        workspace: &mut Workspace,
    ) -> Tail {
        let (kept, most) = (self.kept(elements), self.most(elements));
        if let Some(mut tail) = self.sampled_winner(source, kept, workspace) {
            clear(most, workspace);
            take_reaching(source, tail.side, tail.threshold.value, most, workspace);
            tail.mean = mean(&workspace.values);
            let sent = self.signed_level(tail);
            let Workspace { positions, values, helpers, .. } = workspace;
            values.iter_mut().for_each(|value| *value -= sent);
            give_back(source, positions, values, helpers);
            return tail;
        }
        let tail = larger(tails(source, kept, workspace));
        let sent = self.signed_level(tail);
        clear(most, workspace);
        take_exactly(source, tail.side, tail.threshold, Some(|value| value - sent), workspace);
        tail
    }

    /// Appends the message of the elements of a tail at the positions in the workspace.
    fn write(
        &self,
        tail: &Tail,
        elements: usize,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) {
        let Workspace { positions, helpers, .. } = workspace;
        let (kept, level) = (self.kept(elements), self.level(tail.mean));
        let counted = positions.len() != kept;
        let b = self.parameter(positions, elements);
        let code = PositionCode::Rice.for_count(positions.len());
        let of_code = if code == PositionCode::RiceParts { IN_PARTS } else { b as u8 };
        let flag = |flag: u8, set: bool| if set { flag } else { 0 };
        message.push(
            of_code
                | flag(NEGATIVE, tail.side == Side::Below)
                | flag(COUNTED, counted)
                | flag(SHORT, self.short_mean),
        );
        if counted {
            varint::write(positions.len() as u64, message);
        }
        if !positions.is_empty() {
            let bytes = level.to_le_bytes();
            message.extend_from_slice(if self.short_mean { &bytes[2..] } else { &bytes });
            match code {
                PositionCode::RiceParts => code.encode_rice(positions, b, helpers, message),
                _ => rice::encode(positions, b, message),
            }
        }
    }

    /// Checks a message, reads its positions into the workspace, and returns the value of its
    /// elements.
    fn read(
        &self,
        mut message: &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<f32, DecodeError> {
        let Workspace { positions, helpers, .. } = workspace;
        positions.clear();
        if elements == 0 {
            fields::expect_len(message, 0)?;
            return Ok(0.0);
        }
        let head = fields::take(&mut message, 1)?[0];
        let of_code = head & PARAMETER;
        if (head & SHORT != 0) != self.short_mean {
            return Err(DecodeError::Corrupt("the mean does not have the configured format"));
        }
        let kept = self.kept(elements);
        let count = if head & COUNTED == 0 { kept as u64 } else { varint::read(&mut message)? };
        if count > self.most(elements) as u64 {
            return Err(DecodeError::Corrupt("there are more elements than p allows"));
        }
        if head & COUNTED != 0 && count == kept as u64 {
            return Err(DecodeError::Corrupt(
                "the count is written, although it is the count that p implies",
            ));
        }
        let count = count as usize;
        if count == 0 {
            fields::expect_len(message, 0)?;
            return Ok(0.0);
        }
        let level = if self.short_mean {
            let bytes = fields::take(&mut message, 2)?;
            f32::from_le_bytes([0, 0, bytes[0], bytes[1]])
        } else {
            let bytes = fields::take(&mut message, 4)?;
            f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
        };
        if !level.is_finite() || level.is_sign_negative() {
            return Err(DecodeError::Corrupt("the mean is negative or not finite"));
        }
        if of_code == IN_PARTS {
            PositionCode::RiceParts.decode(message, count, elements, positions, helpers)?;
        } else {
            make_room(count, elements, positions)?;
            let used = rice::decode(message, count, elements, of_code.into(), positions)?;
            fields::expect_len(message, used)?;
        }
        Ok(if head & NEGATIVE == 0 { level } else { -level })
    }
}

/// The tail with the larger mean.
fn larger([above, below]: [Tail; 2]) -> Tail {
    if above.mean > below.mean { above } else { below }
}

/// The mean absolute value; 0 without values.
fn mean(values: &[f32]) -> f32 {
    let sum: f64 = values.iter().map(|value| f64::from(value.abs())).sum();
    (sum / values.len().max(1) as f64) as f32
}

impl Compressor for Sbc {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::Positions;
        }
        let tail = self.send_winner(source, elements, workspace);
        self.write(&tail, elements, workspace, message);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let value = weight * self.read(message, out.len(), workspace)?;
        let Workspace { positions, helpers, .. } = workspace;
        helpers.in_stretches(positions, out, |_, positions, start, out| {
            positions.iter().for_each(|&position| out[position as usize - start] += value);
        });
        Ok(())
    }

    fn statistics(&self, elements: usize) -> Statistics {
        if self.sampled { Statistics::Largest } else { Statistics::Tails(self.kept(elements)) }
    }

    fn max_len(&self, elements: usize) -> usize {
        let most = self.most(elements);
        // The cheapest parameter costs at most as much as the derived one.
        1 + varint::len(most as u64) + 4 + PositionCode::Rice.max_len(most, elements)
    }

    /// `None` if thresholds are estimated from a sample, or a mean may be rounded to 0.
    fn device_form(&self) -> Option<&dyn DeviceForm> {
        (!self.sampled && !self.short_mean).then_some(self as &dyn DeviceForm)
    }
}

/// The elements of a device form.
#[derive(Debug, Default)]
struct Candidates {
    positions: Vec<u32>,
    values: Vec<f32>,
    scratch: Vec<f32>,
}

/// Pairs of elements that include both tails. The form of a message has the elements of its tail.
impl DeviceForm for Sbc {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        workspace.positions.clear();
        if elements == 0 {
            fields::expect_len(form, 4)?;
            return Ok(Coverage::Positions);
        }
        let mut candidates = std::mem::take(workspace.own::<Candidates>());
        let Candidates { positions, values, scratch } = &mut candidates;
        Pairs::<0>::read(form, elements, elements)?.copy_to(positions, values)?;
        scratch.resize(SCRATCH, 0.0);
        let source = Source::new(Floats::F32(values), None, scratch);
        let mut source = source.map_err(|_| DecodeError::Corrupt("a value is not finite"))?;
        let tail = self.send_winner(&mut source, elements, workspace);
        workspace.positions.iter_mut().for_each(|at| *at = positions[*at as usize]);
        self.write(&tail, elements, workspace, message);
        *workspace.own() = candidates;
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let value = self.read(message, elements, workspace)?;
        pairs::write(&[], &workspace.positions, std::iter::repeat(value), form)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::BLOCK;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    const GRADIENT: [f32; 10] = [0.5, -3.0, 0.0, 1.0, 2.0, -0.5, 4.0, -1.0, 0.25, -2.0];

    #[test]
    fn a_sample_s_mean_is_not_sent() {
        // The sample has the one large element, and a mean far above the mean of the sent elements.
        let mut gradient = vec![1.0; 100_000];
        gradient[0] = 1e6;
        let decoded = round_trip("sbc:p=0.01,select=sampled", &gradient);
        let sent: Vec<usize> = (0..decoded.len()).filter(|&at| decoded[at] != 0.0).collect();
        let sum: f64 = sent.iter().map(|&at| f64::from(gradient[at])).sum();
        let mean = (sum / sent.len() as f64) as f32;
        assert!(sent.iter().all(|&at| decoded[at] == mean), "{} of {mean}", decoded[0]);
        let left = residual("sbc:p=0.01,select=sampled", &gradient);
        assert!((0..decoded.len()).all(|at| left[at] == gradient[at] - decoded[at]));
    }

    #[test]
    fn an_element_outside_the_sample_is_sent() {
        // The sample has at most a few neighbours: with the others it has only zeros.
        for at in 50_000..50_040 {
            let mut gradient = vec![0.0; 100_000];
            gradient[at] = -5.0;
            assert_eq!(round_trip("sbc:p=0.01,select=sampled", &gradient), gradient, "{at}");
            assert_eq!(residual("sbc:p=0.01,select=sampled", &gradient), vec![0.0; 100_000]);
        }
    }

    #[test]
    fn the_tail_with_the_larger_mean_is_sent() {
        // Two of ten: 4 and 2 with mean 3 against 3 and 2 with mean 2.5. b* at 0.2 is 2: gaps 4 and
        // 1 are quotient 1, remainder 0 and quotient 0, remainder 1, from the lowest bit: 1 0 00, 0
        // 10.
        let expected = [2, 0, 0, 0x40, 0x40, 0b0010_0001];
        assert_eq!(encode("sbc:p=0.2,golomb=derived", &GRADIENT), expected);
        assert_eq!(
            residual("sbc:p=0.2", &GRADIENT),
            [0.5, -3.0, 0.0, 1.0, -1.0, -0.5, 1.0, -1.0, 0.25, -2.0]
        );
        let decoded = round_trip("sbc:p=0.2", &GRADIENT);
        assert_eq!(decoded, [0.0, 0.0, 0.0, 0.0, 3.0, 0.0, 3.0, 0.0, 0.0, 0.0]);
    }

    #[test]
    fn a_negative_tail_and_a_count_that_is_not_the_ratios() {
        // Four of ten, but only one is negative: mean 9 against 0.25.
        let gradient = [0.25, 0.25, 0.25, 0.25, 0.0, 0.0, 0.0, -9.0, 0.0, 0.0];
        // One at 7, b* = 3 at a tenth: quotient 0, remainder 7: 0 111.
        let expected = [3 | NEGATIVE | COUNTED, 1, 0, 0, 0x10, 0x41, 0b1110];
        assert_eq!(encode("sbc:p=0.4", &gradient), expected);
        let mut left = gradient;
        left[7] = 0.0;
        assert_eq!(residual("sbc:p=0.4", &gradient), left);
    }

    #[test]
    fn the_cheapest_parameter_suits_the_positions() {
        // 100 elements of 10 000 side by side: with b = 6 each gap of 0 takes 7 bits, with b = 4
        // only 5.
        let mut gradient = vec![0.0; 10_000];
        gradient[..100].fill(1.0);
        let (derived, cheapest) = ("sbc:golomb=derived", "sbc");
        assert_eq!(encode(derived, &gradient).len(), 5 + (100 * 7_usize).div_ceil(8));
        assert_eq!(encode(cheapest, &gradient).len(), 5 + (100 * 5_usize).div_ceil(8));
        assert_eq!(round_trip(derived, &gradient), round_trip(cheapest, &gradient));
    }

    #[test]
    fn a_short_mean_is_rounded_towards_zero_and_made_up_for() {
        let gradient = [1.0 + 2f32.powi(-10), 0.0, 0.0];
        // A gap of 0 with parameter 0.
        let expected = [SHORT, 0x80, 0x3f, 0];
        assert_eq!(encode("sbc:p=0.3,mean=bf16", &gradient), expected);
        assert_eq!(residual("sbc:p=0.3,mean=bf16", &gradient)[0], 2f32.powi(-10));
    }

    #[test]
    fn a_tensor_smaller_than_one_over_p_sends_one_element() {
        assert_eq!(round_trip("sbc1", &[0.5, -2.0, 1.0]), [0.0, -2.0, 0.0]);
        assert_eq!(round_trip("sbc1", &[0.5]), [0.5]);
        assert!(encode("sbc", &[]).is_empty());
    }

    #[test]
    fn zeros_send_nothing() {
        assert_eq!(encode("sbc", &[0.0; 300]), [NEGATIVE | COUNTED, 0]);
        assert_eq!(round_trip("sbc", &[0.0, -0.0]), [0.0, 0.0]);
    }

    #[test]
    fn of_equal_values_the_first_are_sent() {
        let mut gradient = vec![1.0; 2 * BLOCK];
        gradient[7] = 2.0;
        let decoded = round_trip("sbc:p=0.001", &gradient);
        let sent: Vec<usize> = (0..gradient.len()).filter(|&at| decoded[at] != 0.0).collect();
        assert_eq!(sent, (0..8).collect::<Vec<_>>());
        assert_eq!(decoded[0], 9.0 / 8.0);
    }

    #[test]
    fn a_sample_sends_about_the_share_and_never_twice_as_much() {
        let constant = vec![-1.0; 3 * BLOCK];
        let decoded = round_trip("sbc:select=sampled", &constant);
        assert_eq!(decoded.iter().filter(|&&x| x == -1.0).count(), 2 * 123);
        let slope: Vec<f32> = (0..100_000).map(|at| (at * 7919 % 100_000) as f32 - 5e4).collect();
        let sent = round_trip("sbc:select=sampled", &slope).iter().filter(|x| **x != 0.0).count();
        assert!((700..1300).contains(&sent), "{sent}");
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = [2, 0, 0, 0x40, 0x40, 0b0010_0001];
        for (at, byte) in [(0, 31), (0, 2 | SHORT), (4, 0xc0), (5, 0b1010_0001), (5, 0xff)] {
            let mut bad = good;
            bad[at] = byte;
            refused("sbc:p=0.2", 10, &bad);
        }
        refused("sbc:p=0.2", 10, &[2 | COUNTED, 2, 0, 0, 0x40, 0x40, 0b0010_0001]);
        refused("sbc:p=0.2", 10, &[COUNTED, 3, 0, 0, 0x40, 0x40, 0]);
        refused("sbc:p=0.2", 10, &[COUNTED, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
