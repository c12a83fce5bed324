//! Bytes that differ little, in pairs.

use super::{cases, kernel};

kernel! {
    /// The least and the largest byte; 255 and 0 without bytes.
    pub fn byte_range(bytes: &[u8]) -> (u8, u8) {
        let (mut least, mut largest) = (u8::MAX, 0);
        for &byte in bytes {
            least = least.min(byte);
            largest = largest.max(byte);
        }
        (least, largest)
    }
}

kernel! {
    /// Writes a number for each two bytes, which are from `least` to `least` + 63: the first less
    /// the least, plus 64 times the second less the least. Processes the shorter length.
    pub fn pair_near(bytes: &[[u8; 2]], least: u8, pairs: &mut [u16]) {
        let least = u16::from_le_bytes([least; 2]);
        for (two, pair) in bytes.iter().zip(pairs) {
            // No byte is below the least, so none borrows from the next.
            let two = u16::from_le_bytes(*two).wrapping_sub(least);
            *pair = two & 0x3f | two >> 2 & 0xfc0;
        }
    }
}

cases![
    ("byte_range", |input, output| output.bits(<[u8; 2]>::from(byte_range(&input.bytes())))),
    ("pair_near", |input, output| {
        let bytes = input.elements(input.len, |at| 9 + input.word(at) as u8 % 64);
        let mut pairs = input.elements(input.len / 2, |_| 0);
        pair_near(bytes.as_chunks().0, 9, &mut pairs);
        output.bits(pairs.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_by_hand() {
        let mut pairs = [9; 3];
        pair_near(&[[200, 201], [255, 200]], 200, &mut pairs);
        assert_eq!(pairs, [64, 55, 9]);
        assert_eq!(byte_range(&[9, 200, 3, 7]), (3, 200));
        assert_eq!(byte_range(&[]), (255, 0));
    }
}
