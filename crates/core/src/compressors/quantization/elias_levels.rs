//! Levels around zero in Elias' ω code: for each non-zero level its distance from the previous one, its sign and its
//! magnitude.
//!
//! Levels are symbols from 0 to 2s, of which s stands for 0. The first distance is from index −1; the distance to the
//! index after the last level ends the code. An empty list of levels has no bits.

use gradwire_bits::elias::Elias;
use gradwire_bits::{BitReader, BitWriter, DecodeError, try_resize};

use crate::wire::fields;

const CODE: Elias = Elias::Omega;

/// By magnitude: the code of a level at distance 1, and from bit 24 on its width. The sign, the second bit, is 0.
static DENSE: [u32; 256] = {
    let (mut table, mut level) = ([0; 256], 1);
    while level < table.len() {
        let (bits, width) = CODE.bits(level as u64);
        table[level] = (bits as u32) << 2 | (width + 2) << 24;
        level += 1;
    }
    table
};

/// The number of bits that index the table of levels at distance 1 with magnitudes below 16.
const SHORT: u32 = 9;

/// By the next bits: the magnitude, and from bit 8 on the width; 0 for other codes.
static SHORTS: [u16; 1 << SHORT] = {
    let (mut table, mut level) = ([0; 1 << SHORT], 1);
    while level < 16 {
        let (bits, width) = (DENSE[level] & 0xff_ffff, DENSE[level] >> 24);
        let mut rest = 0;
        while rest < 1 << (SHORT - width) {
            let at = (bits | rest << width) as usize;
            let entry = level as u16 | (width as u16) << 8;
            (table[at], table[at | 2]) = (entry, entry);
            rest += 1;
        }
        level += 1;
    }
    table
};

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

/// Replaces `symbols` by the levels of `elements` elements, none above `zero` in magnitude, decoded from exactly these
/// bytes.
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
        let bits = reader.peek();
        let entry = SHORTS[bits as usize & ((1 << SHORT) - 1)];
        let (level, width) = (entry & 0xff, u32::from(entry >> 8));
        if width > 0 && level <= zero && next < elements as u64 {
            reader.skip(width);
            symbols[next as usize] = if bits & 2 == 0 { zero + level } else { zero - level };
            next += 1;
            continue;
        }
        let place = CODE.read(&mut reader)?.saturating_add(next) - 1;
        let Some(symbol) = usize::try_from(place).ok().and_then(|at| symbols.get_mut(at)) else {
            if place == elements as u64 {
                break;
            }
            return Err(DecodeError::Corrupt("a level lies past the end"));
        };
        let negative = reader.peek() & 1 == 1;
        reader.skip(1);
        let level = CODE.read(&mut reader)?;
        if level > u64::from(zero) {
            return Err(DecodeError::Corrupt("a level is above the highest"));
        }
        *symbol = if negative { zero - level as u16 } else { zero + level as u16 };
        next = place + 1;
        reader.check()?;
    }
    let used = reader.finish()?;
    fields::expect_len(bytes, used)
}

/// The most bytes that the levels of `elements` elements take: a distance is never longer than a bit for each place
/// and the levels that might have been there.
pub(super) fn max_len(elements: usize, zero: u16) -> usize {
    let bits = 2 + u128::from(CODE.len(u64::from(zero)));
    (elements as u128 * bits + 1).div_ceil(8).min(usize::MAX as u128 / 2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

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
