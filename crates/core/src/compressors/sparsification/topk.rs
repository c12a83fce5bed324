//! `topk`: the fraction of elements with the largest absolute values.
//!
//! - **Selection**: `exact` sends exactly k = max(1, round(ratio·d)) elements, at the lowest
//!   positions among equal absolute values. `sampled` estimates the k-th largest absolute value
//!   from a random sample and sends the elements that reach it: about k, at most the first 2k, no
//!   zeros, and at least one if the tensor is not all zero.
//! - **Message**: a byte with the code of the positions (0 bitmap, 1 Rice, 2 raw), the count as
//!   varint, the values as f32, the positions. `auto` uses the shortest code: about 8.1 bits per
//!   position at ratio 0.01, instead of 32 for raw positions. A bitmap has d bits.
//! - **Range**: ratio in (0, 1]; up to 2³² − 1 elements.
//! - **Error feedback**: on.
//! - **Cost**: 8 bytes per element to find the threshold (`sampled`: the maximum), 12 to select.
//!
//! References: Aji, Heafield: "Sparse Communication for Distributed Gradient Descent", EMNLP 2017
//! (the sampled threshold); Lim et al., MLSys 2019, §5.1 ("25 % / 5 % sparsification": sampled,
//! bitmap).

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::kernels::Side;
use gradwire_bits::{DecodeError, varint};

use super::fraction;
use crate::device::pairs::{self, Pairs};
use crate::device::{DeviceArgs, DeviceForm};
use crate::numeric::selection::{self, sampled_threshold};
use crate::numeric::take::{clear, take_largest, take_reaching};
use crate::parameters::{Choice, choice, either, real};
use crate::wire::fields;
use crate::wire::positions::{self, MOST_ELEMENTS, PositionCode};
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Properties,
    Source, Statistics, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "topk",
    summary: "the elements with the largest absolute values",
    formula: "x̂ = c at the k largest |c|, 0 elsewhere, k = round(ratio·d)",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &[
        "ratio=0.02",
        "ratio=0.4",
        "positions=raw",
        "ratio=0.05,select=sampled,positions=bitmap",
        "ratio=0.02,positions=rice",
        "ratio=0.25,select=sampled,positions=bitmap",
        "ratio=0.05,select=sampled",
        "positions=rice",
        "ratio=1",
    ],
    reference: "Aji, Heafield, EMNLP 2017",
    payload: "code u8, count varint, values f32, positions",
    passes: Passes::TWO,
    properties: |_| Properties { value_bits: Some(32), ..Properties::DEFAULT },
    ..Entry::of::<TopK>(|_| Guarantee::Contractive)
};

/// The code of positions; `None` for the shortest.
impl Choice for Option<PositionCode> {
    const WORDS: &'static [&'static str] = &["auto", "bitmap", "rice", "raw"];
    const VALUES: &'static [Self] =
        &[None, Some(PositionCode::Bitmap), Some(PositionCode::Rice), Some(PositionCode::Raw)];
}

crate::parameters! {
    /// Sparsification by absolute value.
    pub struct TopK {
        /// fraction of elements to send
        pub(super) ratio: f64 = real(0.01, Excluded(0.0), Included(1.0)),
        /// exactly the k largest elements, or those above a threshold estimated from a random
        /// sample
        pub(super) sampled("select"): bool = either(&["exact", "sampled"]),
        /// code of the positions; auto takes the shortest
        pub(super) code("positions"): Option<PositionCode> = choice::<Option<PositionCode>>(),
    }
}

