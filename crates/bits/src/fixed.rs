//! Fixed-width packing: numbers of `width` bits, one after the other.
//!
//! Bits fill bytes from the lowest bit, without gaps; the last byte is padded with zeros.
//!
//! Range: width 0 to 32. Cost: `width` bits for each number.
//!
//! ```
//! use gradwire_bits::fixed;
//!
//! let mut code = Vec::new();
//! fixed::pack(&[5, 0, 7, 2], 3, &mut code);
//! assert_eq!(code, [0b11_000_101, 0b010_1]);
//!
//! let mut values = [0; 4];
//! fixed::unpack(&code, 3, &mut values)?;
//! assert_eq!(values, [5, 0, 7, 2]);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;

use crate::{BitReader, BitWriter, DecodeError, expect_len, kernels};

/// The number of bytes of `count` numbers of `width` bits.
pub fn len(count: usize, width: u32) -> usize {
    (count as u64 * u64::from(width)).div_ceil(8) as usize
}

/// Appends the lowest `width` bits of each value.
///
/// # Panics
/// If the width is above 32, or a value does not fit in it.
pub fn pack(values: &[u32], width: u32, out: &mut Vec<u8>) {
    assert!(width <= 32, "a width of {width} bits is above 32");
    out.reserve(len(values.len(), width));
    let rest = match width {
        1..=8 => EIGHTS[width as usize - 1].0(values, out),
        _ => values,
    };
    let mut writer = BitWriter::new(out);
    for &value in rest {
        let value = u64::from(value);
        assert!(value >> width == 0, "{value} does not fit in {width} bits");
        writer.put(value, width);
    }
    writer.finish();
}

/// Fills `values` from bytes that contain exactly these numbers. If the length of `bytes` is wrong,
/// `values` does not change. Padding that is not zero is detected after `values` has been filled.
///
/// # Panics
/// If the width is above 32.
pub fn unpack(bytes: &[u8], width: u32, values: &mut [u32]) -> Result<(), DecodeError> {
    assert!(width <= 32, "a width of {width} bits is above 32");
    expect_len(bytes, len(values.len(), width))?;
    let mask = (1u64 << width) - 1;
    let (bytes, rest) = match width {
        1..=8 => EIGHTS[width as usize - 1].1(bytes, values),
        _ => (bytes, values),
    };
    let mut reader = BitReader::new(bytes);
    for value in rest {
        *value = (reader.peek() & mask) as u32;
        reader.skip(width);
    }
    reader.finish().map(drop)
}

/// [`pack`] for symbols of one bit.
///
/// # Panics
/// If a symbol is above 1.
pub fn pack_bits(symbols: &[u16], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + len(symbols.len(), 1), 0);
    kernels::pack_bits(symbols, &mut out[start..]);
}

/// [`unpack`] for symbols of one bit.
pub fn unpack_bits(bytes: &[u8], symbols: &mut [u16]) -> Result<(), DecodeError> {
    expect_len(bytes, len(symbols.len(), 1))?;
    kernels::unpack_bits(bytes, symbols);
    let used = symbols.len() % 8;
    match bytes.last() {
        Some(last) if used != 0 && last >> used != 0 => {
            Err(DecodeError::Corrupt("padding bits are not zero"))
        }
        _ => Ok(()),
    }
}

type Pack = for<'a, 'b> fn(&'a [u32], &'b mut Vec<u8>) -> &'a [u32];
type Unpack = for<'a, 'b> fn(&'a [u8], &'b mut [u32]) -> (&'a [u8], &'b mut [u32]);

/// For 1 to 8 bits: functions that pack and unpack eight numbers at a time.
const EIGHTS: [(Pack, Unpack); 8] = [
    (pack_eights::<1>, unpack_eights::<1>),
    (pack_eights::<2>, unpack_eights::<2>),
    (pack_eights::<3>, unpack_eights::<3>),
    (pack_eights::<4>, unpack_eights::<4>),
    (pack_eights::<5>, unpack_eights::<5>),
    (pack_eights::<6>, unpack_eights::<6>),
    (pack_eights::<7>, unpack_eights::<7>),
    (pack_eights::<8>, unpack_eights::<8>),
];

/// Appends eight numbers at a time, which take `WIDTH` bytes; returns the remaining numbers.
fn pack_eights<'a, const WIDTH: usize>(values: &'a [u32], out: &mut Vec<u8>) -> &'a [u32] {
    let (eights, rest) = values.as_chunks::<8>();
    for eight in eights {
        let (mut bits, mut all) = (0, 0);
        for (at, &value) in eight.iter().enumerate() {
            bits |= u64::from(value) << (at * WIDTH);
            all |= value;
        }
        if all >> WIDTH != 0 {
            let value = eight.iter().find(|&value| value >> WIDTH != 0).unwrap_or(&all);
            panic!("{value} does not fit in {WIDTH} bits");
        }
        out.extend_from_slice(&bits.to_le_bytes()[..WIDTH]);
    }
    rest
}

