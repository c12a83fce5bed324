//! Rice code of positions: Golomb code of gaps with a power of two as modulus.
//!
//! Strictly increasing positions are encoded as gaps: the number of positions between each and the
//! previous one (for the first, counted from 0). A gap g with parameter b is g >> b ones, a zero,
//! and the lowest b bits of g. If positions are chosen independently with probability p, gaps are
//! geometric, and the code with the [parameter](optimal_parameter) b* is within a few per cent of
//! their entropy.
//!
//! Range: universes of up to 2^32 positions, b up to 30. Cost: (g >> b) + 1 + b bits for each
//! position, about 8.1 bits at p = 0.01.
//!
//! Sources: Golomb: "Run-length encodings", IEEE Trans. Inf. Theory 12, 1966; the parameter as in
//! Sattler, Wiedemann, Müller, Samek: "Sparse binary compression", 2018, eq. 5.
//!
//! ```
//! use gradwire_bits::rice;
//!
//! let positions = [0, 5, 70];
//! let mut code = Vec::new();
//! rice::encode(&positions, 6, &mut code);
//! assert_eq!(rice::len_bits(&positions, 6), 22);
//!
//! let mut back = Vec::new();
//! let used = rice::decode(&code, 3, 100, 6, &mut back)?;
//! assert_eq!((back, used), (positions.to_vec(), 3));
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;
use core::ops::Range;

use crate::gap_code::gap_code;
use crate::group_writer::GroupWriter;
use crate::kernels::{JOINED, Progress, join_gaps, ones_of_gaps, read_gaps};
use crate::{BitReader, BitWriter, DecodeError};

/// The largest parameter; gaps fit in 32 bits.
pub const MAX_PARAMETER: u32 = 30;
/// The number of ones of a long code handled at once. With fewer, the zero and the lower bits also
/// fit into a group of bits.
const UNARY: u32 = 16;
/// The most positions read at once.
const READ: usize = 1024;

/// The parameter for `count` of `universe` positions: b* = 1 + ⌊log2(ln(φ − 1) / ln(1 − p))⌋ with
/// p = count / universe and the golden ratio φ, from 0 to [`MAX_PARAMETER`]; 0 for no positions.
pub fn optimal_parameter(count: usize, universe: usize) -> u32 {
    // 2^j ≤ ln(φ − 1) / ln(1 − p) means (1 − p)^(2^j) ≥ φ − 1: repeated squaring needs no
    // logarithm and gives the same result on every machine.
    const GOLDEN: f64 = 0.618_033_988_749_894_9;
    if count == 0 {
        return 0;
    }
    let mut power = 1.0 - count as f64 / universe as f64;
    let mut parameter = 0;
    while power >= GOLDEN && parameter < MAX_PARAMETER {
        parameter += 1;
        power *= power;
    }
    parameter
}

/// The length of the code of strictly increasing positions, in bits.
///
/// # Panics
/// If the parameter is above [`MAX_PARAMETER`].
pub fn len_bits(positions: &[u32], parameter: u32) -> u64 {
    len_bits_from(0, positions, parameter)
}

/// The length of the code that [`encode_from`] writes, in bits.
///
/// # Panics
/// If the first position is below `first`, or the parameter above [`MAX_PARAMETER`].
pub fn len_bits_from(first: u32, positions: &[u32], parameter: u32) -> u64 {
    check(parameter);
    assert!(positions.first().is_none_or(|&position| first <= position), "{OUTSIDE}");
    ones_of_gaps(first.into(), positions, parameter)
        + positions.len() as u64 * u64::from(1 + parameter)
}

const OUTSIDE: &str = "the first position is before the part";

fn check(parameter: u32) {
    assert!(parameter <= MAX_PARAMETER, "Rice parameter {parameter} is above {MAX_PARAMETER}");
}

/// Appends the code of strictly increasing positions; the last byte is padded with zeros.
///
/// # Panics
/// If the positions do not increase, or the parameter is above [`MAX_PARAMETER`].
pub fn encode(positions: &[u32], parameter: u32, out: &mut Vec<u8>) {
    encode_from(0, positions, parameter, out);
}

