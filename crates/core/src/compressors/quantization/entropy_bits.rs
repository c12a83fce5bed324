//! `entropy-bits`: uniform bins in Huffman code; their number depends on the entropy.
//!
//! - **Bits** (section 3.4): H is the entropy of a random sample (a fraction F of the elements, at
//!   least 4096, in runs of 16 neighbours) in 2^M bins between the tensor's least and greatest
//!   value. N = H + c, rounded to the nearest whole number from 1 to 16. `bits` sets N directly.
//! - **Values**: the range is cut into 2^N bins of equal width; an element decodes to the middle of
//!   its bin.
//! - **Message**: a byte with N (lowest 5 bits) and the code of the bins (bits 5 to 7: 0 fixed
//!   width, 1 a stream of Huffman code, 2 tANS, 3 four streams of Huffman code, 4 tANS of groups, 5
//!   a significance map); the least value as f32. The message of a constant tensor ends here, with
//!   N = 0. Otherwise the greatest value follows as f32, and the code with its streams, or bins in
//!   N bits each if this is not longer; `code=fixed` always uses N bits. An empty tensor has an
//!   empty message.
//! - **Range**: up to 2³² − 1 elements.
//! - **Error feedback**: off; the method is made for weights, which are sent as a whole each time.
//!   With it, for gradients and updates, the residual is the difference from the middle of the bin.
//! - **Deviations**: Algorithm 1 counts bins from the greatest value down and Algorithm 2 from the
//!   least up; both count up here. At least 4096 elements are sampled; the paper gives only the
//!   fraction, which would be 15 of the 500 weights of its smallest layer. The code is sent as code
//!   lengths; the paper sends packed probabilities. Lengths are limited to 12 bits for up to 1024
//!   bins, and to N + 2 bits for more.
//! - **Cost**: 4 bytes per element for the extremes, 4 to quantize (with error feedback 8 and 12),
//!   4 to write and read the bins, and Huffman coding.
//!
//! Reference: Øland, Raj: "Reducing Communication Overhead in Distributed Learning by an Order of
//! Magnitude (Almost)", ICASSP 2015.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::kernels::{self, Bins};
use gradwire_bits::{DecodeError, fixed, huffman, try_resize};

use crate::numeric::selection::{self, at_random};
use crate::parameters::{either, real, whole};
use crate::wire::fields;
use crate::wire::symbols::{Alphabet, Coding, fill_symbols, memory};
use crate::workspace::SymbolCoder;
use crate::{
    Compressor, Context, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes,
    Source, Statistics, Unit, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "entropy-bits",
    summary: "bins with a number of bits that depends on the entropy, Huffman coded",
    formula: "x̂ = middle of the element's bin, of 2^N equal bins from min to max; N = \
        round(estimated entropy + parameter c)",
    family: Family::Quantization,
    examples: &["bits=7,code=fixed,ef=on", "c=1"],
    reference: "Øland, Raj, ICASSP 2015",
    payload: "N and code u8, least f32, greatest f32, [lengths], bins",
    passes: Passes::TWO,
    ..Entry::of::<EntropyBits>(|_| {
        Guarantee::Neither("the middle of a bin may be farther from a small element than 0 is")
    })
};

/// The most bits of a bin's number.
const MOST_BITS: u32 = 16;
/// Bits of the head that N takes.
const BITS: u32 = 5;
/// The codes of the bins, by the number in the other bits of the head.
const CODES: [Option<Coding>; 6] = [
    None,
    Some(Coding::Single),
    Some(Coding::Tans),
    Some(Coding::Four),
    Some(Coding::Groups),
    Some(Coding::Significance),
];
/// The fewest elements of a sample.
const MIN_SAMPLE: usize = 4096;

crate::parameters! {
    /// Quantization by entropy.
    pub struct EntropyBits {
        /// bits per element above the entropy
        floor("c"): f64 = real(5.0, Included(0.0), Included(16.0)),
        /// the entropy is computed over 2^m bins
        preliminary("m"): u32 = whole(4, 1..=12),
        /// fraction of the elements that the entropy is computed from
        sample("f"): f64 = real(0.03, Excluded(0.0), Included(1.0)),
        /// fixed number of bits per element; 0: chosen by the entropy
        fixed("bits"): u32 = whole(0, 0..=MOST_BITS as u64),
        /// bins Huffman coded, or of fixed width
        packed("code"): bool = either(&["huffman", "fixed"]),
    }
}

