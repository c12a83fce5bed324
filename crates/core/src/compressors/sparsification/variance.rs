//! `variance`: sends the elements that are large compared with their variance over micro-batches.
//!
//! A worker's gradient is the sum of parts, one per micro-batch. Elementwise, r is the sum of the
//! unsent gradients, and v the sum of the squares of their parts. If the parts of an element mostly
//! agree, r² is well above v; for noise, it is not. An element is sent if `r² > α·v`, and its r and
//! v become zero; otherwise v is multiplied by ζ, so every element is sent eventually.
//!
//! A value takes 4 bits: its sign, and its exponent relative to M, the largest power of two that
//! does not exceed the largest sent value. Values are rounded to the nearest power of two, at most
//! M. Elements rounded to M·2⁻⁸ or less are sent in a later step.
//!
//! - **Message**: a byte with the code of the positions, the count as varint and, unless it is 0,
//!   the exponent of M as i16, half a byte per element (3 bits of relative exponent, then the sign;
//!   the first in the low half), and the positions in the shortest code. `code=huffman` uses
//!   [Huffman code](gradwire_bits::huffman) for the half bytes if that is shorter.
//! - **Range**: alpha (α) at least 0, in the paper 1 to 2; zeta (ζ) in (0, 1\].
//! - **Memory**: r is the residual, and v is a second array. As in the paper, r does not keep
//!   rounding errors: their variance is 0, so they would be sent at once. But a server that sends
//!   changes of a model, and the owner of a slice that sends a mean, keep them, so nothing is lost.
//!   Without error feedback r is the latest gradient.
//! - **Moments**: [`Input::squares`](crate::Input::squares); a gradient without them counts as one
//!   part. The trainer divides a batch of images into four. Batch normalisation then takes the
//!   statistics of each quarter. A step takes longer, which modelled step times ignore.
//! - **Deviations**: positions are entropy-coded; the paper uses 28 bits each. An element is never
//!   sent if its square is below the range of `f32`, and always if it is above.
//! - **Cost**: 8 bytes per element for the squares, 8 for the maximum, 12 to find M, 20 to select.
//!
//! Reference: Tsuzuku, Imachi, Akiba: "Variance-based Gradient Compression for Efficient
//! Distributed Deep Learning", ICLR workshop 2018, Algorithm 1 and §4.2.

use std::ops::Bound::{Excluded, Included};

use gradwire_bits::{DecodeError, varint};

use crate::memories::{Memory, Squares};
use crate::parameters::{Parameters, either, real};
use crate::parts::PartResult;
use crate::wire::fields;
use crate::wire::positions::{self, PositionCode};
use crate::wire::symbols::Alphabet;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Properties,
    Source, Workspace,
};

pub(crate) static ENTRY: Entry = Entry {
    id: "variance",
    summary: "elements whose micro-batch gradients mostly agree (the squared sum exceeds alpha \
        times the sum of squares), in 4 bits each",
    formula: "x̂ = r rounded to a power of two where r² > α·v; r is the sum of gradients not \
        sent, v the sum of the squares of their parts",
    family: Family::Sparsification,
    sparse: true,
    error_feedback: true,
    examples: &["alpha=0.5", "alpha=0.5,code=huffman"],
    reference: "Tsuzuku et al., ICLR workshop 2018",
    payload: "code u8, count varint, [exponent i16, count × 4 bits, positions]",
    passes: Passes { memory: 12, ..Passes::TWO },
    properties: |values| {
        let value_bits = Variance::new(values).levels().value_bits();
        Properties { value_bits, ..Properties::DEFAULT }
    },
    ..Entry::of::<Variance>(|_| {
        Guarantee::Neither("elements whose parts disagree are not sent, however large they are")
    })
};

