//! Levels around zero in Elias' ω code: for each non-zero level the distance from the previous one,
//! the sign and the magnitude.
//!
//! Levels are symbols from 0 to 2s; s is the level 0. The first distance is from index −1; the
//! distance to the index after the last level ends the code. An empty list of levels has no bits.

use gradwire_bits::elias::Elias;
use gradwire_bits::{BitReader, BitWriter, DecodeError, try_resize};

use crate::wire::fields;

const CODE: Elias = Elias::Omega;

/// By magnitude: the code of a level at distance 1, and its width from bit 24 on. The sign, the
/// second bit, is 0.
static DENSE: [u32; 256] = {
    let (mut table, mut level) = ([0; 256], 1);
    while level < table.len() {
        let (bits, width) = CODE.bits(level as u64);
        table[level] = (bits as u32) << 2 | (width + 2) << 24;
        level += 1;
    }
    table
};

/// The number of bits that index the table of several levels. Its 16 KiB stay in the first-level
/// cache.
const SHORT: u32 = 11;
/// The highest level in the table, whose codes include a distance and a sign.
const TABLED: u16 = 15;
/// The most elements of an entry.
const MOST: usize = 6;
/// The symbols written per entry: its elements, and two that the next entry overwrites.
const WRITTEN: usize = 8;
/// The entries that one window of bits covers.
const LOOKUPS: usize = (BitReader::WINDOW / SHORT) as usize;

/// By the next bits: the elements that the whole codes in them encode, including zeros between
/// levels, as signed bytes; then the number of elements, and in the uppermost byte the number of
/// bits. 0 if the first code is longer, or has too many zeros.
static SHORTS: [u64; 1 << SHORT] = {
    let (mut table, mut bits) = ([0; 1 << SHORT], 0);
    while bits < table.len() {
        table[bits] = several(bits as u64);
        bits += 1;
    }
    table
};

/// The entry for these bits.
const fn several(bits: u64) -> u64 {
    let (mut entry, mut count, mut used) = (0u64, 0, 0);
    loop {
        let (distance, width) = number(bits >> used, SHORT - used);
        let sign = used + width;
        if width == 0 || count + distance > MOST as u64 || sign >= SHORT {
            break;
        }
        let (level, width) = number(bits >> (sign + 1), SHORT - sign - 1);
        if width == 0 {
            break;
        }
        let level = if bits >> sign & 1 == 1 { level.wrapping_neg() & 0xff } else { level };
        count += distance;
        entry |= level << (8 * (count - 1));
        used = sign + 1 + width;
    }
    entry | count << (8 * MOST) | (used as u64) << (8 * MOST + 8)
}

/// A number, and the width of its code; 0 if it has more than `most` bits.
const fn number(bits: u64, most: u32) -> (u64, u32) {
    let (mut value, mut width) = (1, 0);
    while width < most {
        if bits >> width & 1 == 0 {
            return (value, width + 1);
        }
        // A group of bits, the highest first.
        let size = value as u32 + 1;
        if width + size > most {
            break;
        }
        value = (bits >> width).reverse_bits() >> (64 - size);
        width += size;
    }
    (0, 0)
}

/// Appends the levels.
pub(super) fn write(symbols: &[u16], zero: u16, message: &mut Vec<u8>) {
    if symbols.is_empty() {
        return;
    }
    let mut writer = BitWriter::new(message);
    let mut distance = 1;
    for &symbol in symbols {
        if symbol == zero {
            distance += 1;
            continue;
        }
        let (sign, level) = (u64::from(symbol < zero), symbol.abs_diff(zero));
        if let (1, Some(&entry)) = (distance, DENSE.get(usize::from(level))) {
            writer.put(u64::from(entry & 0xff_ffff) | sign << 1, entry >> 24);
            continue;
        }
        CODE.write(distance, &mut writer);
        writer.put(sign, 1);
        CODE.write(u64::from(level), &mut writer);
        distance = 1;
    }
    CODE.write(distance, &mut writer);
    writer.finish();
}