impl EntropyBits {
    /// The most bits that a message may have.
    fn most_bits(&self) -> u32 {
        let most = (f64::from(self.preliminary) + self.floor).round() as u32;
        if self.fixed > 0 { self.fixed } else { most.clamp(1, MOST_BITS) }
    }

    /// Reserves memory for the largest number of bits, so later messages allocate nothing.
    fn reserve(&self, elements: usize, coder: &mut SymbolCoder) {
        let symbols = 1 << self.most_bits();
        let SymbolCoder { counts, code, .. } = coder;
        counts.clear();
        counts.reserve(symbols.max(1 << self.preliminary));
        if !self.packed {
            code.reserve(symbols);
            memory::reserve(elements, coder);
        }
    }

    /// The number of bits for a tensor with these extreme values.
    fn bits(
        &self,
        source: &mut Source<'_>,
        range: (f32, f32),
        context: &Context<'_>,
        workspace: &mut Workspace,
    ) -> u32 {
        if self.fixed > 0 {
            return self.fixed;
        }
        let Workspace { symbols, coder: SymbolCoder { counts, .. }, own, .. } = workspace;
        let sample = &mut own.get::<selection::SelectionBuffers>().candidates;
        let size = (self.sample * source.len() as f64) as usize;
        at_random(source, size, MIN_SAMPLE, &mut context.rng(0), sample);
        symbols.clear();
        symbols.resize(sample.len(), 0);
        kernels::bin_of(sample, bins(range, self.preliminary), symbols);
        counts.clear();
        counts.resize(1 << self.preliminary, 0);
        symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
        let bits = (entropy(counts, symbols.len()) + self.floor).round() as u32;
        bits.clamp(1, self.most_bits())
    }
}

/// 2^N bins between the extremes.
fn bins((least, greatest): (f32, f32), bits: u32) -> Bins {
    let (least, greatest) = (f64::from(least), f64::from(greatest));
    let count = 1u32 << bits;
    Bins { least, width: (greatest - least) / f64::from(count), top: (count - 1) as u16 }
}

/// The alphabet of the bins' numbers.
fn alphabet(bits: u32) -> Alphabet {
    Alphabet::new(1 << bits, false)
}

/// The entropy of a histogram of `elements` elements, in bits.
fn entropy(counts: &[u32], elements: usize) -> f64 {
    let part = |&count: &u32| {
        let p = f64::from(count) / elements as f64;
        -p * p.log2()
    };
    counts.iter().filter(|&&count| count > 0).map(part).sum()
}

