//! Tests of exact bits, and of optimal lengths against independent oracles.

use super::*;
use crate::samples::counts_of;
use alloc::collections::BinaryHeap;
use alloc::vec;
use core::cmp::Reverse;
use proptest::prelude::*;

fn fitted(counts: &[u32], limit: u32) -> Code {
    let mut code = Code::default();
    code.fit(counts, limit);
    code
}

fn encoded(code: &Code, symbols: &[u16]) -> Vec<u8> {
    let mut out = Vec::new();
    code.encode(symbols, &mut out);
    out
}

fn packed(code: &Code) -> Vec<u8> {
    let mut out = Vec::new();
    code.write(&mut out);
    out
}

/// Writes the code and reads it back, as a receiver does.
fn received(code: &Code, symbols: usize, limit: u32) -> Code {
    let (bytes, mut code) = (packed(code), Code::default());
    assert_eq!(code.read(&bytes, symbols, limit), Ok(bytes.len()));
    code
}

fn round_trip(symbols: &[u16], alphabet: usize, limit: u32) {
    let counts = counts_of(symbols, alphabet);
    let code = fitted(&counts, limit);
    let bytes = encoded(&code, symbols);
    assert_eq!(bytes.len() as u64, code.len_bits(&counts).div_ceil(8));
    assert_eq!(packed(&code).len() as u64, code.packed_bits().div_ceil(8));
    let (receiver, mut back) = (received(&code, alphabet, limit), vec![7u16; symbols.len()]);
    assert_eq!(receiver.decode(&bytes, &mut back), Ok(bytes.len()));
    assert_eq!(back, symbols);
}

#[test]
fn a_single_symbol_needs_no_stream() {
    let code = fitted(&[0, 0, 9, 0], 12);
    assert_eq!(code.lengths(), [0, 0, 1, 0]);
    assert!(encoded(&code, &[2; 9]).is_empty() && code.len_bits(&[0, 0, 9, 0]) == 0);
    // A run of two: 110, γ(2) = 0 1 0; one bit where eight are expected: 111, 1 as five bits; a run
    // of one: 110 1. From the lowest bit: 110 010 11|1 10000 11|01.
    assert_eq!(packed(&code), [0b1101_0011, 0b1100_0011, 0b10]);
    round_trip(&[2; 9], 4, 12);
    round_trip(&[0; 3], 1, 12);
}

#[test]
fn two_symbols_take_a_bit_each() {
    let code = fitted(&[1, 1000], 12);
    assert_eq!(code.lengths(), [1, 1]);
    assert_eq!(encoded(&code, &[1, 0, 1, 1]), [0b1101]);
    round_trip(&[1, 0, 1, 1, 1, 1, 1, 1, 0], 2, 12);
}

#[test]
fn a_skewed_alphabet_by_hand() {
    // a 4, b 2, c 1, d 1: codes 0, 10, 110, 111, their first bit lowest: 0, 01, 011, 111.
    let code = fitted(&[4, 2, 1, 1], 12);
    assert_eq!(code.lengths(), [1, 2, 3, 3]);
    // a b c d: 0 10 110 11|1.
    assert_eq!(encoded(&code, &[0, 1, 2, 3]), [0b1101_1010, 0b1]);
    // 111 and 1; one more: 101; one more; the same: 0. From the lowest: 111 10000|101 101 0.
    assert_eq!(packed(&code), [0b0000_1111, 0b10_1101]);
    // With at most two bits all lengths are equal.
    assert_eq!(fitted(&[4, 2, 1, 1], 2).lengths(), [2, 2, 2, 2]);
}

/// The cost of the unlimited Huffman code, by merging the two rarest symbols.
fn unlimited(counts: &[u32]) -> u64 {
    let mut heap: BinaryHeap<_> =
        counts.iter().filter(|&&count| count > 0).map(|&count| Reverse(u64::from(count))).collect();
    let mut cost = 0;
    while let (Some(Reverse(a)), Some(Reverse(b))) = (heap.pop(), heap.pop()) {
        cost += a + b;
        heap.push(Reverse(a + b));
    }
    cost
}