/// Replaces `symbols` by the levels of `elements` elements, none above `zero` in magnitude, decoded
/// from exactly these bytes.
pub(super) fn read(
    bytes: &[u8],
    elements: usize,
    zero: u16,
    symbols: &mut Vec<u16>,
) -> Result<(), DecodeError> {
    symbols.clear();
    if elements == 0 {
        return fields::expect_len(bytes, 0);
    }
    try_resize(symbols, elements, zero)?;
    let mut reader = BitReader::new(bytes);
    let mut next = 0;
    loop {
        let first = next;
        next = read_short(&mut reader, next, zero, symbols);
        // The table ignores the highest allowed level.
        if zero < TABLED && symbols[first..next].iter().any(|&symbol| symbol > 2 * zero) {
            return Err(ABOVE);
        }
        let place = CODE.read(&mut reader)?.saturating_add(next as u64) - 1;
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        if place > elements {
            return Err(DecodeError::Corrupt("a level lies past the end"));
        }
        // Clears symbols written beyond the elements of an entry.
        symbols[next..place.min(next + WRITTEN)].fill(zero);
        if place == elements {
            break;
        }
        let negative = reader.peek() & 1 == 1;
        reader.skip(1);
        let level = CODE.read(&mut reader)?;
        if level > u64::from(zero) {
            return Err(ABOVE);
        }
        symbols[place] = if negative { zero - level as u16 } else { zero + level as u16 };
        next = place + 1;
        reader.check()?;
    }
    let used = reader.finish()?;
    fields::expect_len(bytes, used)
}

const ABOVE: DecodeError = DecodeError::Corrupt("a level is above the highest");

/// Reads levels by the table up to one whose code is too long, or close to the end. Returns the
/// index of the next element; symbols after it may have been overwritten.
fn read_short(
    reader: &mut BitReader<'_>,
    mut next: usize,
    zero: u16,
    symbols: &mut [u16],
) -> usize {
    while next + LOOKUPS * MOST + WRITTEN <= symbols.len() {
        let (mut bits, mut width) = (reader.peek(), 0);
        for _ in 0..LOOKUPS {
            let entry = SHORTS[bits as usize % SHORTS.len()];
            if entry == 0 {
                reader.skip(width);
                return next;
            }
            let written = symbols[next..next + WRITTEN].iter_mut().zip(entry.to_le_bytes());
            written.for_each(|(symbol, byte)| {
                *symbol = zero.wrapping_add_signed(i16::from(byte as i8))
            });
            next += usize::from((entry >> (8 * MOST)) as u8);
            let used = (entry >> (8 * MOST + 8)) as u32;
            bits >>= used;
            width += used;
        }
        reader.skip(width);
    }
    next
}

