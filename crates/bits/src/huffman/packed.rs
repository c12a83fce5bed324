//! Code lengths in few bits.
//!
//! Lengths follow each other, symbol by symbol, as differences to the last one that was not 0 (at first 8):
//! `0` for the same, `10` and a bit for one less (0) or more (1), `111` and five bits for any other. `110`
//! stands for a run of symbols without a code, and is followed by its length in Elias' γ code: as many
//! zeros as the number has bits behind the highest, a one, and those bits. Bits are written from the first
//! on; numbers within them from their lowest.

use alloc::vec::Vec;

use crate::{BitReader, BitWriter, DecodeError};

/// What the first length is compared with.
const FIRST: u8 = 8;

/// What lengths are written as.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Token {
    /// A length, and the one before.
    Length(u8, u8),
    /// So many symbols without a code.
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

/// The bits of a token, the first one lowest, and how many there are.
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

/// Reads the lengths of so many symbols, none above `limit`, and returns how many bytes they took. Only what
/// [`write`] writes is taken: there is one form for any lengths.
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
                    return Err(DecodeError::Corrupt("a run of symbols is in two parts"));
                }
                if run as usize > symbols - lengths.len() {
                    return Err(DecodeError::Corrupt("lengths of more symbols than there are"));
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
                        "the length of a Huffman code has a shorter form",
                    ));
                }
                length
            }
        };
        reader.check()?;
        in_run = false;
        if length == 0 || u32::from(length) > limit {
            return Err(DecodeError::Corrupt("the length of a Huffman code is out of range"));
        }
        lengths.push(length);
        last = length;
    }
    reader.finish()
}

/// The length of a run behind its three bits, in Elias' γ code.
fn run(window: u64, reader: &mut BitReader<'_>) -> Result<u32, DecodeError> {
    let below = window.trailing_zeros();
    reader.skip(4 + 2 * below.min(17));
    reader.check()?;
    if below > 16 {
        return Err(DecodeError::Corrupt("a run of symbols is too long"));
    }
    let rest = (window >> (below + 1)) & ((1 << below) - 1);
    Ok(1 << below | rest as u32)
}