crate::parameters! {
    /// Sparsification by variance.
    pub struct Variance {
        /// send an element if its square exceeds this multiple of its variance
        pub alpha: f32 = real(1.0, Included(0.0), Included(1e6)),
        /// decay of the variance in each step in which the element is not sent
        pub zeta: f32 = real(0.999, Excluded(0.0), Included(1.0)),
        /// symbols of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

/// Signs and powers of two.
const LEVELS: usize = 16;
/// The number of relative exponents that 3 bits can represent.
const POWERS: i32 = 8;
/// The exponents of `f32`, down to the smallest subnormal number.
const EXPONENTS: std::ops::RangeInclusive<i32> = -149..=127;

/// The exponent of a number that is not zero.
fn exponent(x: f32) -> i32 {
    (f64::from(x).to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// The exponent of the nearest power of two.
fn nearest(x: f32) -> i32 {
    ((f64::from(x).to_bits() + (1 << 51)) >> 52 & 0x7ff) as i32 - 1023
}

impl Variance {
    fn levels(&self) -> Alphabet {
        Alphabet::new(LEVELS, self.huffman)
    }

    fn decides(&self, r: f32, v: f32) -> bool {
        // No square exceeds an overflowing α·v, so the largest number limits it; `min` would be
        // slower. The product r·r is rounded like the square of a single part; in double precision
        // it could exceed that square.
        let level = self.alpha * v;
        r * r > if level < f32::MAX { level } else { f32::MAX }
    }

    /// A bit for each of up to 64 elements, from the lowest up: whether it is sent.
    fn sent(&self, block: &[f32], squares: &[f32], least: f64) -> u64 {
        let is_sent = |(&r, &v): (&f32, &f32)| self.decides(r, v) & (f64::from(r.abs()) >= least);
        let bit = |sent: u64, (at, pair)| sent | u64::from(is_sent(pair)) << at;
        block.iter().zip(squares).enumerate().fold(0, bit)
    }

    /// The exponent of M; `None` if there is nothing to send. The helpers share the pass.
    fn largest(&self, source: &mut Source<'_>, workspace: &mut Workspace) -> Option<i32> {
        let mut largest = Largest(0.0);
        source.merge_parts(1, workspace, &mut largest, |source, Largest(largest)| {
            source.peek_blocks_with_kept(|block, squares| {
                let clear = |(&r, &v): (&f32, &f32)| if self.decides(r, v) { r.abs() } else { 0.0 };
                *largest = block.iter().zip(squares).map(clear).fold(*largest, f32::max);
            });
        });
        (largest.0 > 0.0).then(|| exponent(largest.0))
    }

    /// Moves the elements to send from a part of the tensor to lists of positions and symbols.
    fn take(
        &self,
        source: &mut Source<'_>,
        top: i32,
        positions: &mut Vec<u32>,
        symbols: &mut Vec<u16>,
    ) {
        // Smaller elements round to a power of two that 3 bits cannot represent.
        let least = 1.5 * f64::exp2(f64::from(top) - f64::from(POWERS));
        let levels = source.has_plain_memory().then(|| values(top, 1.0));
        source.take_blocks_with_kept(|offset, block, squares| {
            let chunks = block.chunks_mut(64).zip(squares.chunks_mut(64));
            for (chunk, (block, squares)) in chunks.enumerate() {
                let mut sent = self.sent(block, squares, least);
                squares.iter_mut().for_each(|v| *v *= self.zeta);
                while sent != 0 {
                    let at = sent.trailing_zeros() as usize;
                    sent &= sent - 1;
                    let r = block[at];
                    let symbol = (top - nearest(r)).max(0) as u16 | u16::from(r < 0.0) << 3;
                    block[at] = levels.map_or(0.0, |levels| r - levels[usize::from(symbol)]);
                    squares[at] = 0.0;
                    positions.push((offset + 64 * chunk + at) as u32);
                    symbols.push(symbol);
                }
            }
        });
    }
}

/// The largest absolute value of the elements to send.
#[derive(Debug, Default)]
struct Largest(f32);

impl PartResult for Largest {
    fn reset(&mut self) {
        self.0 = 0.0;
    }

    fn merge(&mut self, part: &Self) {
        self.0 = self.0.max(part.0);
    }
}

impl Compressor for Variance {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        let largest = self.largest(source, workspace);
        let Workspace { positions, symbols, .. } = &mut *workspace;
        let mut sent = (std::mem::take(positions), std::mem::take(symbols));
        sent.reset();
        // Reserves memory for all elements, so later messages allocate nothing.
        sent.1.reserve(elements);
        let top = largest.unwrap_or(i32::MAX);
        source.merge_parts(1, workspace, &mut sent, |source, (positions, symbols)| {
            self.take(source, top, positions, symbols);
        });
        (workspace.positions, workspace.symbols) = sent;
        let Workspace { positions, .. } = &*workspace;
        let code = PositionCode::shortest(positions, elements);
        positions::put_header(code, positions.len(), message);
        if let Some(largest) = largest {
            message.extend((largest as i16).to_le_bytes());
            self.levels().write(workspace, message);
            let Workspace { positions, helpers, .. } = &mut *workspace;
            code.encode(positions, elements, helpers, message);
        }
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let (code, count) = positions::take_header(&mut message, out.len())?;
        if count == 0 {
            return fields::expect_len(message, 0);
        }
        let exponent = fields::take(&mut message, 2)?;
        let exponent = i32::from(i16::from_le_bytes([exponent[0], exponent[1]]));
        if !EXPONENTS.contains(&exponent) {
            return Err(DecodeError::Corrupt("the exponent is outside the range of binary32"));
        }
        workspace.symbols.clear();
        workspace.symbols.try_reserve(out.len())?;
        self.levels().read(&mut message, count, workspace)?;
        let Workspace { positions, symbols, helpers, .. } = workspace;
        code.decode(message, count, out.len(), positions, helpers)?;
        let values = values(exponent, weight);
        helpers.add_at(positions, symbols, out, |symbol| values[usize::from(symbol)]);
        Ok(())
    }

    fn memory(&self) -> Option<&dyn Memory> {
        Some(&Squares)
    }

    fn max_len(&self, elements: usize) -> usize {
        let positions = PositionCode::shortest_max_len(elements, elements);
        1 + varint::len(elements as u64) + 2 + self.levels().max_len(elements) + positions
    }
}

/// The value of each symbol, times the weight.
fn values(exponent: i32, weight: f32) -> [f32; LEVELS] {
    std::array::from_fn(|symbol| {
        let magnitude = f64::exp2(f64::from(exponent - (symbol as i32 & 7))) as f32;
        weight * if symbol < 8 { magnitude } else { -magnitude }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compressors::testing::{Sender, decode, refused};
    use crate::{Floats, Input};

    fn sender() -> Sender {
        Sender::new("variance:alpha=2,zeta=0.5", &[4])
    }

    /// The message of a gradient that is sent completely.
    fn all(spec: &str, gradient: &[f32]) -> Vec<u8> {
        let mut sender = Sender::new(spec, &[gradient.len()]);
        encode_with_squares(&mut sender, gradient, &vec![0.0; gradient.len()])
    }

    fn encode_with_squares(sender: &mut Sender, gradient: &[f32], squares: &[f32]) -> Vec<u8> {
        let input = Input { gradient: Floats::F32(gradient), squares: Some(squares) };
        let mut message = Vec::new();
        sender.encoder.encode(&sender.tensor, 0, input, &mut message).unwrap();
        message
    }

    #[test]
    fn elements_whose_parts_agree_are_sent() {
        let mut sender = sender();
        // The squares of four equal parts add up to g²/4: 4·v = 2·α·v < r². Squares of opposite
        // parts add up to more than g².
        let squares = [9.0 / 4.0, 50.0, 1.0 / 4.0, 0.01];
        let message = encode_with_squares(&mut sender, &[3.0, 5.0, -1.0, 0.001], &squares);
        // M = 2; 3 is as near to 4 as to 2, above M and sent as 2; −1 is one power below. Bitmap
        // 0b0101.
        assert_eq!(message, [0, 2, 1, 0, 0x90, 0b0101]);
        let mut out = [0.0; 4];
        decode("variance", &message, 1.0, &mut out).unwrap();
        assert_eq!(out, [2.0, 0.0, -1.0, 0.0]);
        assert_eq!(sender.residual(), [0.0, 5.0, 0.0, 0.001]);
    }

    #[test]
    fn elements_whose_squares_overflow_are_sent() {
        for alpha in ["1", "1.5", "2", "1000000"] {
            let mut sender = Sender::new(&format!("variance:alpha={alpha}"), &[3]);
            let (_, decoded) = sender.send(0, &[1e20, -1e20, 1.0]);
            let power = 2f32.powi(66);
            assert_eq!(decoded, [power, -power, 0.0], "alpha = {alpha}");
            assert_eq!(sender.residual(), [0.0, 0.0, 1.0], "alpha = {alpha}");
        }
    }

    #[test]
    fn with_a_plain_memory_nothing_is_lost() {
        let mut sender = sender();
        sender.encoder = sender.encoder.with_plain_memory();
        let mut seen = [0.0; 4];
        for sum in 1..=20 {
            let message = sender.encode(0, &[1.9, -0.7, 3.0, 0.0]);
            decode("variance", &message, 1.0, &mut seen).unwrap();
            let left = sender.residual();
            for (at, x) in [1.9, -0.7, 3.0, 0.0].into_iter().enumerate() {
                assert!(
                    (seen[at] + left[at] - sum as f32 * x).abs() < 1e-4,
                    "{sum}: {seen:?} {left:?}"
                );
                assert!(left[at].abs() < 8.0);
            }
        }
    }

    #[test]
    fn what_waits_is_sent_once_it_stands_out() {
        let mut sender = sender();
        // A single part: v = g², and r² = g² is not above 2·v.
        let message = sender.encode(0, &[1.0, -1.0, 0.0, 0.0]);
        assert_eq!((message.len(), message[1]), (2, 0));
        // v = ½ + 1 and 2·v = 3; r² = 4 and 0. Exponent 1.
        let message = sender.encode(0, &[1.0, 1.0, 0.0, 0.0]);
        assert_eq!(message, [0, 1, 1, 0, 0, 1]);
        assert_eq!(sender.residual(), [0.0; 4]);
    }

    #[test]
    fn the_small_wait_beside_the_large() {
        let mut sender = sender();
        // 2^-7 is seven powers below 1, 2^-8 eight.
        let gradient = [1.0, 1.0 / 128.0, -1.0 / 256.0, 0.0];
        let message = encode_with_squares(&mut sender, &gradient, &[0.0; 4]);
        assert_eq!(message, [0, 2, 0, 0, 0x70, 0b0011]);
        assert_eq!(sender.residual(), [0.0, 0.0, -1.0 / 256.0, 0.0]);
    }

    #[test]
    fn huffman_worked_by_hand() {
        // 22 ones, −1 and ½ are symbols 0, 8 and 1. Lengths 1 and 2, six without a code, 2, seven
        // without: 111 10000, 101, 110 001 01, 0, 110 001 11. Codes 0, 10 for ½, 11 for −1.
        let mut gradient = [1.0; 24];
        (gradient[1], gradient[5]) = (-1.0, 0.5);
        let lengths = [0b0000_1111, 0b0001_1101, 0b0011_0101, 0b1110];
        let stream = [0b0100_0110, 0, 0, 0];
        let expected = [&[0, 24, 0, 0, 1], &lengths[..], &stream, &[0xff; 3]].concat();
        assert_eq!(all("variance:code=huffman", &gradient), expected);
        let mut out = [0.0; 24];
        decode("variance:code=huffman", &expected, 1.0, &mut out).unwrap();
        assert_eq!(out, gradient);
        // With few elements, the code lengths do not pay.
        let short = [0, 2, 0, 0, 0, 0x80, 0b11];
        assert_eq!(all("variance:code=huffman", &[1.0, -1.0]), short);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let refused = |bytes: &[u8]| refused("variance", 4, bytes);
        assert_eq!(refused(&[0, 0, 0]), DecodeError::Trailing { extra: 1 });
        assert!(matches!(refused(&[0, 5, 0, 0, 0, 15]), DecodeError::Corrupt(_)));
        // Exponents 128 and −150, and a half byte too many.
        assert!(matches!(refused(&[0, 1, 128, 0, 0, 1]), DecodeError::Corrupt(_)));
        assert!(matches!(refused(&[0, 1, 0x6a, 0xff, 0, 1]), DecodeError::Corrupt(_)));
        assert!(matches!(refused(&[0, 1, 0, 0, 0x10, 1]), DecodeError::Corrupt(_)));
    }

    #[test]
    fn squares_that_are_none_are_refused() {
        let mut sender = sender();
        for squares in [&[0.0; 3][..], &[0.0, f32::NAN, 0.0, 0.0]] {
            let input = Input { gradient: Floats::F32(&[1.0; 4]), squares: Some(squares) };
            let mut message = Vec::new();
            let Sender { encoder, tensor } = &mut sender;
            assert!(encoder.encode(tensor, 0, input, &mut message).is_err());
            assert!(message.is_empty() && encoder.residual("t").is_none());
        }
    }
}