/// The most bytes that the levels of `elements` elements take: the code of a distance is at most as
/// long as a bit per place, plus the levels that could have been there.
pub(super) fn max_len(elements: usize, zero: u16) -> usize {
    let bits = 2 + u128::from(CODE.len(u64::from(zero)));
    (elements as u128 * bits + 1).div_ceil(8).min(usize::MAX as u128 / 2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cmp::Ordering;

    #[test]
    fn no_code_exceeds_its_bound() {
        for zero in [1, 2, 3, 4, 127, 32_767] {
            for elements in [1, 2, 5, 100, 1000] {
                for every in [1, 2, 3, 4, 5, 9, 17, 33, 600, 2000] {
                    let symbols: Vec<u16> = (1..=elements)
                        .map(|i| if i % every == 0 { 2 * zero } else { zero })
                        .collect();
                    let (mut bytes, mut back) = (Vec::new(), Vec::new());
                    write(&symbols, zero, &mut bytes);
                    assert!(bytes.len() <= max_len(elements, zero), "{zero} {elements} {every}");
                    read(&bytes, elements, zero, &mut back).unwrap();
                    assert_eq!(back, symbols);
                }
            }
        }
    }

    /// Levels read code by code.
    fn one_by_one(bytes: &[u8], elements: usize, zero: u16) -> Result<Vec<u16>, DecodeError> {
        let (mut symbols, mut reader) = (Vec::new(), BitReader::new(bytes));
        loop {
            let distance = CODE.read(&mut reader)? as usize;
            let end = symbols.len().saturating_add(distance);
            match end.cmp(&(elements + 1)) {
                Ordering::Less => {}
                Ordering::Equal => break,
                Ordering::Greater => return Err(DecodeError::Corrupt("past the end")),
            }
            let negative = reader.peek() & 1 == 1;
            reader.skip(1);
            let level = CODE.read(&mut reader)?;
            if level > u64::from(zero) {
                return Err(DecodeError::Corrupt("a level is above the highest"));
            }
            symbols.resize(end - 1, zero);
            symbols.push(if negative { zero - level as u16 } else { zero + level as u16 });
        }
        if reader.finish()? != bytes.len() {
            return Err(DecodeError::Corrupt("bytes follow"));
        }
        symbols.resize(elements, zero);
        Ok(symbols)
    }

    /// Whether levels read by the table equal levels read one by one. Both must refuse the same
    /// bytes.
    fn compare(bytes: &[u8], elements: usize, zero: u16) -> bool {
        let mut symbols = vec![7; 3];
        let result = read(bytes, elements, zero, &mut symbols).map(|()| symbols);
        assert_eq!(result.as_ref().ok(), one_by_one(bytes, elements, zero).as_ref().ok());
        result.is_ok()
    }

    #[test]
    fn entries_by_hand() {
        // Distance 1, +, 1: three zeros, three times in nine bits.
        assert_eq!(SHORTS[0].to_le_bytes(), [1, 1, 1, 0, 0, 0, 3, 9]);
        // Distance 2, −, 3: 100 1 110, from the lowest; then 0 0 0.
        let entry = SHORTS[0b0000_0011_1001].to_le_bytes();
        assert_eq!(entry, [0, -3i8 as u8, 1, 0, 0, 0, 3, 10]);
        // Distance 1, +, 16: 0 0 10100100000 has thirteen bits. A distance of 7 has too many zeros:
        // 10 111 0, 0 0.
        assert_eq!((SHORTS[0b000_1001_0100], SHORTS[0b01_1101]), (0, 0));
        assert_eq!(SHORTS[0b111_1111_1111], 0);
    }

    #[test]
    fn levels_are_those_read_one_by_one() {
        let mut words = vec![0; 3000];
        crate::Rng::new(1, 2, 3, 4, 5).fill(&mut words);
        for zero in [1, 2, 3, 4, 15, 127, 32_767] {
            for spread in [0, 1, 3, 9, 70, 400] {
                for elements in [0, 1, 40, 43, 44, 45, 100, 2999] {
                    // Levels with geometric magnitudes, and zeros in between.
                    let symbol = |&word: &u32| {
                        let level = ((word >> 8) & 0x7fff) >> ((word & 0xff) / 17);
                        let level = level.min(u32::from(zero)) as u16;
                        let is_zero = spread > 0 && (word >> 23) % (spread + 1) > 0;
                        match (is_zero, word & 128 > 0) {
                            (true, _) => zero,
                            (false, true) => zero + level,
                            (false, false) => zero - level,
                        }
                    };
                    let symbols: Vec<u16> = words[..elements].iter().map(symbol).collect();
                    let (mut bytes, mut back) = (Vec::new(), vec![9; 5]);
                    write(&symbols, zero, &mut bytes);
                    read(&bytes, elements, zero, &mut back).unwrap();
                    assert!(back == symbols, "{zero} {spread} {elements}");
                    if elements > 0 {
                        assert!(compare(&bytes, elements, zero));
                        // Fewer elements, a lower highest level, and bytes that end early.
                        assert!(!compare(&bytes[..bytes.len() - 1], elements, zero));
                        compare(&bytes, elements.saturating_sub(1).max(1), zero);
                        compare(&bytes, elements, zero.div_ceil(2));
                    }
                }
            }
        }
    }

    #[test]
    fn random_bits_are_levels_or_refused_as_one_by_one() {
        let mut words = vec![0; 64];
        let mut accepted = 0;
        for draw in 0..3000 {
            crate::Rng::new(1, 2, draw, 4, 5).fill(&mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            // Few ones: many short codes.
            let bytes: Vec<u8> = bytes.chunks(2).map(|two| two[0] & two[1]).collect();
            for len in [8, 20, 60, 128] {
                for elements in [10, 44, 60, 150, 400] {
                    accepted +=
                        usize::from(compare(&bytes[..len], elements, 1 + (draw % 20) as u16));
                }
            }
        }
        assert!(accepted > 10, "{accepted} were accepted");
    }

    #[test]
    fn malformed_levels_are_refused() {
        let result = |bits: u8, elements: usize| read(&[bits], elements, 2, &mut Vec::new());
        // Distance 1, +, 2: 0 0 100; the end: 0.
        assert_eq!(result(0b00_0100, 1), Ok(()));
        let highest = DecodeError::Corrupt("a level is above the highest");
        assert_eq!(result(0b0_1100, 1), Err(highest));
        // Distance 2 of one element is the end; 3 is past it.
        assert_eq!(result(0b001, 1), Ok(()));
        assert_eq!(result(0b011, 1), Err(DecodeError::Corrupt("a level lies past the end")));
        assert_eq!(result(0b1000_0001, 1), Err(DecodeError::Corrupt("padding bits are not zero")));
        assert_eq!(read(&[1, 0], 1, 2, &mut Vec::new()), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(read(&[], 1, 2, &mut Vec::new()), Err(DecodeError::Truncated));
        assert_eq!(read(&[0], 0, 2, &mut Vec::new()), Err(DecodeError::Trailing { extra: 1 }));
        assert_eq!(read(&[0], 100, 2, &mut Vec::new()), Err(DecodeError::Truncated));
    }
}
