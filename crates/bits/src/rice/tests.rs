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
    let used = super::decode(bytes, count, universe, parameter, &mut all)?;
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

/// The code, bit by bit.
fn naive(positions: &[u32], parameter: u32) -> Vec<u8> {
    let (mut bits, mut next) = (Vec::new(), 0);
    for position in positions.iter().map(|&position| u64::from(position)) {
        let gap = position - next;
        bits.extend((0..gap >> parameter).map(|_| true));
        bits.push(false);
        bits.extend((0..parameter).map(|at| gap >> at & 1 == 1));
        next = position + 1;
    }
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    bits.chunks(8).map(byte).collect()
}

#[test]
fn many_positions_with_short_and_long_gaps() {
    let mut state = 7u64;
    let mut random = |below: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32 % below
    };
    for count in [1, 2, 255, 256, 257, 513, 1023, 1024, 1025, 3000] {
        for parameter in [0, 1, 5, 8, 12, 19, 24, 30] {
            // Below 2^32 in total. One in fifty takes more ones, of the larger parameters only one
            // in all.
            let short = (2u32 << parameter).min(u32::MAX / 8 / count);
            let long = (60u32 << parameter.min(12)).min(u32::MAX / 8 / count);
            // The third quarter has many long gaps, and the others none or few.
            let mut position = 0;
            let positions: Vec<u32> = (0..count)
                .map(|at| {
                    let seldom = [5000, 200, 3, 500][(4 * at / count) as usize];
                    let most = if random(seldom) == 0 { long } else { short };
                    position += 1 + random(most);
                    position
                })
                .collect();
            let bytes = code(&positions, parameter);
            assert!(bytes == naive(&positions, parameter), "{count} at {parameter}");
            assert_eq!(len_bits(&positions, parameter).div_ceil(8), bytes.len() as u64);
            let universe = position as usize + 1;
            let back = decode(&bytes, positions.len(), universe, parameter);
            assert!(back == Ok((positions.clone(), bytes.len())), "{count} at {parameter}");
            let past = DecodeError::Corrupt("a position lies past the end");
            assert_eq!(decode(&bytes, positions.len(), universe - 1, parameter), Err(past));
            // Bytes after the code are ignored.
            let more = [&bytes[..], &[0xff; 20]].concat();
            assert!(decode(&more, positions.len(), universe, parameter) == back);
        }
    }
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
    // Seven ones are 28 with two lower bits, but these are missing: past 28, or truncated.
    assert_eq!(decode(&[0x7f], 1, 28, 2), Err(past));
    assert_eq!(decode(&[0x7f], 1, 29, 2), Err(DecodeError::Truncated));
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
        let positions: Vec<u32> = gaps.into_iter().scan(0, next_position).collect();
        let universe = positions.last().map_or(0, |&last| last as usize + 1);
        let mut bytes = code(&positions, parameter);
        let len = len_bits(&positions, parameter).div_ceil(8) as usize;
        prop_assert_eq!(bytes.len(), len);
        bytes.push(rest);
        let back = decode(&bytes, positions.len(), universe, parameter);
        prop_assert_eq!(back, Ok((positions, len)));
    }

    #[test]
    fn parts_return(
        gaps in proptest::collection::vec(0u32..5000, 0..200),
        cut in 0usize..200,
        parameter in 0u32..=30,
    ) {
        let positions: Vec<u32> = gaps.into_iter().scan(0, next_position).collect();
        let parts = parts(&positions, cut.min(positions.len()), parameter);
        prop_assert_eq!(decode_both(&parts, parameter), Ok(positions));
    }

    #[test]
    fn any_bytes_decode_or_fail(bytes: Vec<u8>, count in 0usize..100, parameter in 0u32..=30) {
        let universe = 1000;
        let mut positions = vec![];
        let _ = super::decode(&bytes, count, universe, parameter, &mut positions);
        prop_assert!(positions.is_sorted_by(|a, b| a < b) && positions.len() <= count);
        prop_assert!(positions.last().is_none_or(|&last| (last as usize) < universe));
    }

    #[test]
    fn decoding_then_encoding_returns_the_bytes(
        mut bytes: Vec<u8>,
        count in 0usize..20,
        parameter in 0u32..=30,
    ) {
        // Zeros at the end, so most codes end within the bytes.
        bytes.resize(bytes.len() + 80, 0);
        if let Ok((positions, used)) = decode(&bytes, count, 1 << 32, parameter) {
            prop_assert_eq!(positions.len(), count);
            prop_assert_eq!(code(&positions, parameter), &bytes[..used]);
        }
    }
}

