//! `inceptionn`: sends 32, 16, 8 or no bits of an element, depending on its magnitude.
//!
//! Magnitudes are relative to 1, with an error bound of 2^−b. An element with biased exponent e
//! keeps
//! - e ≥ 127 (|c| ≥ 1): all 32 bits, tag 3;
//! - e ≥ 127 − ⌊b/2⌋: the sign and 15 fractional bits, truncated, tag 2;
//! - e ≥ 127 − b: the sign and 7 fractional bits, truncated, tag 1;
//! - otherwise nothing, tag 0.
//!
//! The fractional bits come from the significand 1.m shifted right by 127 − e.
//!
//! - **Message**: tags of 2 bits, four to a byte from the lowest bit up, the last byte padded with
//!   zeros; then the truncated value of each element, in order, in 4, 2, 1 or no bytes, the sign
//!   highest: at least 2·d bits. `code=huffman` sorts by size: the bytes of tags, one-byte values
//!   and the upper bytes of two-byte values, each list in [Huffman code](gradwire_bits::huffman) if
//!   that is shorter; then the lower bytes, and four-byte values. A one-byte value with only the
//!   sign left gets tag 0. Four tags share a code word, so frequent combinations take few bits;
//!   there are few one-byte values (six with b = 10), and upper bytes contain sign and magnitude.
//! - **Range**: b from 1 to 126; 10 is the paper's. Magnitudes are absolute, and truncation makes
//!   small elements 0: with b from 7 to 15 all below 2^−7, with b from 30 on all below 2^−15, which
//!   is the least limit. (With b below 7 the limit is 2^−b; between 15 and 30 it is 2^−⌊b/2⌋.)
//!   Scale smaller gradients up, or use `ef=on`, which adds them up.
//! - **Error**: below 2^−b with tag 0, 2^−15 with tag 2, and 2^−7 with tag 1 (beyond the error
//!   bound for b above 7). The paper's hardware keeps exactly these bits, and so does this code.
//! - **Error feedback**: off, as in the survey of Xu et al. (2020).
//! - **Deviations**: all tags precede all values; the paper interleaves them, eight values at a
//!   time.
//! - **Cost**: 4 bytes per element; with error feedback 8 to check first, and 12 to truncate; with
//!   `code=huffman` values are sorted and looked up one by one.
//!
//! Reference: Li, Park, Alian, Yuan, Qu, Pan, Wang, Schwing, Esmaeilzadeh, Kim: "A Network-Centric
//! Hardware/Algorithm Co-Design to Accelerate Distributed Training of Deep Neural Networks", MICRO
//! 2018, section V.

mod check;
mod sorted;

use std::ops::Range;

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Cuts, TAGS};

use self::check::{INVALID, check_padding};
use crate::parameters::{either, whole};
use crate::parts::cut_mut;
use crate::wire::fields;
use crate::{
    BLOCK, Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Source,
    Statistics,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "inceptionn",
    summary: "32, 16, 8 or no bits by magnitude",
    formula: "x̂ = c where |c| ≥ 1; from 2^−⌊b/2⌋ truncated to multiples of 2^−15; from 2^−b \
        truncated to multiples of 2^−7; smaller elements 0",
    family: Family::Quantization,
    examples: &["b=20", "code=huffman", "b=126,code=huffman,ef=on", "b=1", "b=126,ef=on"],
    reference: "Li et al., MICRO 2018",
    payload: "2-bit tags, values of 4, 2, 1 or no bytes",
    ..Entry::of::<Inceptionn>(|_| {
        Guarantee::Neither("elements below a fixed magnitude are sent as 0")
    })
};