impl TopK {
    /// Sends the elements that reach a threshold, [`most`](Self::most) elements at most.
    pub(super) fn send_reaching(
        &self,
        source: &mut Source<'_>,
        threshold: f32,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Coverage {
        let most = self.most(source.len());
        clear(most, workspace);
        take_reaching(source, Side::Both, threshold, most, workspace);
        self.write(source.len(), workspace, message)
    }

    /// Appends the message of the elements in the workspace.
    fn write(&self, elements: usize, workspace: &mut Workspace, message: &mut Vec<u8>) -> Coverage {
        let Workspace { positions, values, helpers, .. } = workspace;
        let code = self.code.map(|code| code.for_count(positions.len()));
        let code = code.unwrap_or_else(|| PositionCode::shortest(positions, elements));
        positions::put_with_values(code, positions, values, elements, helpers, message);
        Coverage::Positions
    }

    /// Checks a message, reads its positions into the workspace, and returns its values.
    fn read<'a>(
        &self,
        mut message: &'a [u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<&'a [[u8; 4]], DecodeError> {
        let most = self.most(elements);
        let (code, count) = positions::take_header(&mut message, most)?;
        self.check_count(count, most)?;
        if self.code.is_some_and(|expected| expected != code.whole()) {
            return Err(DecodeError::Corrupt("positions do not have the configured code"));
        }
        let values = fields::take(&mut message, 4 * count)?;
        let Workspace { positions, helpers, .. } = workspace;
        code.decode(message, count, elements, positions, helpers)?;
        Ok(values.as_chunks().0)
    }

    /// Refuses fewer elements than the ratio keeps, if their number is exact.
    fn check_count(&self, count: usize, most: usize) -> Result<(), DecodeError> {
        if self.sampled || count == most {
            return Ok(());
        }
        Err(DecodeError::Corrupt("there are fewer positions than the ratio requires"))
    }

    /// The most elements that a message carries.
    pub(super) fn most(&self, elements: usize) -> usize {
        let kept = fraction::kept(self.ratio, elements);
        if self.sampled { kept.saturating_mul(2).min(elements) } else { kept }
    }
}

impl Compressor for TopK {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        let elements = source.len();
        let k = fraction::kept(self.ratio, elements);
        if elements > 0 && self.sampled {
            let mut rng = context.rng(0);
            let sample = &mut workspace.own::<selection::SelectionBuffers>().candidates;
            let threshold = sampled_threshold(source, k, &mut rng, sample);
            return self.send_reaching(source, threshold, workspace, message);
        }
        take_largest(source, k, workspace);
        self.write(elements, workspace, message)
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { message, weight, workspace, out, .. } = args;
        let values = self.read(message, out.len(), workspace)?;
        let Workspace { positions, helpers, .. } = workspace;
        fields::add_f32s_at(positions, values, weight, out, helpers);
        Ok(())
    }

    fn statistics(&self, elements: usize) -> Statistics {
        let kept = fraction::kept(self.ratio, elements);
        if self.sampled { Statistics::Largest } else { Statistics::KthLargest(kept) }
    }

    fn max_len(&self, elements: usize) -> usize {
        let most = self.most(elements);
        let positions = match self.code {
            Some(code) => code.max_len(most, elements),
            None => PositionCode::shortest_max_len(most, elements),
        };
        (1 + varint::len(most as u64) + positions).saturating_add(most.saturating_mul(4))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        if self.sampled {
            // A tensor of zeros sends nothing, however large it is.
            return MOST_ELEMENTS;
        }
        fraction::largest(self.ratio, message_len / 4).min(MOST_ELEMENTS)
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Pairs of the sent elements.
impl DeviceForm for TopK {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        let DeviceArgs { from: form, to: message, elements, workspace, .. } = args;
        let most = self.most(elements);
        let pairs = Pairs::<0>::read(form, most, elements)?;
        self.check_count(pairs.positions().count(), most)?;
        pairs.copy_to(&mut workspace.positions, &mut workspace.values)?;
        Ok(self.write(elements, workspace, message))
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from: message, to: form, elements, workspace, .. } = args;
        let values = self.read(message, elements, workspace)?;
        let values = values.iter().map(|bytes| f32::from_le_bytes(*bytes));
        pairs::write(&[], &workspace.positions, values, form)
    }
}

#[cfg(test)]
mod tests {
    use crate::BLOCK;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    const ONE: [u8; 4] = [0, 0, 0x80, 0x3f];

