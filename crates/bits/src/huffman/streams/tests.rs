//! Tests of exact bytes, against a decoder that follows the prefix code bit by bit, and of damaged
//! streams.

use super::*;
use crate::samples::{counts_of, entropy, symbols};
use alloc::collections::BTreeMap;
use alloc::vec;
use proptest::prelude::*;

/// A fitted code for symbols, as a receiver has it.
fn received(symbols: &[u16], alphabet: usize) -> Code {
    let (mut code, mut bytes) = (Code::default(), Vec::new());
    code.fit(&counts_of(symbols, alphabet), STREAMS_BITS);
    code.write(&mut bytes);
    assert_eq!(code.read(&bytes, alphabet, STREAMS_BITS), Ok(bytes.len()));
    code
}

fn encoded(code: &Code, symbols: &[u16]) -> Vec<u8> {
    let mut out = vec![0xee];
    code.encode_streams(symbols, &mut out);
    out.split_off(1)
}

fn decoded(code: &mut Code, bytes: &[u8], count: usize) -> Result<(Vec<u16>, usize), DecodeError> {
    // Existing content is overwritten.
    let mut out = vec![9; count];
    let used = code.decode_streams(bytes, &mut out)?;
    Ok((out, used))
}

/// Decodes a stream by looking every prefix up among the canonical codes, and returns the symbols
/// and the bits read.
fn bit_by_bit(lengths: &[u8], bytes: &[u8], count: usize) -> (Vec<u16>, usize) {
    let mut order: Vec<usize> = (0..lengths.len()).filter(|&at| lengths[at] > 0).collect();
    order.sort_by_key(|&at| (lengths[at], at));
    let (mut codes, mut next, mut before) = (BTreeMap::new(), 0, 0);
    for &symbol in &order {
        next <<= lengths[symbol] - before;
        codes.insert((lengths[symbol], next), symbol);
        (next, before) = (next + 1, lengths[symbol]);
    }
    let (mut symbols, mut at) = (Vec::new(), 0);
    while symbols.len() < count {
        let (mut code, mut length) = (0u32, 0u8);
        let symbol = loop {
            code = code << 1 | u32::from(bytes[at / 8] >> (at % 8) & 1);
            (at, length) = (at + 1, length + 1);
            if let Some(&symbol) = codes.get(&(length, code)) {
                break symbol;
            }
        };
        symbols.push(symbol as u16);
    }
    (symbols, at)
}

/// The symbols of streams, by the definition of the format.
fn by_definition(lengths: &[u8], bytes: &[u8], count: usize) -> Vec<u16> {
    let (mut start, mut symbols) = (12, Vec::new());
    for stream in 0..4 {
        let most = count.div_ceil(4);
        let (part, bits) = bit_by_bit(lengths, &bytes[start..], most.min(count - symbols.len()));
        let end = start + bits.div_ceil(8);
        if stream < 3 {
            let length = u32::from_le_bytes(bytes[4 * stream..][..4].try_into().unwrap());
            assert_eq!(length as usize, end - start);
        }
        symbols.extend(part);
        start = end;
    }
    assert_eq!(start, bytes.len());
    symbols
}

fn round_trip(symbols: &[u16], alphabet: usize) {
    let mut code = received(symbols, alphabet);
    let bytes = encoded(&code, symbols);
    if code.single.is_some() || symbols.is_empty() {
        assert!(bytes.is_empty());
    } else {
        assert_eq!(by_definition(code.lengths(), &bytes, symbols.len()), symbols);
        let mut single = Vec::new();
        code.encode(symbols, &mut single);
        assert!(bytes.len() <= single.len() + STREAMS_EXTRA);
    }
    let with_more = [&bytes[..], &[0xff; 20]].concat();
    for bytes_or_more in [&bytes, &with_more] {
        let (back, used) = decoded(&mut code, bytes_or_more, symbols.len()).unwrap();
        assert_eq!((&back[..], used), (symbols, bytes.len()));
    }
}

#[test]
fn bytes_by_hand() {
    // Codes 0, 10, 110 and 111, their first bit lowest.
    let mut code = received(&[0, 0, 0, 0, 1, 1, 2, 3], 4);
    assert_eq!(code.lengths(), [1, 2, 3, 3]);
    // Two of five symbols each: 0 10, 110 111, 0, nothing.
    let bytes = [1, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0b010, 0b11_1011, 0];
    assert_eq!(encoded(&code, &[0, 1, 2, 3, 0]), bytes);
    assert_eq!(decoded(&mut code, &bytes, 5), Ok((vec![0, 1, 2, 3, 0], 15)));
}

#[test]
fn every_length_around_the_edges_returns() {
    for len in (0..70).chain([127, 128, 129, 4095, 4096, 4097, 16_390]) {
        for (alphabet, skew) in [(2, 0), (2, 3), (3, 1), (17, 4), (255, 0), (256, 9), (1000, 1)] {
            round_trip(&symbols(len, alphabet, skew), alphabet);
        }
    }
    round_trip(&[3; 100], 5);
}

