//! Tests of exact bytes, against a coder that follows the definition with arithmetic instead of
//! tables, and of damage.

use super::*;
use crate::samples::{counts_of, entropy, symbols};
use alloc::vec;
use proptest::prelude::*;

fn received(counts: &[u32]) -> Code {
    let (mut code, mut bytes) = (Code::default(), Vec::new());
    code.fit(counts);
    code.write(&mut bytes);
    assert_eq!(code.read(&bytes, counts.len()), Ok(bytes.len()));
    code
}

fn encoded(code: &mut Code, symbols: &[u16]) -> Vec<u8> {
    let mut out = vec![0xee];
    code.encode(symbols, &mut out);
    out.split_off(1)
}

fn decoded(code: &Code, bytes: &[u8], count: usize) -> Result<(Vec<u16>, usize), DecodeError> {
    // Existing content is overwritten.
    let mut out = vec![9; count];
    let used = code.decode(bytes, &mut out)?;
    Ok((out, used))
}

/// By state: its symbol, and the x of the definition.
fn states(shares: &[u16]) -> Vec<(usize, u64)> {
    let mut symbols = vec![usize::MAX; 4096];
    let mut at = 0;
    for (symbol, &share) in shares.iter().enumerate() {
        for _ in 0..share {
            symbols[at * 2563 % 4096] = symbol;
            at += 1;
        }
    }
    let mut seen = vec![0; shares.len()];
    let state = |symbol: usize| {
        seen[symbol] += 1;
        (symbol, u64::from(shares[symbol]) + seen[symbol] - 1)
    };
    symbols.into_iter().map(state).collect()
}

/// The bits of a stream in order. Searches the state that leads to the current one, symbol by
/// symbol from the last.
fn stream_by_definition(shares: &[u16], symbols: &[u16]) -> Vec<u8> {
    let states = states(shares);
    let (mut state, mut backwards) = (0u64, Vec::new());
    for &symbol in symbols.iter().rev() {
        let leads = |&at: &usize| {
            let (own, x) = states[at];
            let bits = 12 - x.ilog2();
            let least = (x << bits) - 4096;
            own == usize::from(symbol) && (least..least + (1 << bits)).contains(&state)
        };
        let before = (0..4096).find(leads).unwrap();
        let bits = 12 - states[before].1.ilog2();
        let value = state - ((states[before].1 << bits) - 4096);
        (0..bits).rev().for_each(|bit| backwards.push(value >> bit & 1 == 1));
        state = before as u64;
    }
    (0..12).rev().for_each(|bit| backwards.push(state >> bit & 1 == 1));
    backwards.push(true);
    backwards.resize(backwards.len().next_multiple_of(8), false);
    backwards.reverse();
    let byte = |bits: &[bool]| bits.iter().rev().fold(0, |byte, &bit| byte << 1 | u8::from(bit));
    backwards.chunks(8).map(byte).collect()
}

fn by_definition(shares: &[u16], symbols: &[u16]) -> Vec<u8> {
    let parts = symbols.chunks(symbols.len().div_ceil(4).max(1));
    let streams: Vec<_> = parts.map(|part| stream_by_definition(shares, part)).collect();
    let length = |i| streams.get(i).map_or(0, |stream: &Vec<u8>| stream.len() as u32);
    let lengths: Vec<u8> = (0..3).flat_map(|i| length(i).to_le_bytes()).collect();
    if symbols.is_empty() { Vec::new() } else { [lengths, streams.concat()].concat() }
}

fn round_trip(symbols: &[u16], counts: &[u32]) -> usize {
    let mut code = received(counts);
    let bytes = encoded(&mut code, symbols);
    let with_more = [&bytes[..], &[0xff; 20]].concat();
    for bytes_or_more in [&bytes, &with_more] {
        let (back, used) = decoded(&code, bytes_or_more, symbols.len()).unwrap();
        assert_eq!((&back[..], used), (symbols, bytes.len()));
    }
    bytes.len()
}

#[test]
fn bytes_by_hand() {
    // One symbol has all states and needs no bits: state 0 after three zeros and a one, in sixteen
    // bits.
    let mut code = received(&[0, 3]);
    let bytes = [2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0b1000, 0, 0b1000, 0];
    assert_eq!(encoded(&mut code, &[1, 1]), bytes);
    assert_eq!(decoded(&code, &bytes, 2), Ok((vec![1, 1], 16)));
    // Two symbols with half of the states each: 0 has states 0, 2563, 1030, …; 1 bit each. State 0
    // has x = 2048, reads one bit, and goes to 0 or 1. State 1 has symbol 1 if it is among the last
    // 2048 places.
    let code = received(&[1, 1]);
    let place = (0..4096).find(|place| place * 2563 % 4096 == 1).unwrap();
    assert_eq!(code.decoding[0].symbol(), 0);
    assert_eq!([0, 1].map(|bit| code.decoding[0].next(bit)), [0, 1]);
    assert_eq!(code.decoding[0].bits(), 1);
    assert_eq!(code.decoding[1].symbol(), u16::from(place >= 2048));
}