/// Appends the code of a part of strictly increasing positions, all at least `first`: the first gap
/// is counted from there. So each part of a long list can be read alone.
///
/// # Panics
/// If the positions do not increase or begin before `first`, or the parameter is above
/// [`MAX_PARAMETER`].
pub fn encode_from(first: u32, positions: &[u32], parameter: u32, out: &mut Vec<u8>) {
    check(parameter);
    let mut writer = GroupWriter::new(out);
    let (mut words, mut next) = ([0; JOINED / 2], u64::from(first));
    for positions in positions.chunks(JOINED) {
        let words = &mut words[..positions.len() / 2];
        assert!(join_gaps(next, positions, parameter, words), "positions must increase");
        let mut at = 0;
        for run in words.split(|&word| word == 0) {
            writer.put_words(run);
            at += 2 * run.len();
            // Two positions without a word, or the last of an odd number.
            let end = positions.len().min(at + 2);
            put_each(
                next.max(after(&positions[..at])),
                &positions[at..end],
                parameter,
                &mut writer,
            );
            at = end;
        }
        next = after(positions);
    }
    writer.finish();
}

/// Appends the code of strictly increasing positions, all at least `first`, to bits that were
/// written before.
///
/// # Panics
/// If the positions do not increase or begin before `first`, or the parameter is above
/// [`MAX_PARAMETER`].
pub fn put_all(writer: &mut BitWriter<'_>, first: u32, positions: &[u32], parameter: u32) {
    check(parameter);
    let (mut words, mut next) = ([0; JOINED / 2], u64::from(first));
    for positions in positions.chunks(JOINED) {
        let words = &mut words[..positions.len() / 2];
        assert!(join_gaps(next, positions, parameter, words), "positions must increase");
        // The last of an odd number has no word.
        for (pair, word) in positions.chunks(2).zip(words.iter().copied().chain([0])) {
            if word != 0 {
                let width = word as u32 & 0xff;
                writer.put(word >> (64 - width), width);
            } else {
                put_long(writer, next, pair, parameter);
            }
            next = after(pair);
        }
    }
}

/// Appends codes one by one.
#[cold]
fn put_long(writer: &mut BitWriter<'_>, mut next: u64, positions: &[u32], parameter: u32) {
    for &position in positions {
        let gap = u64::from(position) - next;
        let mut ones = gap >> parameter;
        while ones > 32 {
            writer.put((1 << 32) - 1, 32);
            ones -= 32;
        }
        writer.put((1 << ones) - 1, ones as u32 + 1);
        writer.put(gap & ((1 << parameter) - 1), parameter);
        next = u64::from(position) + 1;
    }
}

/// The least position after these; 0 if there are none.
fn after(positions: &[u32]) -> u64 {
    positions.last().map_or(0, |&last| u64::from(last) + 1)
}

/// Appends the codes of positions one by one. `next` is the least possible first position.
fn put_each(mut next: u64, positions: &[u32], parameter: u32, writer: &mut GroupWriter<'_>) {
    let mut put = |(bits, width): (u64, u32)| {
        writer.put_words(&[bits << (64 - width) | u64::from(width)]);
    };
    for &position in positions {
        let mut gap = (u64::from(position) - next) as u32;
        while gap >> parameter >= UNARY {
            let ones = (gap >> parameter).min(3 * UNARY);
            put(((1 << ones) - 1, ones));
            gap -= ones << parameter;
        }
        put(gap_code(gap, parameter));
        next = u64::from(position) + 1;
    }
}

