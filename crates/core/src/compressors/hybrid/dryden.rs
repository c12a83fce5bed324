//! `dryden`: sends a fraction of the elements of each sign, chosen by adaptive thresholds, as the
//! mean of their sign.
//!
//! - **Selection**: the fraction `ratio` of the elements at or above zero reaches the threshold τ⁺,
//!   and the same fraction of the elements below zero reaches τ⁻. Both are estimated from a sample
//!   of evenly spaced runs: 1/256 of the elements, but at least 64 / ratio and 1024, or all. Zeros
//!   are not sent, and at most the 2·max(1, round(ratio·d)) largest elements of each sign are. If a
//!   sign has only zeros in the sample, all its other elements reach the threshold, so a sign with
//!   non-zero elements sends at least one.
//! - **Message**: a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw), their number as
//!   varint and, unless that is 0, the mean absolute values of the positive and of the negative
//!   sent elements as f32, one bit per sign, and the positions. An empty tensor has an empty
//!   message.
//! - **Range**: ratio in (0, 1]; up to 2³² − 1 elements.
//! - **Error feedback**: on; the residual of a sent element is its difference from the mean.
//! - **Deviations**: the paper sends 32 bits per element, 31 of them for the position, and any
//!   number of elements; here at most 2k per sign.
//! - **Cost**: 8 bytes per element for the maximum, 12 to select.
//!
//! Reference: Dryden, Jacobs, Moon, Van Essen: "Communication Quantization for Data-Parallel
//! Training of Deep Neural Networks", MLHPC 2016, section III-B.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Side};

use super::signs;
use crate::compressors::sparsification::fraction;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::tails::sampled_sides;
use crate::numeric::take::{Taken, take_in_parts};
use crate::parameters::real;
use crate::tools::give_back;
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes,
    Properties, Source, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "dryden",
    summary: "the largest elements of each sign, decoded to the mean of their sign",
    formula: "x̂ = mean of the sent elements with c's sign where c ≥ τ⁺ > 0 or c ≤ τ⁻ < 0, 0 \
        elsewhere; a fraction ratio of each sign reaches τ⁺ or τ⁻",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &["ratio=0.05"],
    reference: "Dryden et al., MLHPC 2016",
    payload: "code u8, count varint, two means f32, signs, positions",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(1), ..Properties::DEFAULT },
    ..Entry::of::<Dryden>(|_| Guarantee::Contractive)
};

crate::parameters! {
    /// Adaptive thresholding with two means.
    pub struct Dryden {
        /// fraction of the elements of each sign to send
        ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
    }
}

impl Dryden {
    /// The most elements of a side.
    fn most(&self, elements: usize) -> usize {
        fraction::kept(self.ratio, elements).saturating_mul(2).min(elements)
    }
}

impl Compressor for Dryden {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::Positions;
        }
        let limits = sampled_sides(source, self.ratio, workspace.own());
        take(source, limits, workspace);
        bound_sides(Some(source), self.most(elements), workspace);
        let Workspace { positions, values, helpers, .. } = workspace;
        let [above, below] = means(values);
        signs::write(&[above, below], elements, positions, values, helpers, message);
        values.iter_mut().for_each(|x| *x -= if x.is_sign_negative() { -below } else { above });
        give_back(source, positions, values, helpers);
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let most = 2 * self.most(out.len());
        signs::read_add::<2>(message, most, weight, workspace, out)
    }

    fn max_len(&self, elements: usize) -> usize {
        signs::max_len::<2>(self.most(elements).saturating_mul(2).min(elements), elements)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Pairs of the elements beyond the thresholds of both signs. The form of a message has the mean of
/// its sign for each.
impl DeviceForm for Dryden {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let pairs = Pairs::<0>::read(form, elements, elements)?;
        pairs.copy_to(&mut workspace.positions, &mut workspace.values)?;
        bound_sides(None, self.most(elements), workspace);
        let Workspace { positions, values, helpers, .. } = workspace;
        signs::write(&means(values), elements, positions, values, helpers, message);
        Ok(Coverage::Positions)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let Workspace { positions, helpers, .. } = workspace;
        let most = 2 * self.most(elements);
        let (levels, signs) = signs::read::<2>(message, most, elements, positions, helpers)?;
        pairs::write(&[], positions, signs::levels(signs, levels), form)
    }
}

/// Moves the elements beyond the limit of their sign from the tensor to the workspace, in order.
/// The helpers share the work.
fn take(source: &mut Source<'_>, limits: [f32; 2], workspace: &mut Workspace) {
    workspace.values.clear();
    take_in_parts(source, workspace, |source, Taken { positions, values }| {
        let mut found = [(0, 0.0); BLOCK];
        source.take_short_blocks(|offset, block| {
            let start = positions.len();
            // The kernel writes whole registers past the end; with this room it never grows the
            // lists.
            positions.reserve(2 * BLOCK);
            values.reserve(2 * BLOCK);
            for (side, limit) in [Side::Above, Side::Below].into_iter().zip(limits) {
                kernels::compact_beyond(block, side, limit, offset as u32, positions, values);
            }
            let found = &mut found[..positions.len() - start];
            for (found, pair) in
                found.iter_mut().zip(positions[start..].iter().zip(&values[start..]))
            {
                *found = (*pair.0, *pair.1);
            }
            found.sort_unstable_by_key(|&(position, _)| position);
            for (at, &(position, value)) in found.iter().enumerate() {
                (positions[start + at], values[start + at]) = (position, value);
            }
        });
    });
}

