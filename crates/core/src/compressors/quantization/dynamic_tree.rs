//! `8bit`: rounds each element, relative to the largest, to the nearest of 256 numbers that are
//! dense near zero.
//!
//! A byte is a sign and seven bits p: z zeros, a one, and a number k of 6 − z bits. It encodes sign
//! · 10^−z · (0.1 + 0.9·(k + ½) / 2^(6−z)) times max|c|: z selects a decade, which is cut into
//! 2^(6−z) equal parts, and k selects the middle of a part. p = 0 is 0, or 1 if the sign bit is
//! set. Values increase with p, from 0.55·10⁻⁶ to 0.993; an element becomes the nearest value.
//!
//! - **Message**: max|c| as f32, then d bytes, the sign in the highest bit: 8·d + 32 bits.
//!   `code=huffman` puts the bytes in [Huffman code](gradwire_bits::huffman) if that is shorter.
//! - **Error**: at most half the distance between two numbers: 6 % of the element's magnitude in
//!   the highest decade, 11 % in the next, 18 % in the third; elements below 10⁻⁶ of the largest
//!   become 0 or 0.55·10⁻⁶ of it.
//! - **Error feedback**: on.
//! - **Limits**: if 1 / max|c| overflows (max|c| below about 3·10⁻³⁹), the scale is sent as zero
//!   and everything stays in the residual.
//! - **Deviations**: the paper does not define p = 0 with the sign bit set; here it is 1, as in the
//!   author's later code (bitsandbytes), so a positive largest element is exact.
//! - **Cost**: 8 bytes per element for the maximum, 12 to quantize; with `code=huffman` 4 to write
//!   and read the bytes. An element takes two look-ups: its upper bits select a table cell with one
//!   limit to compare with.
//!
//! Reference: Dettmers: "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016, section
//! 2.

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::{self, Codebook};

use crate::device::dense::{DenseForm, Direction, copy};
use crate::device::{DeviceArgs, DeviceForm};
use crate::parameters::{Parameters, either};
use crate::wire::symbols::Alphabet;
use crate::wire::{fields, levels};
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Properties,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "8bit",
    summary: "the nearest of 256 values that are dense near zero",
    formula: "x̂ = max|c|·(the nearest to c/max|c| of 0, 1 and ±10^−z·(0.1 + 0.9·(k + ½)/2^(6−z)))",
    family: Family::Quantization,
    error_feedback: true,
    examples: &["code=huffman,ef=off", "code=huffman"],
    reference: "Dettmers, ICLR 2016",
    payload: "largest f32, d × u8",
    passes: Passes::TWO,
    properties: |values| {
        let value_bits = DynamicTree::new(values).bytes().value_bits();
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::of::<DynamicTree>(|_| Guarantee::Contractive)
};

const HEADER: usize = 4;
/// The byte of 1; in all other bytes, the sign bit.
const ONE: u8 = 0x80;

/// The value of each byte.
static VALUES: [f32; 256] = values();

const fn values() -> [f32; 256] {
    let mut values = [0.0; 256];
    let mut p = 1u32;
    while p < 128 {
        let bits = p.ilog2();
        let (parts, k) = ((1 << bits) as f64, (p - (1 << bits)) as f64);
        let mut decade = 20.0 * parts;
        let mut zeros = 6 - bits;
        while zeros > 0 {
            decade *= 10.0;
            zeros -= 1;
        }
        // 10^−z · (0.1 + 0.9·(k + ½) / parts), in whole numbers up to the division.
        let value = ((2.0 * parts + 18.0 * k + 9.0) / decade) as f32;
        values[p as usize] = value;
        values[(p | ONE as u32) as usize] = -value;
        p += 1;
    }
    values[ONE as usize] = 1.0;
    values
}

/// The limits between neighbouring values: half way.
const LIMITS: [f32; 128] = limits();

static BOOK: Codebook = Codebook::new(&LIMITS);

const fn limits() -> [f32; 128] {
    let mut limits = [0.0; 128];
    let mut p = 0;
    while p < 128 {
        limits[p] = ((VALUES[p] as f64 + VALUES[p + 1] as f64) / 2.0) as f32;
        p += 1;
    }
    limits
}

/// Every value, times the scale.
fn scaled(scale: f32) -> [f32; 256] {
    VALUES.map(|value| scale * value)
}