/// Appends `count` increasing positions below `universe`, and returns the number of bytes read;
/// bytes after the code are ignored. Each position takes at least one bit, so the time for an
/// untrusted `count` is bounded by the length of `bytes`.
///
/// # Errors
/// Bytes that end too early, a position past the universe, padding that is not zero, and
/// [`DecodeError::OutOfMemory`]. Some positions may already have been appended.
///
/// # Panics
/// If the parameter is above [`MAX_PARAMETER`].
pub fn decode(
    bytes: &[u8],
    count: usize,
    universe: usize,
    parameter: u32,
    positions: &mut Vec<u32>,
) -> Result<usize, DecodeError> {
    check(parameter);
    let universe = (universe as u64).min(1 << 32);
    let (mut place, mut left) = (Progress::default(), count);
    while left > 0 {
        let (start, some) = (positions.len(), left.min(READ));
        positions.try_reserve(some)?;
        positions.resize(start + some, 0);
        let into = &mut positions[start..];
        if let Err(error) = read_into(into, bytes, parameter, universe, &mut place) {
            positions.truncate(start);
            return Err(error);
        }
        left -= some;
    }
    BitReader::at(bytes, place.bits).finish()
}

/// Fills `positions` with a part of a list. `bytes` is exactly the code from [`encode_from`];
/// `range` begins with the `first` given there, and ends with the last position of the part, at
/// most 2^32 − 1.
///
/// # Errors
/// As [`decode`], and bytes after the code, or a range that ends after the last position. Some
/// positions may already have been written.
///
/// # Panics
/// If the parameter is above [`MAX_PARAMETER`], or the range ends above 2^32.
pub fn decode_part(
    bytes: &[u8],
    range: Range<u64>,
    parameter: u32,
    positions: &mut [u32],
) -> Result<(), DecodeError> {
    check(parameter);
    assert!(range.end <= 1 << 32, "positions have 32 bits");
    let mut place = Progress { bits: 0, next: range.start };
    read_into(positions, bytes, parameter, range.end, &mut place)?;
    if BitReader::at(bytes, place.bits).finish()? < bytes.len() {
        return Err(DecodeError::Corrupt("bytes follow the code of a part"));
    }
    if place.next < range.end {
        return Err(DecodeError::Corrupt("a part ends before its range"));
    }
    Ok(())
}

/// Reads positions into `positions`, and returns their number. `next` is the least one that can
/// follow, and changes. Stops before a code that is long or invalid, or gives a position that is
/// not below `universe`, and up to three codes earlier.
///
/// # Panics
/// If the parameter is above [`MAX_PARAMETER`].
pub fn read_some(
    reader: &mut BitReader<'_>,
    parameter: u32,
    universe: u32,
    next: &mut u32,
    positions: &mut [u32],
) -> usize {
    check(parameter);
    let mut place = Progress { bits: reader.position(), next: (*next).into() };
    let count = read_gaps(reader.bytes(), parameter, universe.into(), &mut place, positions);
    *reader = BitReader::at(reader.bytes(), place.bits);
    // At most the universe.
    *next = place.next as u32;
    count
}

/// Fills the room with positions.
fn read_into(
    mut positions: &mut [u32],
    bytes: &[u8],
    parameter: u32,
    universe: u64,
    place: &mut Progress,
) -> Result<(), DecodeError> {
    while !positions.is_empty() {
        let mut read = read_gaps(bytes, parameter, universe, place, positions);
        if read == 0 {
            (positions[0], *place) = read_one(bytes, parameter, universe, *place)?;
            read = 1;
        }
        positions = &mut positions[read..];
    }
    Ok(())
}

/// Reads a position whose code may be longer than a window, or reports its fault.
#[cold]
fn read_one(
    bytes: &[u8],
    parameter: u32,
    universe: u64,
    place: Progress,
) -> Result<(u32, Progress), DecodeError> {
    let mut reader = BitReader::at(bytes, place.bits);
    let mut position = place.next;
    loop {
        let ones = reader.peek().trailing_ones().min(UNARY);
        reader.skip(ones);
        reader.check()?;
        position += u64::from(ones) << parameter;
        if position >= universe {
            return Err(DecodeError::Corrupt("a position lies past the end"));
        }
        if ones < UNARY {
            break;
        }
    }
    reader.skip(1);
    position += reader.peek() & ((1 << parameter) - 1);
    reader.skip(parameter);
    reader.check()?;
    if position >= universe {
        return Err(DecodeError::Corrupt("a position lies past the end"));
    }
    Ok((position as u32, Progress { bits: reader.position(), next: position + 1 }))
}

#[cfg(test)]
mod tests;