impl Compressor for EntropyBits {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, context, workspace, message } = args;
        if source.is_empty() {
            return Coverage::All;
        }
        let range = source.extremes();
        if range.0 == range.1 {
            message.push(0);
            fields::put_f32(range.0, message);
            source.take_blocks(|_, block| block.iter_mut().for_each(|x| *x -= range.0));
            return Coverage::All;
        }
        self.reserve(source.len(), &mut workspace.coder);
        let bits = self.bits(source, range, context, workspace);
        let bins = bins(range, bits);
        let none = |_| ();
        fill_symbols(source, workspace, none, |_, block, symbols, _, _| {
            kernels::bin_of(block, bins, symbols);
            kernels::middle_off(block, symbols, bins);
        });
        let head = message.len();
        message.push(bits as u8);
        fields::put_f32s(&[range.0, range.1], message);
        let (alphabet, Workspace { symbols, coder, .. }) = (alphabet(bits), workspace);
        let coded = if self.packed { None } else { alphabet.put_coded(symbols, coder, message) };
        if coded.is_none() {
            alphabet.put_fixed(symbols, message);
        }
        let code = CODES.iter().position(|code| *code == coded).expect("every code is in the list");
        message[head] |= (code as u8) << BITS;
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        if out.is_empty() {
            return fields::expect_len(message, 0);
        }
        let head = fields::take(&mut message, 1)?[0];
        let bits = u32::from(head & ((1 << BITS) - 1));
        let coding = CODES.get(usize::from(head >> BITS));
        let &coding = coding.ok_or(DecodeError::Corrupt("unknown bin code"))?;
        if bits > self.most_bits() || (bits == 0 && coding.is_some()) {
            return Err(DecodeError::Corrupt("there are more bits than configured"));
        }
        let least = fields::take_finite(&mut message)?;
        if bits == 0 {
            fields::expect_len(message, 0)?;
            let value = weight * least;
            out.iter_mut().for_each(|x| *x += value);
            return Ok(());
        }
        if self.fixed > 0 && bits != self.fixed {
            return Err(DecodeError::Corrupt("the number of bits is not the configured one"));
        }
        let greatest = fields::take_finite(&mut message)?;
        if least >= greatest {
            return Err(DecodeError::Corrupt("the greatest value is not above the least"));
        }
        let Workspace { symbols, coder, helpers, .. } = workspace;
        try_resize(symbols, out.len(), 0)?;
        if let Some(coding) = coding {
            // For the largest number of bits, so later messages allocate nothing.
            let largest = 1 << self.most_bits();
            coder.code.try_reserve(largest, huffman::limit(largest))?;
            memory::try_reserve(out.len(), coder)?;
            read_coded(coding, message, bits, coder, symbols)?;
        } else {
            fields::expect_len(message, fixed::len(out.len(), bits))?;
            alphabet(bits).take_fixed(&mut message, symbols, helpers)?;
        }
        let bins = bins((least, greatest), bits);
        helpers.add_in_parts(symbols, Unit::ONE, out, |_, symbols, out| {
            kernels::middle_add(symbols, bins, weight, out);
        });
        Ok(())
    }

    fn statistics(&self, _: usize) -> Statistics {
        Statistics::Extremes
    }

    fn max_len(&self, elements: usize) -> usize {
        9 + fixed::len(elements, self.most_bits())
    }
}