/// The least cost of lengths up to `limit` whose Kraft sum is at most 1, by exhaustive search.
fn exhaustive(counts: &[u32], limit: u32, room: u32) -> Option<u64> {
    let Some((&count, rest)) = counts.split_first() else { return Some(0) };
    let length = |length: u32| {
        let left = room.checked_sub(1 << (limit - length))?;
        Some(u64::from(count) * u64::from(length) + exhaustive(rest, limit, left)?)
    };
    (1..=limit).filter_map(length).min()
}

#[test]
fn lengths_under_a_tight_limit_are_optimal() {
    let fibonacci = [1, 1, 2, 3, 5, 8, 13];
    // Without a limit the rarest have six bits.
    assert_eq!(fitted(&fibonacci, 12).lengths(), [6, 6, 5, 4, 3, 2, 1]);
    for limit in 3..6 {
        let code = fitted(&fibonacci, limit);
        assert!(code.lengths().iter().all(|&length| u32::from(length) <= limit));
        assert_eq!(Some(code.len_bits(&fibonacci)), exhaustive(&fibonacci, limit, 1 << limit));
    }
}

#[test]
fn many_symbols_round_trip() {
    // 2^16 symbols, larger ones rarer; a uniform alphabet; one with codes longer than 14 bits.
    let all: Vec<u16> = (0..=u16::MAX).collect();
    round_trip(&all, 1 << 16, limit(1 << 16));
    let mut skewed = all.clone();
    for power in 0..14u32 {
        skewed.extend((0..1 << power).map(|_| power as u16));
    }
    round_trip(&skewed, 1 << 16, limit(1 << 16));
    let doubling: Vec<u16> = (0..17u16).flat_map(|s| vec![s; 1 << s]).collect();
    round_trip(&doubling, 17, MOST_BITS);
    assert_eq!(fitted(&counts_of(&doubling, 17), MOST_BITS).lengths()[0], 16);
}

#[test]
fn limits_hold_the_alphabet() {
    assert_eq!([0, 1, 256, 1024, 2048, 1 << 16].map(limit), [12, 12, 12, 12, 13, 18]);
}

#[test]
fn sparse_alphabets_are_cheap() {
    let mut counts = [0; 65536];
    (counts[100], counts[65000]) = (5, 5);
    // Runs of 100, 64 899 and 535, and two lengths of 1: 16 + 8 + 34 + 1 + 22 bits.
    assert_eq!(fitted(&counts, 18).packed_bits(), 81);
}

#[test]
fn invalid_codes_are_refused() {
    let read = |bytes: &[u8], symbols| Code::default().read(bytes, symbols, 12).unwrap_err();
    // Lengths 1, 1, 1: over-subscribed. 111 10000 0 0.
    let over = DecodeError::Corrupt("the Huffman code lengths are over-subscribed");
    assert_eq!(read(&[0b0000_1111, 0], 3), over);
    // Lengths 2, 2, 2: incomplete.
    let incomplete = DecodeError::Corrupt("the Huffman code lengths are incomplete");
    assert_eq!(read(&[0b0001_0111, 0], 3), incomplete);
    // A single symbol of two bits.
    let single = DecodeError::Corrupt("the only Huffman code is longer than one bit");
    assert_eq!(read(&[0b0001_0111], 1), single);
    let range = DecodeError::Corrupt("a Huffman code length is out of range");
    assert_eq!(read(&[0b0000_0111], 1), range);
    assert_eq!(read(&[0b0110_1111, 0], 1), range);
    // A run of two in an alphabet of one.
    assert_eq!(
        read(&[0b1_0011], 1),
        DecodeError::Corrupt("a run of zero Huffman code lengths exceeds the alphabet")
    );
    let long = DecodeError::Corrupt("a run of zero Huffman code lengths is too long");
    assert_eq!(read(&[0b0000_0011, 0, 0, 0, 0, 1], 1), long);
    assert_eq!(read(&[0b0000_0011, 0], 1), DecodeError::Truncated);
    // Two runs of one instead of one of two, and 111 10000 after a length of 1.
    let parts = DecodeError::Corrupt("a run of zero Huffman code lengths is split in two");
    assert_eq!(read(&[0b1011_1011, 15, 0], 4), parts);
    let form = DecodeError::Corrupt("a Huffman code length is not in its shortest form");
    assert_eq!(read(&[15, 15], 2), form);
    assert_eq!(read(&[], 1), DecodeError::Truncated);
    // Padding: lengths 1, 1 and a bit that is not zero.
    assert_eq!(read(&[0b0000_1111, 0b10], 2), DecodeError::Corrupt("padding bits are not zero"));
}