#[test]
fn streams_are_those_of_the_definition() {
    for (alphabet, skew) in [(2, 0), (2, 4), (3, 9), (9, 2), (255, 3)] {
        for len in [1, 2, 3, 4, 5, 7, 8, 16, 17, 31, 64, 100, 203] {
            let symbols = symbols(len, alphabet, skew);
            let mut code = received(&counts_of(&symbols, alphabet));
            let bytes = encoded(&mut code, &symbols);
            assert_eq!(bytes, by_definition(&code.shares, &symbols), "{len} of {alphabet}");
        }
    }
}

#[test]
fn every_length_around_the_edges_returns() {
    for len in (0..70).chain([127, 128, 129, 4095, 4096, 4097, 16_390]) {
        for (alphabet, skew) in [(1, 0), (2, 0), (2, 9), (17, 4), (256, 9), (1024, 1)] {
            let symbols = symbols(len, alphabet, skew);
            let mut counts = counts_of(&symbols, alphabet);
            counts[alphabet - 1] += 1;
            round_trip(&symbols, &counts);
        }
    }
}

#[test]
fn every_length_around_the_edges_returns_without_bmi2() {
    use crate::kernels::testing::{InstructionSet, limited};
    limited(InstructionSet::Baseline, every_length_around_the_edges_returns);
}

#[test]
fn code_takes_one_percent_more_than_the_entropy() {
    for (alphabet, skew) in [(2, 0), (2, 3), (3, 9), (9, 2), (9, 6), (33, 5), (255, 1), (255, 9)] {
        let symbols = symbols(200_000, alphabet, skew);
        let counts = counts_of(&symbols, alphabet);
        let (bytes, least) = (round_trip(&symbols, &counts) as f64, entropy(&counts));
        assert!(
            bytes < 1.01 * least + 24.0 && bytes > 0.999 * least,
            "{alphabet} {skew}: {bytes} {least}"
        );
        let mut code = Code::default();
        code.fit(&counts);
        let estimate = code.estimated_bits(&counts) as f64 / 8.0;
        let mut all = Vec::new();
        code.write(&mut all);
        code.encode(&symbols, &mut all);
        assert!((estimate / all.len() as f64 - 1.0).abs() < 0.003, "{estimate} {}", all.len());
    }
}

#[test]
fn streams_that_end_early_or_late_are_refused() {
    let symbols = symbols(600, 20, 3);
    let mut code = received(&counts_of(&symbols, 20));
    let bytes = encoded(&mut code, &symbols);
    for end in 0..bytes.len() {
        assert!(decoded(&code, &bytes[..end], 600).is_err(), "{end}");
    }
    for at in 0..12 {
        for change in 1..=255 {
            let mut wrong = bytes.clone();
            wrong[at] = wrong[at].wrapping_add(change);
            assert!(decoded(&code, &wrong, 600).is_err(), "{at} {change}");
        }
    }
    let zeros = DecodeError::Corrupt("a tANS stream starts with eight zeros");
    assert_eq!(decoded(&code, &[0; 40], 600), Err(zeros));
    assert_eq!(decoded(&code, &[], 0), Ok((vec![], 0)));
}

proptest! {
    #[test]
    fn symbols_return(len in 0usize..9000, alphabet in 1usize..1025, skew in 0u32..12) {
        let symbols = symbols(len, alphabet, skew);
        let mut counts = counts_of(&symbols, alphabet);
        counts[0] += 1;
        round_trip(&symbols, &counts);
    }

    #[test]
    fn damaged_streams_decode_or_fail(
        len in 1usize..3000, skew in 0u32..12, at: prop::sample::Index, bit in 0u8..8,
    ) {
        let symbols = symbols(len, 50, skew);
        let mut code = received(&counts_of(&symbols, 50));
        let mut bytes = encoded(&mut code, &symbols);
        *at.get_mut(&mut bytes) ^= 1 << bit;
        if let Ok((back, used)) = decoded(&code, &bytes, len) {
            // A code that was read is written in only one way.
            prop_assert_eq!(&encoded(&mut code, &back)[..], &bytes[..used]);
        }
    }

    #[test]
    fn random_bytes_decode_or_fail(noise: Vec<u8>, symbols in 0usize..1100, count in 0usize..400) {
        let mut code = Code::default();
        if let Ok(used) = code.read(&noise, symbols) {
            let mut written = Vec::new();
            code.write(&mut written);
            prop_assert_eq!(&written[..], &noise[..used]);
            let decoded = decoded(&code, &noise[used..], count);
            prop_assert!(decoded.is_err() || decoded.unwrap().0.len() == count);
        }
    }
}