/// The reverse of [`pack_eights`]; returns the remaining bytes and numbers.
fn unpack_eights<'a, 'b, const WIDTH: usize>(
    bytes: &'a [u8],
    values: &'b mut [u32],
) -> (&'a [u8], &'b mut [u32]) {
    let (eights, rest) = values.as_chunks_mut::<8>();
    let (packed, left) = bytes.split_at(eights.len() * WIDTH);
    for (eight, packed) in eights.iter_mut().zip(packed.as_chunks::<WIDTH>().0) {
        let mut bits = [0; 8];
        bits[..WIDTH].copy_from_slice(packed);
        let bits = u64::from_le_bytes(bits);
        for (at, value) in eight.iter_mut().enumerate() {
            *value = (bits >> (at * WIDTH)) as u32 & ((1 << WIDTH) - 1);
        }
    }
    (left, rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    #[test]
    fn numbers_of_no_bits_are_zero() {
        let mut values = [7; 9];
        assert_eq!(unpack(&[], 0, &mut values), Ok(()));
        assert_eq!(values, [0; 9]);
    }

    #[test]
    fn symbols_of_one_bit_are_numbers_of_one_bit() {
        let numbers: Vec<u32> = (0..75).map(|i| (i * i % 5) & 1).collect();
        let symbols: Vec<u16> = numbers.iter().map(|&number| number as u16).collect();
        let (mut packed, mut same) = (vec![9], vec![9]);
        pack(&numbers, 1, &mut packed);
        pack_bits(&symbols, &mut same);
        assert_eq!(same, packed);
        let mut found = vec![7; 75];
        assert_eq!(unpack_bits(&packed[1..], &mut found), Ok(()));
        assert_eq!(found, symbols);
        *packed.last_mut().unwrap() |= 0x80;
        let padding = Err(DecodeError::Corrupt("padding bits are not zero"));
        assert_eq!(unpack_bits(&packed[1..], &mut found), padding);
        assert_eq!(unpack_bits(&packed[2..], &mut found), Err(DecodeError::Truncated));
    }

    #[test]
    fn bits_by_hand() {
        let mut out = Vec::new();
        pack(&[5, 0, 7, 2], 3, &mut out);
        // 010 111 000 101, read from the right.
        assert_eq!(out, [0b1100_0101, 0b0000_0101]);
        let mut values = [0; 4];
        assert_eq!(unpack(&out, 3, &mut values), Ok(()));
        assert_eq!(values, [5, 0, 7, 2]);
        assert_eq!(unpack(&out[..1], 3, &mut values), Err(DecodeError::Truncated));
        let long = [0xc5, 5, 0];
        assert_eq!(unpack(&long, 3, &mut values), Err(DecodeError::Trailing { extra: 1 }));
        let padded = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(unpack(&[0xc5, 0x15], 3, &mut values), Err(padded));
        assert_eq!(unpack(&[], 0, &mut values), Ok(()));
        assert_eq!(values, [0; 4]);
    }

    #[test]
    fn a_width_of_whole_bytes_is_little_endian() {
        let mut out = Vec::new();
        pack(&[0x0403_0201, 0x0807_0605], 32, &mut out);
        assert_eq!(out, [1, 2, 3, 4, 5, 6, 7, 8]);
        for end in 0..out.len() {
            assert_eq!(unpack(&out[..end], 32, &mut [0; 2]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    #[should_panic(expected = "8 does not fit in 3 bits")]
    fn a_number_too_wide_is_refused() {
        pack(&[7, 8], 3, &mut vec![]);
    }

    #[test]
    #[should_panic(expected = "9 does not fit in 3 bits")]
    fn a_number_too_wide_among_eight_is_refused() {
        pack(&[7, 1, 2, 9, 3, 4, 5, 6], 3, &mut vec![]);
    }

    proptest! {
        #[test]
        fn numbers_return(values: Vec<u32>, width in 0u32..=32) {
            let mask = ((1u64 << width) - 1) as u32;
            let values: Vec<u32> = values.iter().map(|value| value & mask).collect();
            let mut out = vec![];
            pack(&values, width, &mut out);
            prop_assert_eq!(out.len(), len(values.len(), width));
            let mut back = vec![0; values.len()];
            prop_assert_eq!(unpack(&out, width, &mut back), Ok(()));
            prop_assert_eq!(back, values);
        }

        #[test]
        fn decoding_then_encoding_returns_the_bytes(bytes: Vec<u8>, width in 1u32..=32) {
            let mut values = vec![0; 8 * bytes.len() / width as usize];
            if len(values.len(), width) < bytes.len() {
                let extra = bytes.len() - len(values.len(), width);
                let result = unpack(&bytes, width, &mut values);
                prop_assert_eq!(result, Err(DecodeError::Trailing { extra }));
            } else if unpack(&bytes, width, &mut values).is_ok() {
                let mut out = vec![];
                pack(&values, width, &mut out);
                prop_assert_eq!(out, bytes);
            } else {
                let padding = 8 * bytes.len() as u32 - values.len() as u32 * width;
                prop_assert!(bytes[bytes.len() - 1].leading_zeros() < padding);
            }
        }
    }
}