/// Bit patterns of the absolute values of one side.
#[derive(Debug, Default)]
struct Patterns(Vec<u32>);

/// Puts all but the `most` largest of each sign back into the tensor, the last of equal ones first.
fn bound_sides(mut source: Option<&mut Source<'_>>, most: usize, workspace: &mut Workspace) {
    let Workspace { positions, values, own, .. } = workspace;
    let Patterns(patterns) = own.get();
    for negative in [false, true] {
        let of_side = |value: &&f32| value.is_sign_negative() == negative;
        patterns.clear();
        patterns.extend(values.iter().filter(of_side).map(|value| value.abs().to_bits()));
        if patterns.len() <= most {
            continue;
        }
        let (larger, &mut least, _) = patterns.select_nth_unstable_by(most - 1, |a, b| b.cmp(a));
        let mut ties = most - larger.iter().filter(|&&pattern| pattern > least).count();
        let mut kept = 0;
        for at in 0..values.len() {
            let (position, value) = (positions[at], values[at]);
            let pattern = value.abs().to_bits();
            let tie = pattern == least && ties > 0;
            if value.is_sign_negative() == negative && !tie && pattern <= least {
                if let Some(left) = source.as_mut().and_then(|source| source.left()) {
                    left[position as usize] = value;
                }
                continue;
            }
            ties -= usize::from(tie && value.is_sign_negative() == negative);
            (positions[kept], values[kept]) = (position, value);
            kept += 1;
        }
        positions.truncate(kept);
        values.truncate(kept);
    }
}

/// The mean absolute values of the elements above and below zero; 0 if there are none.
fn means(values: &[f32]) -> [f32; 2] {
    let (mut sums, mut counts) = ([0.0; 2], [0usize; 2]);
    for value in values {
        let side = usize::from(value.is_sign_negative());
        sums[side] += f64::from(value.abs());
        counts[side] += 1;
    }
    [0, 1].map(|side| (sums[side] / counts[side].max(1) as f64) as f32)
}

#[cfg(test)]
mod tests {
    use crate::compressors::testing::{encode, residual, round_trip};

    /// Six at or above zero and four below.
    const GRADIENT: [f32; 10] = [0.5, -3.0, 0.0, 1.0, 2.0, -0.5, 4.0, -1.0, 0.25, -2.0];

    #[test]
    fn half_of_either_sign_worked_by_hand() {
        // 4, 2 and 1, mean 7/3 = 0x40155555; −3 and −2, mean 2.5: elements 1, 3, 4, 6, 9.
        let expected = [0, 5, 0x55, 0x55, 0x15, 0x40, 0, 0, 0x20, 0x40, 0b10001, 0b0101_1010, 0b10];
        assert_eq!(encode("dryden:ratio=0.5", &GRADIENT), expected);
        let above = f32::from_bits(0x4015_5555);
        let decoded = [0.0, -2.5, 0.0, above, above, 0.0, above, 0.0, 0.0, -2.5];
        assert_eq!(round_trip("dryden:ratio=0.5", &GRADIENT), decoded);
        let left: Vec<f32> = GRADIENT.iter().zip(decoded).map(|(g, d)| g - d).collect();
        assert_eq!(residual("dryden:ratio=0.5", &GRADIENT), left);
    }

    #[test]
    fn small_fractions_are_kept_to_without_a_bias() {
        // A thousandth of either side of uniform values, as large late as early.
        let mut words = vec![0; 100_000];
        crate::Rng::new(1, 2, 3, 4, 5).fill(&mut words);
        let gradient: Vec<f32> = words.iter().map(|&word| word as i32 as f32 * 1e-9).collect();
        let decoded = round_trip("dryden:ratio=0.0002", &gradient);
        let sent: Vec<usize> = (0..100_000).filter(|&at| decoded[at] != 0.0).collect();
        assert!((10..=30).contains(&sent.len()), "{}", sent.len());
        let late = sent.iter().filter(|&&at| at >= 50_000).count();
        assert!((4..=sent.len() - 4).contains(&late), "{late} of {}", sent.len());
        let least = sent.iter().map(|&at| gradient[at].abs()).fold(f32::MAX, f32::min);
        assert!(least > 2.1474e9 * 0.999 * 1e-9, "{least}");
    }

    #[test]
    fn elements_that_no_sample_has_are_sent() {
        let mut gradient = vec![0.0; 12_800];
        (gradient[16], gradient[3]) = (-2.0, 1.0);
        assert_eq!(round_trip("dryden", &gradient), gradient);
    }

    #[test]
    fn a_side_may_be_empty() {
        assert_eq!(round_trip("dryden", &[1.0, 2.0, 0.0]), [0.0, 2.0, 0.0]);
        assert_eq!(encode("dryden", &[0.0; 9]), [2, 0]);
        assert!(encode("dryden", &[]).is_empty());
    }

    #[test]
    fn equal_values_are_bounded() {
        // All reach the threshold; twice the requested 10 are sent.
        let decoded = round_trip("dryden", &[1.0; 1000]);
        assert_eq!(decoded.iter().filter(|&&x| x == 1.0).count(), 20);
        assert_eq!(residual("dryden", &[1.0; 1000])[20..], [1.0; 980]);
    }
}