crate::parameters! {
    /// Quantization to a dynamic tree.
    pub struct DynamicTree {
        /// symbols of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

impl DynamicTree {
    fn bytes(&self) -> Alphabet {
        Alphabet::new(256, self.huffman)
    }
}

impl Compressor for DynamicTree {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let (scale, inverse) = levels::invertible(source.abs_max());
        fields::put_f32(scale, message);
        let values = scaled(scale);
        let quantize = |_, block: &mut [f32], symbols: &mut [u16], _: &mut (), _: &mut _| {
            kernels::nearest_residual(block, inverse, &BOOK, &values, symbols);
        };
        self.bytes().encode(source, workspace, message, |_| (), quantize);
        Coverage::All
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let values = scaled(weight * fields::take_scale(&mut message)?);
        let (symbols, helpers) = self.bytes().view(&mut message, out.len(), workspace)?;
        fields::expect_len(message, 0)?;
        symbols.add(out, helpers, |_, symbols, out| {
            kernels::numbers_add(symbols, &values, out);
        });
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        self.bytes().max_len(elements).saturating_add(HEADER)
    }

    fn max_elements(&self, message_len: usize) -> usize {
        self.bytes().max_elements(message_len.saturating_sub(HEADER))
    }

    fn device_form(&self) -> Option<&dyn DeviceForm> {
        Some(self)
    }
}

/// Scale and bytes, as in the message without Huffman code.
impl DenseForm for DynamicTree {
    fn convert(&self, direction: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        let DeviceArgs { from, to, elements, workspace, .. } = args;
        let mut rest = from;
        fields::take_scale(&mut rest)?;
        copy(&from[..HEADER], to)?;
        direction.take(self.bytes(), &mut rest, elements, workspace)?;
        fields::expect_len(rest, 0)?;
        direction.put(self.bytes(), workspace, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{encode, refused, residual, round_trip};

    /// The tree read bit by bit.
    fn value(byte: u8) -> f64 {
        let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
        let bits = format!("{:07b}", byte & 0x7f);
        let Some(zeros) = bits.find('1') else { return if sign > 0.0 { 0.0 } else { 1.0 } };
        let rest = &bits[zeros + 1..];
        let parts = f64::from(1u32 << rest.len());
        let k = if rest.is_empty() { 0.0 } else { f64::from(u8::from_str_radix(rest, 2).unwrap()) };
        sign * 10f64.powi(-(zeros as i32)) * (0.1 + 0.9 * (k + 0.5) / parts)
    }

    #[test]
    fn values_are_those_of_the_tree() {
        for byte in 0..=255u8 {
            let (found, expected) = (f64::from(VALUES[usize::from(byte)]), value(byte));
            assert!((found - expected).abs() <= 1e-7 * expected.abs(), "{byte}: {found}");
        }
        // Values of the published map: the ends and the edges of a decade.
        assert_eq!(VALUES[1], 5.5e-7);
        assert_eq!([VALUES[2], VALUES[3]], [3.25e-6, 7.75e-6]);
        assert_eq!([VALUES[64], VALUES[127]], [0.107_031_25, 0.992_968_75]);
        assert_eq!([VALUES[63], VALUES[0x80]], [0.098_593_75, 1.0]);
    }

    #[test]
    fn the_nearest_value_is_found() {
        // Every limit with its neighbours, and numbers across the range.
        let limits = LIMITS.iter().flat_map(|limit| [limit.next_down(), *limit, limit.next_up()]);
        let spread = (0..190_000).map(|i| f32::from_bits(0x3400_0000 + i * 1_000));
        let numbers: Vec<f32> = limits.chain(spread).chain([1.0, 1e-30, 1e-45]).collect();
        let numbers: Vec<f32> = numbers.iter().flat_map(|&x| [x, -x]).collect();
        for (&x, found) in numbers.iter().zip(round_trip("8bit", &numbers)) {
            let distance = |value: f32| (f64::from(x) - f64::from(value)).abs();
            let least = VALUES.iter().map(|&value| distance(value)).fold(f64::INFINITY, f64::min);
            // A limit is rounded to 24 bits, and so are the distances to either side.
            let room = 1.2e-7 * f64::from(x.abs());
            assert!(distance(found) <= least + room, "{x}: {found}");
        }
    }

    #[test]
    fn bytes_are_those_worked_by_hand() {
        // In units of 2: 1; −0.993; 0.11 to 0.107 (no zeros, k = 0); −0.05 to −0.0508 (one zero,
        // k = 14); 0; 0.
        let gradient = [2.0, -2.0, 0.22, -0.1, 0.0, 1e-9];
        let expected = [0, 0, 0, 0x40, 0x80, 0xff, 0b100_0000, 0b1010_1110, 0, 0];
        assert_eq!(encode("8bit", &gradient), expected);
        let decoded = [2.0, -1.985_937_5, 0.214_062_5, -0.101_562_5, 0.0, 0.0];
        assert_eq!(round_trip("8bit", &gradient), decoded);
        let left: Vec<f32> = gradient.iter().zip(decoded).map(|(g, d)| g - d).collect();
        assert_eq!(residual("8bit", &gradient), left);
    }

    #[test]
    fn huffman_worked_by_hand() {
        // Only ones: symbol 128 of 256, one bit, no stream. Runs of 128 and of 127 without a code
        // are 110 0000000 1 0000000 and 110 000000 1 111111; the length is 111 10000.
        let lengths = [0b0000_0011, 0b0000_0100, 0b0011_1100, 0b0000_1100, 0b1111_1000, 0b11];
        let expected = [&[0, 0, 0x80, 0x3f, 1], &lengths[..]].concat();
        assert_eq!(encode("8bit:code=huffman", &[1.0; 90]), expected);
        assert_eq!(round_trip("8bit:code=huffman", &[1.0; 90]), [1.0; 90]);
    }

    #[test]
    fn the_ends_of_the_range_stay_finite() {
        let decoded = round_trip("8bit", &[f32::MAX, f32::MIN]);
        assert_eq!(decoded[0], f32::MAX);
        assert!(decoded[1].is_finite() && decoded[1] < -3.3e38);
        let tiny = [f32::from_bits(1), -f32::from_bits(9)];
        assert_eq!(round_trip("8bit", &tiny), [0.0, 0.0]);
        assert_eq!(residual("8bit", &tiny), tiny);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let result = |bytes: &[u8]| refused("8bit", 2, bytes);
        assert_eq!(result(&[0, 0, 0x80, 0x3f, 1]), DecodeError::Truncated);
        assert_eq!(result(&[0, 0, 0x80, 0x3f, 1, 1, 1]), DecodeError::Trailing { extra: 1 });
        assert!(matches!(result(&[0, 0, 0x80, 0x7f, 1, 1]), DecodeError::Corrupt(_)));
        assert!(matches!(result(&[0, 0, 0x80, 0xbf, 1, 1]), DecodeError::Corrupt(_)));
    }
}