crate::parameters! {
    /// Truncation by magnitude.
    pub struct Inceptionn {
        /// elements below 2^−b are not sent; for b from 7 to 15, all elements below 2^−7 decode to
        /// 0, and for b of at least 30, all elements below 2^−15
        b: u32 = whole(10, 1..=126),
        /// tags and values uncoded, or sorted by size and Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl Inceptionn {
    /// The exponents below which an element gets tag 0, 1 or 2.
    fn cuts(&self) -> Cuts {
        Cuts { least: 127 - self.b, middle: 127 - self.b / 2 }
    }

    /// Writes the packed tags of a part, and appends its values.
    fn pack(&self, source: &mut Source<'_>, mut packed: &mut [u8], message: &mut Vec<u8>) {
        let (mut tags, mut words) = ([0; BLOCK], [0; BLOCK]);
        source.take_blocks(|_, block| {
            let (tags, words) = (&mut tags[..block.len()], &mut words[..block.len()]);
            kernels::truncate_residual(block, self.cuts(), tags, words);
            let packed = packed.split_off_mut(..tags.len().div_ceil(TAGS)).unwrap_or_default();
            kernels::pack_tags(tags, packed);
            kernels::pack_tagged(packed, words, message);
        });
    }
}

/// The packed tags of a tensor, which precede its values in the message but are complete only after
/// them.
#[derive(Debug, Default)]
struct Tags(Vec<u8>);

/// Calls `visit` with the tags and values of each block, until it returns false. `values` has as
/// many bytes as the tags require.
fn for_blocks(
    packed: &[u8],
    mut values: &[u8],
    elements: usize,
    mut visit: impl FnMut(&[u8], &[u32]) -> bool,
) -> bool {
    let (mut tags, mut words) = ([0; BLOCK], [0; BLOCK]);
    packed.chunks(BLOCK / TAGS).zip((0..elements).step_by(BLOCK)).all(|(packed, offset)| {
        let len = BLOCK.min(elements - offset);
        let (tags, words) = (&mut tags[..len], &mut words[..len]);
        kernels::unpack_tags(packed, tags);
        values = &values[kernels::unpack_tagged(packed, values, words)..];
        visit(tags, words)
    })
}

impl Compressor for Inceptionn {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        if self.huffman {
            sorted::encode(self.cuts(), source, workspace, message);
            return Coverage::All;
        }
        let Tags(mut tags) = std::mem::take(workspace.own());
        tags.resize(source.len().div_ceil(TAGS), 0);
        let start = message.len();
        // For all elements, so later messages allocate nothing.
        message.reserve(self.max_len(source.len()));
        message.resize(start + tags.len(), 0);
        let mut rest = &mut tags[..];
        let of_part = |part: Range<usize>| cut_mut(&mut rest, part.len().div_ceil(TAGS));
        source.append_in_parts(TAGS, workspace, message, of_part, |source, tags, message, _| {
            self.pack(source, tags, message);
        });
        message[start..][..tags.len()].copy_from_slice(&tags);
        *workspace.own() = Tags(tags);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        if self.huffman {
            return sorted::decode_add(self.cuts(), message, weight, workspace, out);
        }
        let tags = fields::take(&mut message, out.len().div_ceil(TAGS))?;
        check_padding(tags, out.len())?;
        fields::expect_len(message, kernels::tagged_len(tags))?;
        let (helpers, cuts) = (&mut workspace.helpers, self.cuts());
        let parts = helpers.parts(out.len(), TAGS);
        let of_parts = || {
            let mut values = message;
            tags.chunks(parts.len().div_ceil(TAGS)).zip(parts.places()).map(
                move |(tags, places)| {
                    let own = values.split_off(..kernels::tagged_len(tags)).unwrap_or_default();
                    (tags, own, places.len())
                },
            )
        };
        helpers.try_share(of_parts(), |(tags, values, elements)| {
            let is_valid = |tags: &_, words: &_| kernels::truncated_valid(tags, words, cuts);
            let valid = for_blocks(tags, values, elements, is_valid);
            valid.then_some(()).ok_or(INVALID)
        })?;
        let of_parts = of_parts().zip(out.chunks_mut(parts.len()));
        helpers.share(of_parts, |((tags, values, elements), out)| {
            let mut blocks = out.chunks_mut(BLOCK);
            for_blocks(tags, values, elements, |tags, words| {
                let out = blocks.next().unwrap_or_default();
                kernels::truncated_add(tags, words, weight, out);
                true
            });
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        if self.huffman { Statistics::Largest } else { Statistics::None }
    }

    fn max_len(&self, elements: usize) -> usize {
        let extra = if self.huffman { sorted::EXTRA } else { 0 };
        (elements.div_ceil(TAGS) + extra).saturating_add(elements.saturating_mul(4))
    }

    fn max_elements(&self, message_len: usize) -> usize {
        if self.huffman {
            sorted::max_elements(message_len)
        } else {
            message_len.saturating_mul(TAGS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{decode, encode, residual, round_trip};

    #[test]
    fn bytes_are_those_worked_by_hand() {
        // Tags 3, 2, 1, 0 and 2: 00 01 10 11, 10. 1.5 whole; −0.75 is 0x6000 of 2^15 and the sign;
        // 0.02 is 2 of 2^7; 0.03125 is 0x400 of 2^15.
        let gradient = [1.5, -0.75, 0.02, 0.0009, 0.031_25];
        let expected = [0b0001_1011, 0b10, 0, 0, 0xc0, 0x3f, 0, 0xe0, 2, 0, 4];
        assert_eq!(encode("inceptionn", &gradient), expected);
        let decoded = [1.5, -0.75, 0.015_625, 0.0, 0.031_25];
        assert_eq!(round_trip("inceptionn", &gradient), decoded);
        let left: Vec<f32> = gradient.iter().zip(decoded).map(|(g, d)| g - d).collect();
        assert_eq!(residual("inceptionn:ef=on", &gradient), left);
        assert!(encode("inceptionn", &[]).is_empty());
    }

    #[test]
    fn huffman_worked_by_hand() {
        // As above, by size: tags, 2; the upper bytes 0xe0 and 4; the lower ones, both 0; 1.5. With
        // so few, code lengths do not pay.
        let gradient = [1.5, -0.75, 0.02, 0.0009, 0.031_25];
        let sorted = [0, 0b0001_1011, 0b10, 0, 2, 0, 0xe0, 4, 0, 0, 0, 0, 0xc0, 0x3f];
        assert_eq!(encode("inceptionn:code=huffman", &gradient), sorted);
        assert_eq!(
            round_trip("inceptionn:code=huffman", &gradient),
            round_trip("inceptionn", &gradient)
        );
        // For 40 times 0.02 all bytes of tags are 85 and all values 2, so there are no streams.
        // Runs of 85, 170, 2 and 253 symbols without a code are 110 000000 1 101010, 110 0000000 1
        // 0101010, 110 0 1 0 and 110 0000000 1 1011111; between them one bit is 111 10000.
        let tags = [1, 0b0000_0011, 0b0101_0110, 0b0000_1111, 0b0000_0011, 0b0101_0100, 0b1];
        let values = [1, 0b1101_0011, 0b1100_0011, 0b0000_0000, 0b1111_1011];
        let message = encode("inceptionn:code=huffman", &[0.02; 40]);
        assert_eq!(message, [&tags[..], &values].concat());
        // 0.002 and its negative are 0 of 2^7.
        assert_eq!(encode("inceptionn:code=huffman", &[0.002, -0.002, 0.02]), [0, 0b01_0000, 0, 2]);
        assert!(encode("inceptionn:code=huffman", &[]).is_empty());
    }

    #[test]
    fn codes_do_not_change_what_is_decoded() {
        let gradient: Vec<f32> =
            (1..30_000).map(|i| (i as f32 / 14_000.0 - 1.07).powi(3)).collect();
        for b in [1, 2, 6, 10, 15, 40, 126] {
            let plain = format!("inceptionn:b={b}");
            let coded = format!("{plain},code=huffman");
            assert!(round_trip(&coded, &gradient) == round_trip(&plain, &gradient), "{b}");
            let kept = |spec: &str| residual(&format!("{spec},ef=on"), &gradient);
            assert!(kept(&coded) == kept(&plain));
            let [coded, plain] = [coded, plain].map(|spec| encode(&spec, &gradient).len());
            assert!(coded < plain, "{b}: {coded} and {plain}");
        }
    }

    #[test]
    fn malformed_coded_messages_are_refused() {
        let mut out = [0.0; 2];
        let mut result = |bytes: &[u8]| decode("inceptionn:code=huffman", bytes, 1.0, &mut out);
        let good = [0, 0b0110, 0, 1, 0, 4, 0];
        for end in 0..good.len() {
            assert_eq!(result(&good[..end]), Err(DecodeError::Truncated), "{end}");
        }
        assert_eq!(result(&[0, 0b0110, 0, 1, 0, 4, 0, 0]), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(result(&[0, 0b1_0000]), Err(DecodeError::Corrupt("a padding bit is set")));
        assert_eq!(result(&[7, 0]), Err(DecodeError::Corrupt("unknown symbol code")));
        let magnitude = DecodeError::Corrupt("a value is outside the range of its tag");
        assert_eq!(result(&[0, 0b0110, 0, 4, 0, 4, 0]), Err(magnitude.clone()));
        assert_eq!(result(&[0, 0b0110, 0, 1, 0, 3, 255]), Err(magnitude.clone()));
        assert_eq!(result(&[0, 0b0011, 0, 0, 0x80, 0x7f]), Err(magnitude));
        assert_eq!(result(&good), Ok(()));
        assert_eq!(out, [0.031_25, 0.007_812_5]);
    }

    #[test]
    fn the_bound_moves_the_tags() {
        // With b = 4 tags change at 1/16 and 1/4: 0.3 has 16 bits (9830 of 2^15), 0.1 has 8 (12 of
        // 2^7), 0.05 none.
        let expected = [0b00_0110, 0x66, 0x26, 12];
        assert_eq!(encode("inceptionn:b=4", &[0.3, 0.1, 0.05]), expected);
        // With b = 1 no value has 16 bits.
        assert_eq!(encode("inceptionn:b=1", &[0.6, 0.4]), [0b0001, 76]);
    }

    #[test]
    fn errors_are_those_of_the_tags() {
        let gradient: Vec<f32> =
            (1..30_000).map(|i| (i as f32 / 14_000.0 - 1.07).powi(3)).collect();
        for b in [1, 2, 6, 10, 11, 20, 40] {
            let decoded = round_trip(&format!("inceptionn:b={b}"), &gradient);
            for (x, y) in gradient.iter().zip(decoded) {
                let (size, error) = (x.abs(), (x - y).abs());
                let bound = match size {
                    1.0.. => 0.0,
                    _ if size < 2f32.powi(-b) => size,
                    _ if size >= 2f32.powi(-(b / 2)) => 2f32.powi(-15),
                    _ => 2f32.powi(-7),
                };
                assert!(error <= bound && y.abs() <= size, "{b}: {x} as {y}");
            }
        }
    }

    #[test]
    fn the_least_element_that_does_not_become_0() {
        for (b, power) in
            [(1, 1), (6, 6), (7, 7), (10, 7), (15, 7), (16, 8), (29, 14), (30, 15), (126, 15)]
        {
            let least = 2f32.powi(-power);
            let spec = format!("inceptionn:b={b}");
            assert_eq!(round_trip(&spec, &[least, least.next_down()]), [least, 0.0], "{spec}");
        }
    }

    #[test]
    fn large_values_are_exact() {
        let gradient = [f32::MAX, -1.0, 12.345, f32::MIN];
        assert_eq!(round_trip("inceptionn", &gradient), gradient);
        assert_eq!(round_trip("inceptionn", &[f32::from_bits(1), -1e-30]), [0.0, 0.0]);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let mut out = [0.0; 2];
        let mut result = |bytes: &[u8]| decode("inceptionn", bytes, 1.0, &mut out);
        assert_eq!(result(&[]), Err(DecodeError::Truncated));
        assert_eq!(result(&[0b0110, 0, 4]), Err(DecodeError::Truncated));
        assert_eq!(result(&[0b0110, 0, 4, 1, 0]), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(result(&[0b1_0000]), Err(DecodeError::Corrupt("a padding bit is set")));
        let magnitude = DecodeError::Corrupt("a value is outside the range of its tag");
        assert_eq!(result(&[0b0110, 0, 3, 1]), Err(magnitude.clone()));
        assert_eq!(result(&[0b0011, 0, 0, 0x80, 0x7f]), Err(magnitude));
        assert_eq!(result(&[0b0110, 0, 4, 1]), Ok(()));
        assert_eq!(out, [0.031_25, 0.007_812_5]);
    }
}