#[test]
fn streams_that_end_early_are_refused_at_every_byte() {
    let symbols: Vec<u16> = (0..200).map(|at| (at * at % 37) as u16).collect();
    let code = fitted(&counts_of(&symbols, 37), 12);
    let (bytes, receiver) = (encoded(&code, &symbols), received(&code, 37, 12));
    for end in 0..bytes.len() {
        assert!(receiver.decode(&bytes[..end], &mut [0u16; 200]).is_err(), "{end}");
    }
    let lengths = packed(&code);
    for end in 0..lengths.len() {
        assert!(Code::default().read(&lengths[..end], 37, 12).is_err(), "{end}");
    }
    assert_eq!(receiver.decode(&bytes, &mut [0u16; 10_000]), Err(DecodeError::Truncated));
    let empty = Code::default();
    assert_eq!(empty.decode::<u16>(&bytes, &mut []), Ok(0));
    assert!(empty.decode(&bytes, &mut [0u16]).is_err());
}

#[test]
fn symbols_that_a_decoder_once_confused_return() {
    let numbers = include_str!("once_failed.txt").split_whitespace();
    let symbols: Vec<u16> = numbers.map(|number| number.parse().unwrap()).collect();
    assert_eq!(symbols.len(), 856);
    for skew in 1..8 {
        let skewed: Vec<u16> = symbols.iter().map(|symbol| symbol >> (symbol % skew)).collect();
        round_trip(&skewed, 300, limit(300));
        round_trip(&skewed, 300, 9);
    }
}

proptest! {
    #[test]
    fn symbols_return(symbols in prop::collection::vec(0u16..300, 0..2000), skew in 0u32..8) {
        let skewed: Vec<u16> = symbols.iter().map(|&s| s >> (u32::from(s) % (skew + 1))).collect();
        round_trip(&skewed, 300, limit(300));
        round_trip(&skewed, 300, 9);
    }

    #[test]
    fn lengths_are_optimal(counts in prop::collection::vec(0u32..1000, 2..200)) {
        let code = fitted(&counts, MOST_BITS);
        let expected = if code.single.is_some() { 0 } else { unlimited(&counts) };
        prop_assert_eq!(code.len_bits(&counts), expected);
        prop_assert!(check_complete(code.lengths()).is_ok());
    }

    #[test]
    fn limited_lengths_equal_exhaustive_search(counts in prop::collection::vec(1u32..50, 2..7), limit in 3u32..5) {
        let code = fitted(&counts, limit);
        prop_assert_eq!(Some(code.len_bits(&counts)), exhaustive(&counts, limit, 1 << limit));
    }

    #[test]
    fn random_bytes_decode_or_fail(bytes: Vec<u8>, symbols in 0usize..5000, count in 0usize..5000) {
        let mut code = Code::default();
        if let Ok(used) = code.read(&bytes, symbols, 12) {
            prop_assert_eq!(&packed(&code)[..], &bytes[..used]);
            let mut out = vec![u16::MAX; count];
            let decoded = code.decode(&bytes[used..], &mut out);
            prop_assert!(decoded.is_err() || out.iter().all(|&symbol| usize::from(symbol) < symbols));
        }
    }
}
