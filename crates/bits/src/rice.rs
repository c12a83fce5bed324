//! Rice code of positions: Golomb code of gaps with a power of two as modulus.
//!
//! Strictly increasing positions are encoded as gaps: the number of positions left out before each
//! (for the first, counted from 0). A gap g with parameter b is g >> b ones, a zero, and the lowest b
//! bits of g. If positions are chosen independently with probability p, gaps are geometric, and the
//! code with the [parameter](optimal_parameter) b* is within a few per cent of their entropy.
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
//! let used = rice::for_each(&code, 3, 100, 6, |position| back.push(position))?;
//! assert_eq!((back, used), (positions.to_vec(), 3));
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

use alloc::vec::Vec;

use crate::{BitReader, BitWriter, DecodeError};

/// The largest parameter; gaps fit in 32 bits.
pub const MAX_PARAMETER: u32 = 30;
/// The ones that are written at once.
const UNARY: u32 = 32;

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

/// The length of the code, in bits.
pub fn len_bits(positions: &[u32], parameter: u32) -> u64 {
    let mut next = 0;
    let mut bits = positions.len() as u64 * u64::from(1 + parameter);
    for &position in positions {
        bits += (u64::from(position) - next) >> parameter;
        next = u64::from(position) + 1;
    }
    bits
}

/// Appends the code of strictly increasing positions; the last byte is padded with zeros.
///
/// # Panics
/// If the positions do not increase, or the parameter is above [`MAX_PARAMETER`].
pub fn encode(positions: &[u32], parameter: u32, out: &mut Vec<u8>) {
    assert!(parameter <= MAX_PARAMETER, "Rice parameter {parameter} is above {MAX_PARAMETER}");
    let mut writer = BitWriter::new(out);
    let low = (1u64 << parameter) - 1;
    let mut next = 0;
    for &position in positions {
        let position = u64::from(position);
        assert!(position >= next, "positions must increase");
        let gap = position - next;
        next = position + 1;
        let mut ones = gap >> parameter;
        while ones >= u64::from(UNARY) {
            writer.put((1 << UNARY) - 1, UNARY);
            ones -= u64::from(UNARY);
        }
        // The ones and their zero, then the lower bits: at most 32 + 30.
        let unary = (1 << ones) - 1;
        writer.put(unary | (gap & low) << (ones + 1), ones as u32 + 1 + parameter);
    }
    writer.finish();
}

/// Calls `visit` for each of `count` positions below `universe`, in increasing order, and returns
/// the number of bytes read; bytes after the code are ignored. Each position takes at least one bit, so
/// the time for an untrusted `count` is bounded by the length of `bytes`.
///
/// # Errors
/// Bytes that end too early, a position past the universe, and padding that is not zero. Some positions
/// may already have been visited.
///
/// # Panics
/// If the parameter is above [`MAX_PARAMETER`].
pub fn for_each(
    bytes: &[u8],
    count: usize,
    universe: usize,
    parameter: u32,
    mut visit: impl FnMut(u32),
) -> Result<usize, DecodeError> {
    assert!(parameter <= MAX_PARAMETER, "Rice parameter {parameter} is above {MAX_PARAMETER}");
    let universe = (universe as u64).min(1 << 32);
    let low = (1u64 << parameter) - 1;
    let mut reader = BitReader::new(bytes);
    let mut next = 0;
    for _ in 0..count {
        let window = reader.peek();
        let ones = window.trailing_ones();
        let width = ones + 1 + parameter;
        let gap = if width <= BitReader::WINDOW {
            reader.skip(width);
            u64::from(ones) << parameter | (window >> (ones + 1)) & low
        } else {
            long_gap(&mut reader, parameter, universe)?
        };
        let position = next + gap;
        if position >= universe {
            reader.check()?;
            return Err(DecodeError::Corrupt("a position lies past the end"));
        }
        reader.check()?;
        visit(position as u32);
        next = position + 1;
    }
    reader.finish()
}

