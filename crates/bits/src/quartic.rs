//! Quartic code: five trits in a byte.
//!
//! The array of n trits in {−1, 0, 1} is divided into five contiguous parts p0 … p4 of L = ⌈n/5⌉
//! elements; the last ones may be shorter. Byte j is 81·(p0\[j\]+1) + 27·(p1\[j\]+1) +
//! 9·(p2\[j\]+1) + 3·(p3\[j\]+1) + (p4\[j\]+1). Neighbours in a part are in neighbouring bytes, so
//! vector code packs and unpacks without shuffles.
//!
//! Cost: 8/5 = 1.6 bits per trit, 0.95 % above log2 3. Bytes are 0 to 242; five zeros make 121,
//! whose runs the [zero-run code](crate::zero_run) shortens.
//!
//! Deviation: the padding past the end is the trit 0 (digit 1). The paper pads with the digit 0;
//! that is the trit −1, and would break the run of zeros at the end of a sparse tensor.
//!
//! Source: Lim, Andersen, Kaminsky: "3LC", MLSys 2019, §3.2.
//!
//! ```
//! use gradwire_bits::quartic;
//!
//! let trits = [1, -1, 0, 1, 0];
//! let mut code = Vec::new();
//! quartic::pack(&trits, &mut code);
//! assert_eq!(code, [81 * 2 + 27 * 0 + 9 * 1 + 3 * 2 + 1]);
//!
//! let mut back = [0; 5];
//! quartic::unpack(&code, &mut back)?;
//! assert_eq!(back, trits);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;

use crate::{DecodeError, expect_len, kernels};

/// The largest byte: five times the trit 1.
const LARGEST: u8 = 242;

/// The number of bytes of `trits` trits.
pub fn len(trits: usize) -> usize {
    trits.div_ceil(5)
}

/// Appends the code of trits.
///
/// # Panics
/// If a trit is not −1, 0 or 1.
pub fn pack(trits: &[i8], out: &mut Vec<u8>) {
    assert!(trits.iter().all(|trit| (-1..=1).contains(trit)), "a trit is −1, 0 or 1");
    let start = out.len();
    out.resize(start + len(trits.len()), 0);
    let bytes = &mut out[start..];
    for part in 0..5 {
        let trits = part_of(trits, part);
        let (real, padding) = bytes.split_at_mut(trits.len());
        for (byte, &trit) in real.iter_mut().zip(trits) {
            *byte = 3 * *byte + (trit + 1) as u8;
        }
        for byte in padding {
            *byte = 3 * *byte + 1;
        }
    }
}

/// Fills `trits` from bytes that contain exactly these trits. An error leaves `trits` unchanged.
pub fn unpack(bytes: &[u8], trits: &mut [i8]) -> Result<(), DecodeError> {
    expect_len(bytes, len(trits.len()))?;
    if kernels::max_byte(bytes) > LARGEST {
        return Err(DecodeError::Corrupt("a quartic byte is above 242"));
    }
    for part in 0..5 {
        let real = part_of(trits, part).len();
        if bytes[real..].iter().any(|&byte| trit(byte, part) != 0) {
            return Err(DecodeError::Corrupt("padding is not zero"));
        }
    }
    for part in 0..5 {
        let range = range_of(trits.len(), part);
        for (out, &byte) in trits[range].iter_mut().zip(bytes) {
            *out = trit(byte, part);
        }
    }
    Ok(())
}

fn range_of(trits: usize, part: usize) -> core::ops::Range<usize> {
    let len = len(trits);
    (part * len).min(trits)..((part + 1) * len).min(trits)
}

fn part_of(trits: &[i8], part: usize) -> &[i8] {
    &trits[range_of(trits.len(), part)]
}

#[inline]
fn trit(byte: u8, part: usize) -> i8 {
    const POWERS: [u8; 5] = [81, 27, 9, 3, 1];
    (byte / POWERS[part] % 3) as i8 - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn code(trits: &[i8]) -> Vec<u8> {
        let mut out = Vec::new();
        pack(trits, &mut out);
        out
    }

    #[test]
    fn bytes_by_hand() {
        assert_eq!(code(&[0; 5]), [121]);
        assert_eq!(code(&[1; 5]), [242]);
        assert_eq!(code(&[-1; 5]), [0]);
        // 2·81 + 0·27 + 1·9 + 2·3 + 1.
        assert_eq!(code(&[1, -1, 0, 1, 0]), [178]);
        // Seven trits in parts of two: 1 −1 | 0 1 | 1 0 | −1 . | . .
        // Digits of byte 0: 2 1 2 0 1; of byte 1: 0 2 1 1 1.
        assert_eq!(code(&[1, -1, 0, 1, 1, 0, -1]), [162 + 27 + 18 + 1, 54 + 9 + 3 + 1]);
        assert_eq!(code(&[1]), [162 + 27 + 9 + 3 + 1]);
        assert_eq!(code(&[]), []);
    }

    #[test]
    fn malformed_bytes_are_refused() {
        let mut trits = [9; 6];
        assert_eq!(unpack(&[121], &mut trits), Err(DecodeError::Truncated));
        assert_eq!(unpack(&[121; 3], &mut trits), Err(DecodeError::Trailing { extra: 1 }));
        let large = DecodeError::Corrupt("a quartic byte is above 242");
        assert_eq!(unpack(&[121, 243], &mut trits), Err(large));
        let padding = DecodeError::Corrupt("padding is not zero");
        // Six trits are three parts of two, so the lower two digits of both bytes are padding.
        for bytes in [[122, 121], [121, 120], [124, 121], [121, 118]] {
            assert_eq!(unpack(&bytes, &mut trits), Err(padding.clone()));
        }
        assert_eq!(trits, [9; 6]);
        assert_eq!(unpack(&[121 + 9, 121 - 9], &mut trits), Ok(()));
        assert_eq!(trits, [0, 0, 0, 0, 1, -1]);
        for end in 0..20 {
            assert_eq!(unpack(&[121; 20][..end], &mut [0; 96]), Err(DecodeError::Truncated));
        }
    }

    #[test]
    #[should_panic(expected = "a trit is −1, 0 or 1")]
    fn a_value_outside_the_alphabet_is_refused() {
        code(&[0, 2]);
    }

    proptest! {
        #[test]
        fn trits_round_trip(trits in proptest::collection::vec(-1i8..=1, 0..300)) {
            let bytes = code(&trits);
            prop_assert_eq!(bytes.len(), len(trits.len()));
            let mut back = vec![0; trits.len()];
            prop_assert_eq!(unpack(&bytes, &mut back), Ok(()));
            prop_assert_eq!(back, trits);
        }

        #[test]
        fn decoding_then_encoding_returns_the_bytes(
            mut bytes in proptest::collection::vec(0u8..=242, 0..100),
            short in 0usize..5,
            other: (proptest::sample::Index, u8),
        ) {
            let mut trits = vec![0; (5 * bytes.len()).saturating_sub(short)];
            if unpack(&bytes, &mut trits).is_ok() {
                prop_assert_eq!(code(&trits), &bytes[..]);
            } else {
                prop_assert!(short > 0);
            }
            if !bytes.is_empty() {
                *other.0.get_mut(&mut bytes) = other.1.max(243);
                let large = DecodeError::Corrupt("a quartic byte is above 242");
                prop_assert_eq!(unpack(&bytes, &mut trits), Err(large));
            }
        }
    }
}