/// Positions in two parts; the second begins after `cut` positions.
fn parts(positions: &[u32], cut: usize, parameter: u32) -> [(Vec<u8>, Range<u64>, usize); 2] {
    let (one, other) = positions.split_at(cut);
    let end = after(one);
    let (mut front, mut back) = (vec![], vec![]);
    encode_from(0, one, parameter, &mut front);
    encode_from(end as u32, other, parameter, &mut back);
    [(front, 0..end, one.len()), (back, end..after(other).max(end), other.len())]
}

fn decode_both(
    parts: &[(Vec<u8>, Range<u64>, usize); 2],
    parameter: u32,
) -> Result<Vec<u32>, DecodeError> {
    let mut all = Vec::new();
    for (bytes, range, count) in parts {
        let mut positions = vec![0; *count];
        decode_part(bytes, range.clone(), parameter, &mut positions)?;
        all.extend(positions);
    }
    Ok(all)
}

#[test]
fn a_part_by_hand() {
    // The gaps of `bits_by_hand`, from 100 on.
    let mut bytes = Vec::new();
    encode_from(100, &[100, 105, 170], 6, &mut bytes);
    assert_eq!(bytes, [0b0000_0000, 0b0100_0100, 0b0000_0000]);
    assert_eq!(len_bits_from(100, &[100, 105, 170], 6), 22);
    let mut positions = [0; 3];
    assert_eq!(decode_part(&bytes, 100..171, 6, &mut positions), Ok(()));
    assert_eq!(positions, [100, 105, 170]);
    assert_eq!(decode_part(&[], 100..100, 6, &mut []), Ok(()));
}

#[test]
fn malformed_parts_are_refused() {
    let positions: Vec<u32> = (0..50).map(|at| 3 * at * at).collect();
    for cut in [0, 1, 20, 49, 50] {
        let parts = parts(&positions, cut, 4);
        assert_eq!(decode_both(&parts, 4), Ok(positions.clone()));
        for lane in [0, 1] {
            let mut longer = parts.clone();
            longer[lane].0.push(0);
            let more = DecodeError::Corrupt("bytes follow the code of a part");
            assert_eq!(decode_both(&longer, 4), Err(more), "{cut}");
            let mut shorter = parts.clone();
            if shorter[lane].0.pop().is_some() {
                assert_eq!(decode_both(&shorter, 4), Err(DecodeError::Truncated), "{cut}");
            }
            let mut before = parts.clone();
            let last = if lane == 0 { cut.checked_sub(1) } else { Some(49) };
            if let Some(last) = last.filter(|_| parts[lane].2 > 0) {
                before[lane].1.end = positions[last].into();
                let past = DecodeError::Corrupt("a position lies past the end");
                assert_eq!(decode_both(&before, 4), Err(past), "{cut}");
            }
            let mut later = parts.clone();
            later[lane].1.end += 1;
            let before = DecodeError::Corrupt("a part ends before its range");
            assert_eq!(decode_both(&later, 4), Err(before), "{cut}");
        }
    }
}

#[test]
#[should_panic(expected = "positions must increase")]
fn a_part_that_begins_later_is_refused() {
    encode_from(5, &[4], 3, &mut Vec::new());
}

#[test]
#[should_panic(expected = "positions must increase")]
fn a_position_twice_is_refused() {
    code(&[4, 4], 3);
}

#[test]
fn positions_that_do_not_increase_are_refused_wherever_they_are() {
    let refused = |positions: &[u32]| std::panic::catch_unwind(|| code(positions, 3)).is_err();
    let increasing: Vec<u32> = (7..JOINED as u32 + 10).collect();
    assert!(!refused(&increasing));
    for at in 1..increasing.len() {
        let mut positions = increasing.clone();
        positions[at] -= 1;
        assert!(refused(&positions), "position {at} twice");
        positions[at] = 0;
        assert!(refused(&positions), "position {at} is 0");
    }
    // The largest position at the end of a chunk.
    let mut positions: Vec<u32> = (0..=JOINED as u32).collect();
    positions[JOINED - 1] = u32::MAX;
    assert!(refused(&positions));
}

#[test]
fn codes_that_just_fit_into_a_word() {
    // Of 24 bits, and one more; in the first place of a pair, in the second, and in both.
    for (one, other) in [(14, 14), (15, 0), (0, 15), (15, 15)] {
        let gaps = [3, 3 + (one << 9), 3 + (other << 9), 3, 3];
        let positions: Vec<u32> = gaps.into_iter().scan(0, next_position).collect();
        for start in 0..2 {
            let positions = &positions[start..];
            assert_eq!(code(positions, 9), naive(positions, 9), "{one} and {other} ones");
        }
    }
}

fn next_position(next: &mut u32, gap: u32) -> Option<u32> {
    let position = *next + gap;
    *next = position + 1;
    Some(position)
}

#[test]
fn a_full_universe_costs_a_bit_a_position() {
    let positions: Vec<u32> = (0..64).collect();
    assert_eq!(code(&positions, 0), vec![0; 8]);
}