/// Reads a gap whose code may be longer than the reader's window.
#[cold]
fn long_gap(reader: &mut BitReader<'_>, parameter: u32, universe: u64) -> Result<u64, DecodeError> {
    let mut quotient = 0;
    loop {
        let ones = reader.peek().trailing_ones().min(UNARY);
        reader.skip(ones);
        reader.check()?;
        quotient += u64::from(ones);
        if quotient << parameter >= universe {
            return Err(DecodeError::Corrupt("a position lies past the end"));
        }
        if ones < UNARY {
            break;
        }
    }
    reader.skip(1);
    let rest = reader.peek() & ((1 << parameter) - 1);
    reader.skip(parameter);
    Ok(quotient << parameter | rest)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn code(positions: &[u32], parameter: u32) -> Vec<u8> {
        let mut out = Vec::new();
        encode(positions, parameter, &mut out);
        out
    }

    fn decode(
        bytes: &[u8],
        count: usize,
        universe: usize,
        parameter: u32,
    ) -> Result<(Vec<u32>, usize), DecodeError> {
        let mut all = Vec::new();
        let used = for_each(bytes, count, universe, parameter, |position| all.push(position))?;
        Ok((all, used))
    }

    #[test]
    fn bits_by_hand() {
        // Gaps 0, 4, 64 at b = 6, each to be read from the right: 000000 0, 000100 0, 000000 01.
        let positions = [0, 5, 70];
        assert_eq!(len_bits(&positions, 6), 22);
        assert_eq!(code(&positions, 6), [0b0000_0000, 0b0100_0100, 0b0000_0000]);
        assert_eq!(decode(&[0, 0x44, 0], 3, 71, 6), Ok((positions.to_vec(), 3)));
        // Gaps 2, 0 at b = 0: 110, 0.
        assert_eq!(code(&[2, 3], 0), [0b0000_0011]);
        assert_eq!(code(&[], 6), []);
    }

    #[test]
    fn parameters_are_those_of_the_paper() {
        let rates = [(10, 3), (20, 4), (50, 5), (100, 6), (200, 7), (500, 8), (1000, 9)];
        for (places, parameter) in rates {
            assert_eq!(optimal_parameter(1_000, 1_000 * places), parameter, "1 of {places}");
        }
        assert_eq!(optimal_parameter(0, 100), 0);
        assert_eq!(optimal_parameter(0, 0), 0);
        assert_eq!(optimal_parameter(100, 100), 0);
        assert_eq!(optimal_parameter(1, 1 << 40), MAX_PARAMETER);
    }

    /// The expected bits of a position at rate p: the code costs b + 1 and the mean quotient.
    fn expected_cost(p: f64, parameter: u32) -> f64 {
        let within = (0..parameter).fold(1.0 - p, |power, _| power * power);
        f64::from(parameter) + 1.0 / (1.0 - within)
    }

    #[test]
    fn no_other_parameter_is_cheaper() {
        for count in 1..1000 {
            let chosen = expected_cost(count as f64 / 1000.0, optimal_parameter(count, 1000));
            for parameter in 0..=12 {
                let other = expected_cost(count as f64 / 1000.0, parameter);
                assert!(chosen <= other + 1e-9, "{count}: {chosen} bits, {other} at {parameter}");
            }
        }
    }

    #[test]
    fn the_cost_at_one_per_cent_is_that_of_the_theory() {
        // b* + 1 / (1 − (1 − p)^(2^b*)) = 6 + 1 / (1 − 0.99^64) = 8.108 bits.
        let mut state = 1u64;
        let positions: Vec<u32> = (0..1_000_000)
            .filter(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (state >> 33).is_multiple_of(100)
            })
            .collect();
        let bits = len_bits(&positions, 6) as f64 / positions.len() as f64;
        assert!((bits - 8.108).abs() < 0.05, "{bits}");
    }

    #[test]
    fn gaps_longer_than_the_window() {
        let positions = [0, 100, 5_000, 4_000_000_000, u32::MAX];
        for parameter in [0, 1, 20, 30] {
            let positions = if parameter < 20 { &positions[..3] } else { &positions };
            let bytes = code(positions, parameter);
            assert_eq!(bytes.len() as u64, len_bits(positions, parameter).div_ceil(8));
            let back = decode(&bytes, positions.len(), 1 << 32, parameter);
            assert_eq!(back, Ok((positions.to_vec(), bytes.len())));
        }
    }

    #[test]
    fn malformed_codes_are_refused() {
        let past = DecodeError::Corrupt("a position lies past the end");
        assert_eq!(decode(&[0, 0x44, 0], 3, 70, 6), Err(past.clone()));
        assert_eq!(decode(&[0xff; 100], 1, 50, 0), Err(past.clone()));
        assert_eq!(decode(&[0xff; 100], 1, 10_000, 0), Err(DecodeError::Truncated));
        assert_eq!(decode(&[], 1, 10, 0), Err(DecodeError::Truncated));
        let padded = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(decode(&[0b1000_0011], 2, 10, 0), Err(padded));
        let bytes = code(&[3, 77, 1000, 1003], 5);
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end], 4, 2000, 5), Err(DecodeError::Truncated));
        }
    }

    proptest! {
        #[test]
        fn positions_return(
            gaps in proptest::collection::vec(0u32..5000, 0..200),
            parameter in 0u32..=30,
            rest: u8,
        ) {
            let positions: Vec<u32> = gaps
                .iter()
                .scan(0, |next, gap| {
                    let position = *next + gap;
                    *next = position + 1;
                    Some(position)
                })
                .collect();
            let universe = positions.last().map_or(0, |&last| last as usize + 1);
            let mut bytes = code(&positions, parameter);
            let len = len_bits(&positions, parameter).div_ceil(8) as usize;
            prop_assert_eq!(bytes.len(), len);
            bytes.push(rest);
            let back = decode(&bytes, positions.len(), universe, parameter);
            prop_assert_eq!(back, Ok((positions, len)));
        }

        #[test]
        fn any_bytes_decode_or_fail(bytes: Vec<u8>, count in 0usize..100, parameter in 0u32..=30) {
            let universe = 1000;
            let mut last = None;
            let _ = for_each(&bytes, count, universe, parameter, |position| {
                assert!((position as usize) < universe && last < Some(position));
                last = Some(position);
            });
        }

        #[test]
        fn decoding_then_encoding_returns_the_bytes(
            mut bytes: Vec<u8>,
            count in 0usize..20,
            parameter in 0u32..=30,
        ) {
            // Zeros at the end, so that most codes end within the bytes.
            bytes.resize(bytes.len() + 80, 0);
            if let Ok((positions, used)) = decode(&bytes, count, 1 << 32, parameter) {
                prop_assert_eq!(positions.len(), count);
                prop_assert_eq!(code(&positions, parameter), &bytes[..used]);
            }
        }
    }

    #[test]
    #[should_panic(expected = "positions must increase")]
    fn a_position_twice_is_refused() {
        code(&[4, 4], 3);
    }

    #[test]
    fn a_full_universe_costs_a_bit_a_position() {
        let positions: Vec<u32> = (0..64).collect();
        assert_eq!(code(&positions, 0), vec![0; 8]);
    }
}
