//! Integers from −7 to 7, two in a byte.

use super::{cases, kernel};

/// Added to each number, so none is negative.
const BIAS: i8 = 8;

kernel! {
    /// Packs numbers from −8 to 7, the first of each two in the low half of a byte. An odd last
    /// number shares its byte with a 0.
    ///
    /// # Panics
    /// If `bytes` is not half as long as `numbers`, rounded up.
    pub fn pack_nibbles(numbers: &[i8], bytes: &mut [u8]) {
        assert_eq!(bytes.len(), numbers.len().div_ceil(2));
        let pack = |[first, second]: [i8; 2]| {
            // Among four bits, adding the bias inverts the highest.
            let halves = u16::from_le_bytes([first as u8, second as u8]) & 0x0f0f ^ 0x0808;
            (halves | halves >> 4) as u8
        };
        let (pairs, rest) = numbers.as_chunks();
        each(pairs, &mut bytes[..pairs.len()], |pair, byte| *byte = pack(*pair));
        if let ([last], [.., byte]) = (rest, bytes) {
            *byte = pack([*last, 0]);
        }
    }
}

kernel! {
    /// The reverse of [`pack_nibbles`].
    ///
    /// # Panics
    /// If `bytes` is not half as long as `numbers`, rounded up.
    pub fn unpack_nibbles(bytes: &[u8], numbers: &mut [i8]) {
        assert_eq!(bytes.len(), numbers.len().div_ceil(2));
        let (pairs, rest) = numbers.as_chunks_mut::<2>();
        each(&bytes[..pairs.len()], pairs, |byte, pair| {
            *pair = [(byte & 15) as i8 - BIAS, (byte >> 4) as i8 - BIAS];
        });
        if let ([last], [.., byte]) = (rest, bytes) {
            *last = (byte & 15) as i8 - BIAS;
        }
    }
}

/// Converts each element of a slice. The compiler's own loop takes 256 elements at a time, and is
/// slow with what is left of short slices; this takes 64.
#[inline(always)]
fn each<T, U>(from: &[T], to: &mut [U], convert: impl Fn(&T, &mut U)) {
    let ((groups, rest), (places, last)) = (from.as_chunks::<64>(), to.as_chunks_mut::<64>());
    for (from, to) in groups.iter().zip(places) {
        from.iter().zip(to).for_each(|(from, to)| convert(from, to));
    }
    rest.iter().zip(last).for_each(|(from, to)| convert(from, to));
}

kernel! {
    /// Whether a byte has a half of 0, which stands for −8.
    pub fn has_empty_nibble(bytes: &[u8]) -> bool {
        bytes.iter().fold(false, |found, &byte| found | (byte & 15 == 0) | (byte < 16))
    }
}

cases![
    ("pack_nibbles", |input, output| {
        let numbers = input.elements(input.len, |at| input.word(at) as i8);
        let mut bytes = alloc::vec![0; input.len.div_ceil(2)];
        pack_nibbles(&numbers, &mut bytes);
        output.bits(bytes.iter().map(|&byte| u32::from(byte)));
    }),
    ("unpack_nibbles", |input, output| {
        let bytes = input.elements(input.len, |at| input.word(at) as u8);
        for len in [2 * input.len, (2 * input.len).saturating_sub(1)] {
            let mut numbers = alloc::vec![0; len];
            unpack_nibbles(&bytes, &mut numbers);
            output.bits(numbers.iter().map(|&number: &i8| number as u32));
        }
    }),
    ("has_empty_nibble", |input, output| {
        let bytes = input.elements(input.len, |at| input.word(at) as u8);
        output.bits(bytes.windows(5).map(|five| u32::from(has_empty_nibble(five))));
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_share_bytes_low_half_first() {
        let numbers = [-7, 7, 0, 1, -1];
        let mut bytes = [0; 3];
        pack_nibbles(&numbers, &mut bytes);
        assert_eq!(bytes, [0xf1, 0x98, 0x87]);
        assert!(!has_empty_nibble(&bytes));
        assert!([0x10, 0x01, 0x00].iter().all(|&empty| has_empty_nibble(&[0x88, empty, 0x88])));
        let mut back = [0; 5];
        unpack_nibbles(&bytes, &mut back);
        assert_eq!(back, numbers);
    }
}
