//! Compressed code lengths.
//!
//! Each length is encoded relative to the last one that was not 0 (initially 8): `0` for the same
//! length, `10` and a bit for one less (0) or one more (1), `111` and five bits for any other.
//! `110` stands for a run of symbols without a code; the length of the run follows in Elias γ code:
//! as many zeros as the number has bits after the highest, a one, and these bits. Bits are written
//! from left to right; binary numbers have their lowest bit first.

use alloc::vec::Vec;

use crate::{BitReader, BitWriter, DecodeError};

/// The reference for the first length.
const FIRST: u8 = 8;

/// A unit of the encoding.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    /// A length, and the previous one.
    Length(u8, u8),
    /// The number of symbols in a run without codes.
    Nothing(u32),
}

fn tokens(lengths: &[u8]) -> impl Iterator<Item = Token> + '_ {
    let (mut at, mut last) = (0, FIRST);
    core::iter::from_fn(move || {
        let length = *lengths.get(at)?;
        if length == 0 {
            let run = lengths[at..].iter().take_while(|&&length| length == 0).count();
            at += run;
            return Some(Token::Nothing(run as u32));
        }
        let before = core::mem::replace(&mut last, length);
        at += 1;
        Some(Token::Length(length, before))
    })
}

/// The bits of a token, the first one lowest, and their count.
fn bits(token: Token) -> (u64, u32) {
    match token {
        Token::Length(length, before) if length == before => (0b0, 1),
        Token::Length(length, before) if length.abs_diff(before) == 1 => {
            (0b01 | u64::from(length > before) << 2, 3)
        }
        Token::Length(length, _) => (0b111 | u64::from(length) << 3, 8),
        Token::Nothing(run) => {
            let below = run.ilog2();
            let rest = u64::from(run) & ((1 << below) - 1);
            (0b011 | (1 | rest << 1) << (3 + below), 4 + 2 * below)
        }
    }
}

pub(super) fn len_bits(lengths: &[u8]) -> u64 {
    tokens(lengths).map(|token| u64::from(bits(token).1)).sum()
}

pub(super) fn write(lengths: &[u8], out: &mut Vec<u8>) {
    let mut writer = BitWriter::new(out);
    for token in tokens(lengths) {
        let (bits, width) = bits(token);
        writer.put(bits, width);
    }
    writer.finish();
}

/// Reads the lengths of `symbols` symbols, none above `limit`, and returns the number of bytes
/// read. Accepts only the form that [`write`] produces.
pub(super) fn read(
    bytes: &[u8],
    symbols: usize,
    limit: u32,
    lengths: &mut Vec<u8>,
) -> Result<usize, DecodeError> {
    lengths.clear();
    let mut reader = BitReader::new(bytes);
    let (mut last, mut in_run) = (FIRST, false);
    while lengths.len() < symbols {
        let window = reader.peek();
        let length = match window.trailing_ones() {
            0 => {
                reader.skip(1);
                last
            }
            1 => {
                reader.skip(3);
                if window & 4 != 0 { last + 1 } else { last.wrapping_sub(1) }
            }
            2 => {
                let run = run(window >> 3, &mut reader)?;
                if core::mem::replace(&mut in_run, true) {
                    return Err(DecodeError::Corrupt(
                        "a run of zero Huffman code lengths is split in two",
                    ));
                }
                if run as usize > symbols - lengths.len() {
                    return Err(DecodeError::Corrupt(
                        "a run of zero Huffman code lengths exceeds the alphabet",
                    ));
                }
                lengths.resize(lengths.len() + run as usize, 0);
                continue;
            }
            _ => {
                reader.skip(8);
                reader.check()?;
                let length = (window >> 3) as u8 & 31;
                if length.abs_diff(last) < 2 {
                    return Err(DecodeError::Corrupt(
                        "a Huffman code length is not in its shortest form",
                    ));
                }
                length
            }
        };
        reader.check()?;
        in_run = false;
        if length == 0 || u32::from(length) > limit {
            return Err(DecodeError::Corrupt("a Huffman code length is out of range"));
        }
        lengths.push(length);
        last = length;
    }
    reader.finish()
}

/// The length of a run, in Elias γ code after the three bits.
fn run(window: u64, reader: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    let below = window.trailing_zeros();
    reader.skip(4 + 2 * below.min(17));
    reader.check()?;
    if below > 16 {
        return Err(DecodeError::Corrupt("a run of zero Huffman code lengths is too long"));
    }
    let rest = (window >> (below + 1)) & ((1 << below) - 1);
    Ok(1 << below | rest as u32)
}