    #[test]
    fn a_bitmap_message_worked_by_hand() {
        let gradient = [0.5, -3.0, 0.0, 1.0, 2.0, -0.5];
        // Two of six: -3 at 1 and 2 at 4.
        let expected = [0, 2, 0, 0, 0x40, 0xc0, 0, 0, 0, 0x40, 0b01_0010];
        assert_eq!(encode("topk:ratio=0.3", &gradient), expected);
        assert_eq!(residual("topk:ratio=0.3", &gradient), [0.5, 0.0, 0.0, 1.0, 0.0, -0.5]);
        assert_eq!(round_trip("topk:ratio=0.3", &gradient), [0.0, -3.0, 0.0, 0.0, 2.0, 0.0]);
    }

    #[test]
    fn a_rice_message_worked_by_hand() {
        // One of ten, b = 3: gap 4 is quotient 0, remainder 4: bits 0, 0 0 1.
        let mut gradient = [0.0; 10];
        gradient[4] = 1.0;
        let expected = [&[1, 1], &ONE[..], &[3, 0b1000]].concat();
        assert_eq!(encode("topk:ratio=0.1,positions=rice", &gradient), expected);
    }

    #[test]
    fn a_raw_message_worked_by_hand() {
        let mut gradient = [0.0; 400];
        gradient[257] = 1.0;
        let expected = [&[2, 1], &ONE[..], &[1, 1, 0, 0]].concat();
        assert_eq!(encode("topk:ratio=0.0025,positions=raw", &gradient), expected);
    }

    #[test]
    fn of_equal_values_the_first_are_sent() {
        let mut gradient = vec![1.0; 2 * BLOCK];
        gradient[7] = 2.0;
        let sent = |kept: &[f32]| kept.iter().map(|&x| x == 0.0).collect::<Vec<_>>();
        let kept = sent(&residual("topk:ratio=0.001", &gradient));
        assert!(kept[..8].iter().all(|&x| x) && !kept[8..].contains(&true));
        // Ties that cross a block boundary: 4100 of 8192.
        let kept = sent(&residual("topk:ratio=0.50048828125", &gradient));
        assert!(kept[..4100].iter().all(|&x| x) && !kept[4100..].contains(&true));
    }

    #[test]
    fn zeros_are_sent_only_where_the_count_is_exact() {
        assert_eq!(encode("topk:ratio=0.5", &[0.0; 4]), [0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0b11]);
        // The shortest code of no positions is raw.
        assert_eq!(encode("topk:ratio=0.5,select=sampled", &[0.0; 4]), [2, 0]);
        assert_eq!(encode("topk", &[]), [0, 0]);
    }

    #[test]
    fn a_sampled_message_never_exceeds_twice_the_ratio() {
        let constant = vec![-1.0; 3 * BLOCK];
        let spec = "topk:ratio=0.01,select=sampled,positions=bitmap";
        let sent = round_trip(spec, &constant).iter().filter(|&&x| x == -1.0).count();
        assert_eq!(sent, 2 * 123);
        assert_eq!(
            residual(spec, &constant).iter().filter(|&&x| x == -1.0).count(),
            3 * BLOCK - 246
        );
    }

    #[test]
    fn a_lone_value_is_found_without_being_sampled() {
        let mut gradient = vec![0.0; 100_000];
        gradient[54_321] = -1e-30;
        let decoded = round_trip("topk:select=sampled", &gradient);
        assert_eq!(decoded, gradient);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let good = [0, 2, 0, 0, 0x40, 0xc0, 0, 0, 0, 0x40, 0b01_0010];
        for (at, byte) in [(0, 3), (1, 3), (10, 0b11_0010), (10, 0b101_0000)] {
            let mut bad = good;
            bad[at] = byte;
            refused("topk:ratio=0.3", 6, &bad);
        }
        refused("topk:ratio=0.3,positions=rice", 6, &good);
        refused("topk:ratio=0.3", 6, &[0, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    }
}