#[test]
fn quarters_of_different_statistics_return() {
    // Streams with short codes end long before streams with long codes, and the other way round.
    let mut all = symbols(4000, 2, 0);
    all.extend(symbols(12_000, 900, 0));
    round_trip(&all, 900);
    all.reverse();
    round_trip(&all, 900);
}

#[test]
fn both_tables_are_used() {
    let lookups = |skew| received(&symbols(5000, 200, skew), 200).symbols_per_lookup();
    assert!(lookups(0) < 1.1 && lookups(9) > u16::WORTHWHILE);
    // Lengths 1, 2, 3, 3 always leave room for another one.
    assert_eq!(received(&[0, 0, 0, 0, 1, 1, 2, 3], 4).symbols_per_lookup(), 2.0);
}

#[test]
fn smooth_distributions_take_one_percent_more_than_their_entropy() {
    for width in [5, 8, 16, 64] {
        // Sums of four uniform numbers, as levels of normal values are distributed.
        let draws = symbols(400_000, width, 0);
        let sums: Vec<u16> = draws.chunks(4).map(|four| four.iter().sum()).collect();
        let (code, least) = (received(&sums, 4 * width), entropy(&counts_of(&sums, 4 * width)));
        let bytes = encoded(&code, &sums).len() as f64;
        assert!(bytes >= least && bytes < 1.01 * least, "{width}: {bytes}, entropy {least}");
    }
}

#[test]
fn streams_that_end_early_are_refused_at_every_byte() {
    for skew in [0, 5] {
        let symbols = symbols(600, 100, skew);
        let mut code = received(&symbols, 100);
        let bytes = encoded(&code, &symbols);
        for end in 0..bytes.len() {
            let result = decoded(&mut code, &bytes[..end], 600);
            assert_eq!(result, Err(DecodeError::Truncated), "{end}");
        }
    }
}

#[test]
fn wrong_lengths_are_refused() {
    let symbols = symbols(600, 100, 1);
    let mut code = received(&symbols, 100);
    let bytes = encoded(&code, &symbols);
    for at in 0..LENGTHS {
        for change in 1..=255 {
            let mut wrong = bytes.clone();
            wrong[at] = wrong[at].wrapping_add(change);
            assert!(decoded(&mut code, &wrong, 600).is_err(), "{at} {change}");
        }
    }
    let mut longer = bytes.clone();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap());
    longer[..4].copy_from_slice(&(length + 1).to_le_bytes());
    longer.insert(LENGTHS + length as usize, 0);
    assert_eq!(decoded(&mut code, &longer, 600), Err(WRONG_LENGTH));
    assert_eq!(decoded(&mut code, &bytes, 8 * bytes.len() + 1), Err(DecodeError::Truncated));
}

#[test]
fn long_codes_have_no_streams() {
    let mut code = Code::default();
    code.fit(&(0..14).map(|power| 1 << power).collect::<Vec<u32>>(), 13);
    let mut bytes = Vec::new();
    code.write(&mut bytes);
    code.read(&bytes, 14, 13).unwrap();
    let too_long = DecodeError::Corrupt("a Huffman code is too long for streams");
    assert_eq!(decoded(&mut code, &[0; 100], 5), Err(too_long));
}

proptest! {
    #[test]
    fn symbols_return(len in 0usize..9000, alphabet in 1usize..1025, skew in 0u32..12) {
        round_trip(&symbols(len, alphabet, skew), alphabet);
    }

    #[test]
    fn damaged_streams_decode_or_fail(
        len in 1usize..3000, skew in 0u32..12, at: prop::sample::Index, bit in 0u8..8, cut in 0usize..20,
    ) {
        let symbols = symbols(len, 50, skew);
        let mut code = received(&symbols, 50);
        let mut bytes = encoded(&code, &symbols);
        if !bytes.is_empty() {
            *at.get_mut(&mut bytes) ^= 1 << bit;
            bytes.truncate(bytes.len().saturating_sub(cut.saturating_sub(10)));
        }
        if let Ok((back, used)) = decoded(&mut code, &bytes, len) {
            prop_assert_eq!(back.len(), len);
            // A code that was read is written in only one way.
            prop_assert_eq!(&encoded(&code, &back)[..], &bytes[..used]);
        }
    }

    #[test]
    fn random_bytes_decode_or_fail(noise: Vec<u8>, count in 0usize..400) {
        let mut code = received(&symbols(500, 30, 3), 30);
        if let Ok((back, used)) = decoded(&mut code, &noise, count) {
            prop_assert_eq!(&encoded(&code, &back)[..], &noise[..used]);
        }
    }
}
