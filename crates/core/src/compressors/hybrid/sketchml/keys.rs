//! The paper's code of keys: the gaps between them, in one to four bytes each.
//!
//! First comes the number of bytes of each gap, minus one, in 2 bits: four per byte from the lowest
//! bits, the last byte padded with zeros. Then come the gaps, little-endian. A gap is the number of
//! positions skipped before a key.

use gradwire_bits::DecodeError;

use crate::wire::fields;

/// Appends increasing keys.
pub(super) fn write(keys: &[u32], message: &mut Vec<u8>) {
    let start = message.len();
    message.resize(start + keys.len().div_ceil(4), 0);
    let mut next = 0;
    for (at, &key) in keys.iter().enumerate() {
        let gap = key - next;
        let extra = extra_bytes(gap);
        message[start + at / 4] |= (extra as u8) << (2 * (at % 4));
        message.extend_from_slice(&gap.to_le_bytes()[..=extra]);
        // No key follows the largest possible one.
        next = key.wrapping_add(1);
    }
}

/// Reads `count` keys below `elements` off the front of `message`.
pub(super) fn read(
    message: &mut &[u8],
    count: usize,
    elements: usize,
    keys: &mut Vec<u32>,
) -> Result<(), DecodeError> {
    let lengths = fields::take(message, count.div_ceil(4))?;
    if !count.is_multiple_of(4) && lengths[count / 4] >> (2 * (count % 4)) != 0 {
        return Err(DecodeError::Corrupt("a padding bit is set"));
    }
    keys.clear();
    keys.try_reserve(count)?;
    let mut next = 0;
    for at in 0..count {
        let extra = usize::from(lengths[at / 4] >> (2 * (at % 4)) & 3);
        let mut gap = [0; 4];
        gap[..=extra].copy_from_slice(fields::take(message, extra + 1)?);
        let gap = u32::from_le_bytes(gap);
        if extra_bytes(gap) != extra {
            return Err(DecodeError::Corrupt("a gap is not in its shortest form"));
        }
        let key = next + u64::from(gap);
        if key >= elements as u64 {
            return Err(DecodeError::Corrupt("a position lies past the end"));
        }
        keys.push(key as u32);
        next = key + 1;
    }
    Ok(())
}

/// The bytes of a gap beyond the first.
fn extra_bytes(gap: u32) -> usize {
    3 - (gap | 1).leading_zeros() as usize / 8
}

/// The most bytes of up to `keys` keys in `lists` lists.
pub(super) fn max_len(keys: usize, lists: usize) -> usize {
    keys.saturating_mul(4).saturating_add(keys.div_ceil(4) + lists)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_worked_by_hand() {
        // Gaps 0, 255, 256, 65536 and 2^24: one, one, two, three and four bytes.
        let keys = [0, 256, 513, 66_050, 16_843_267];
        let mut message = vec![9];
        write(&keys, &mut message);
        let expected = [9, 0b10_01_00_00, 0b11, 0, 255, 0, 1, 0, 0, 1, 0, 0, 0, 1];
        assert_eq!(message, expected);
        let (mut rest, mut back) = (&message[1..], Vec::new());
        read(&mut rest, 5, 16_843_268, &mut back).unwrap();
        assert_eq!((rest.len(), &back[..]), (0, &keys[..]));
        assert!(message.len() - 1 <= max_len(5, 1));
    }

    #[test]
    fn malformed_keys_are_refused() {
        let read =
            |bytes: &[u8], count| read(&mut &bytes[..], count, 300, &mut Vec::new()).unwrap_err();
        assert_eq!(read(&[], 1), DecodeError::Truncated);
        assert_eq!(read(&[1, 0], 1), DecodeError::Truncated);
        assert_eq!(read(&[1, 0, 0], 1), DecodeError::Corrupt("a gap is not in its shortest form"));
        assert_eq!(read(&[4, 0], 1), DecodeError::Corrupt("a padding bit is set"));
        let past = DecodeError::Corrupt("a position lies past the end");
        assert_eq!(read(&[1, 44, 1], 1), past);
        assert_eq!(read(&[1, 43, 1, 0], 2), past);
    }
}