/// Reads bins in an entropy code from exactly these bytes.
fn read_coded(
    coding: Coding,
    mut message: &[u8],
    bits: u32,
    coder: &mut SymbolCoder,
    symbols: &mut [u16],
) -> Result<(), DecodeError> {
    coding.take(&mut message, 1 << bits, coder, symbols)?;
    // The least and the greatest value are in different bins.
    if symbols.iter().all(|symbol| *symbol == symbols[0]) {
        return Err(DecodeError::Corrupt(
            "all elements of a tensor with two values are in one bin",
        ));
    }
    fields::expect_len(message, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    #[test]
    fn fixed_bits_worked_by_hand() {
        // Four bins from −1 to 1: 0, 1, 2, 3 and 3, from the lowest bit: 00 10 01 11, 11.
        let gradient = [-1.0, -0.25, 0.25, 0.75, 1.0];
        let expected = [2, 0, 0, 0x80, 0xbf, 0, 0, 0x80, 0x3f, 0b1110_0100, 0b11];
        assert_eq!(encode("entropy-bits:bits=2,code=fixed", &gradient), expected);
        // Middles at −0.75, −0.25, 0.25 and 0.75.
        let decoded = [-0.75, -0.25, 0.25, 0.75, 0.75];
        assert_eq!(round_trip("entropy-bits:bits=2,code=fixed", &gradient), decoded);
        let left = [-0.25, 0.0, 0.0, 0.0, 0.25];
        assert_eq!(residual("entropy-bits:bits=2,code=fixed,ef=on", &gradient), left);
    }

    #[test]
    fn huffman_worked_by_hand() {
        // 98 zeros and two ones in four bins: 0 and 3 with a bit each, the twos at the end.
        let mut gradient = [0.0; 100];
        gradient[98..].fill(1.0);
        let message = encode("entropy-bits:bits=2", &gradient);
        assert_eq!(message[..9], [2 | 1 << 5, 0, 0, 0, 0, 0, 0, 0x80, 0x3f]);
        // Lengths 1, 0, 0, 1: 111 and 1 as five bits, 10000; a run of two, 110 010; the same again,
        // 0.
        assert_eq!(message[9..11], [0b0000_1111, 0b001_0011]);
        let mut stream = [0; 13];
        stream[12] = 0b1100;
        assert_eq!(message[11..], stream);
        let decoded = round_trip("entropy-bits:bits=2", &gradient);
        assert_eq!((decoded[0], decoded[99]), (0.125, 0.875));
    }

    #[test]
    fn one_value_takes_five_bytes() {
        assert_eq!(encode("entropy-bits", &[1.5; 1000]), [0, 0, 0, 0xc0, 0x3f]);
        assert_eq!(round_trip("entropy-bits", &[1.5; 1000]), [1.5; 1000]);
        assert_eq!(residual("entropy-bits:ef=on", &[1.5; 3]), [0.0; 3]);
        assert!(encode("entropy-bits", &[]).is_empty());
    }

    #[test]
    fn bits_are_the_entropy_and_so_many_more() {
        // Sixteen values equally often: 4 bits of entropy. Two: 1 bit.
        let sixteen: Vec<f32> = (0..1600).map(|x| (x % 16) as f32).collect();
        let two: Vec<f32> = (0..1600).map(|x| (x % 2) as f32).collect();
        let bits = |spec: &str, gradient: &[f32]| encode(spec, gradient)[0] & 0x1f;
        assert_eq!(bits("entropy-bits", &sixteen), 9);
        assert_eq!(bits("entropy-bits:c=6", &sixteen), 10);
        assert_eq!(bits("entropy-bits", &two), 6);
        assert_eq!(bits("entropy-bits:c=0,m=1", &sixteen), 1);
        assert_eq!(bits("entropy-bits:c=16", &sixteen), 16);
    }

    #[test]
    fn extremes_of_the_format_decode_to_finite_numbers() {
        let gradient = [f32::MAX, -f32::MAX, 0.0, 1.0];
        assert!(round_trip("entropy-bits", &gradient).iter().all(|x| x.is_finite()));
        let smallest = f32::from_bits(1);
        let decoded = round_trip("entropy-bits", &[0.0, smallest]);
        assert!(decoded.iter().all(|x| (0.0..=smallest).contains(x)));
    }

    #[test]
    fn a_pattern_of_equal_groups_returns() {
        // Three parts of equal length: all groups of three have the same value.
        let parts = [0.0, 1.0, 0.0].map(|x| vec![x; 5000]).concat();
        let message = encode("entropy-bits:bits=1", &parts);
        assert_eq!(message[0], 4 << 5 | 1);
        let bins: Vec<f32> = parts.iter().map(|x| 0.25 + 0.5 * x).collect();
        assert_eq!(round_trip("entropy-bits:bits=1", &parts), bins);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |message: &[u8]| refused("entropy-bits", 1, message);
        // Four and five are nine.
        let bits = DecodeError::Corrupt("there are more bits than configured");
        assert_eq!(result(&[10, 0, 0, 0, 0]), bits);
        assert_eq!(result(&[0x40, 0, 0, 0, 0]), bits);
        assert_eq!(result(&[0x60, 0, 0, 0, 0]), bits);
        assert_eq!(result(&[0xc1, 0, 0, 0, 0]), DecodeError::Corrupt("unknown bin code"));
        assert_eq!(result(&[0x80, 0, 0, 0, 0]), bits);
        assert_eq!(result(&[0x20, 0, 0, 0, 0]), bits);
        let order = DecodeError::Corrupt("the greatest value is not above the least");
        assert_eq!(result(&[1, 0, 0, 0x80, 0x3f, 0, 0, 0x80, 0x3f, 0]), order);
        // Only one of two bins has a code.
        let one = DecodeError::Corrupt("all elements of a tensor with two values are in one bin");
        let range = [1 | 1 << 5, 0, 0, 0, 0, 0, 0, 0x80, 0x3f];
        assert_eq!(result(&[&range[..], &[0b0000_1111, 0b1011]].concat()), one);
        // In tANS distance 1 and share 4096 are 1, 0001101 and twelve zeros. State 0 is 0001 and
        // twelve zeros.
        let range = [1 | 2 << 5, 0, 0, 0, 0, 0, 0, 0x80, 0x3f];
        let coded = [0b1011_0001, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0b1000, 0];
        assert_eq!(result(&[&range[..], &coded].concat()), one);
        let agreed = DecodeError::Corrupt("the number of bits is not the configured one");
        let message = encode("entropy-bits:bits=3", &[0.0, 1.0]);
        assert_eq!(refused("entropy-bits:bits=4", 2, &message), agreed);
    }
}
