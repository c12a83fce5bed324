//! Variable-length integers: LEB128.
//!
//! A number is split into groups of 7 bits, the lowest first, one in each byte. The highest bit of
//! a byte is 1 if another byte follows. Only the shortest form is valid, so each number has one
//! code. Range: all of `u64`. Cost: ⌈bits / 7⌉ bytes, 1 to 10.
//!
//! Source: "DWARF Debugging Information Format", version 5, 2017, §7.6.
//!
//! ```
//! use gradwire_bits::varint;
//!
//! let mut code = Vec::new();
//! varint::write(300, &mut code);
//! assert_eq!(code, [0b1010_1100, 0b10]);
//!
//! let mut input = &code[..];
//! assert_eq!(varint::read(&mut input)?, 300);
//! assert!(input.is_empty());
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;

use crate::DecodeError;

const MORE: u8 = 0x80;
/// The number of bytes of the longest code, whose last byte uses one bit.
const LONGEST: usize = 10;

/// Appends the code of `value`.
pub fn write(mut value: u64, out: &mut Vec<u8>) {
    while value >= u64::from(MORE) {
        out.push(value as u8 | MORE);
        value >>= 7;
    }
    out.push(value as u8);
}

/// The length of the code of `value`, in bytes.
pub fn len(value: u64) -> usize {
    (u64::BITS - (value | 1).leading_zeros()).div_ceil(7) as usize
}

/// Reads a number from the start of `input` and advances `input` past it. An error leaves `input`
/// unchanged.
pub fn read(input: &mut &[u8]) -> Result<u64, DecodeError> {
    let mut value = 0;
    for (i, &byte) in input.iter().enumerate() {
        if i == LONGEST - 1 && byte > 1 {
            return Err(DecodeError::Corrupt("a varint has more than 64 bits"));
        }
        value |= u64::from(byte & !MORE) << (7 * i);
        if byte & MORE == 0 {
            if byte == 0 && i > 0 {
                return Err(DecodeError::Corrupt("a varint is not in its shortest form"));
            }
            *input = &input[i + 1..];
            return Ok(value);
        }
    }
    Err(DecodeError::Truncated)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn code(value: u64) -> Vec<u8> {
        let mut out = Vec::new();
        write(value, &mut out);
        out
    }

    #[test]
    fn bytes_by_hand() {
        assert_eq!(code(0), [0]);
        assert_eq!(code(127), [127]);
        assert_eq!(code(128), [0x80, 1]);
        assert_eq!(code(300), [0xac, 2]);
        assert_eq!(code(u64::MAX), [255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
    }

    #[test]
    fn malformed_numbers_are_refused() {
        for bytes in [&[0x80, 0][..], &[0xff, 0x80, 0]] {
            let error = read(&mut &bytes[..]);
            assert_eq!(error, Err(DecodeError::Corrupt("a varint is not in its shortest form")));
        }
        let long = [255, 255, 255, 255, 255, 255, 255, 255, 255, 2];
        let error = read(&mut &long[..]);
        assert_eq!(error, Err(DecodeError::Corrupt("a varint has more than 64 bits")));
        for end in 0..10 {
            let mut input = &code(u64::MAX)[..end];
            assert_eq!(read(&mut input), Err(DecodeError::Truncated));
            assert_eq!(input.len(), end);
        }
    }

    proptest! {
        #[test]
        fn numbers_return(value: u64, shift in 0u32..64, rest: [u8; 2]) {
            let value = value >> shift;
            let mut bytes = code(value);
            prop_assert_eq!(bytes.len(), len(value));
            bytes.extend_from_slice(&rest);
            let mut input = &bytes[..];
            prop_assert_eq!(read(&mut input), Ok(value));
            prop_assert_eq!(input, rest);
        }

        #[test]
        fn decoding_then_encoding_returns_the_bytes(bytes in proptest::collection::vec(
            prop_oneof![Just(0u8), Just(1), Just(0x80), Just(0xff), any::<u8>()],
            0..12,
        )) {
            let mut input = &bytes[..];
            if let Ok(value) = read(&mut input) {
                let used = bytes.len() - input.len();
                prop_assert_eq!(code(value), &bytes[..used]);
            } else {
                prop_assert_eq!(input, &bytes[..]);
            }
        }
    }
}
