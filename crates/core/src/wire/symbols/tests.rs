//! Tests of symbols.

use gradwire_bits::tans::entropy_bits;
use gradwire_bits::{DecodeError, fixed, huffman};

use super::choice::{LISTS_OF_MAPS, Lengths};
use super::coding::{List, PART_SYMBOLS};
use super::{Alphabet, Coding, significance};
use crate::wire::fields;
use crate::workspace::SymbolCoder;
use crate::{BLOCK, Helpers, Workspace};

fn random(len: usize) -> Vec<u32> {
    let mut words = vec![0; len];
    crate::Rng::new(0, 1, 2, 3, 4).fill(&mut words);
    words
}

fn written(alphabet: Alphabet, symbols: &[u16]) -> Vec<u8> {
    let mut workspace = Workspace { symbols: symbols.to_vec(), ..Workspace::default() };
    let mut message = Vec::new();
    alphabet.write(&mut workspace, &mut message);
    message
}

fn read(alphabet: Alphabet, mut message: &[u8], elements: usize) -> Result<Vec<u16>, DecodeError> {
    let mut workspace = Workspace::default();
    alphabet.read(&mut message, elements, &mut workspace)?;
    fields::expect_len(message, 0).map(|()| workspace.symbols)
}

#[test]
fn bytes_worked_by_hand() {
    // Three bits each: 001 100 010, from the lowest.
    let five = Alphabet::new(5, false);
    assert_eq!(written(five, &[1, 4, 2]), [0b1010_0001, 0]);
    assert_eq!(read(five, &[0b1010_0001, 0], 3), Ok(vec![1, 4, 2]));
    // No form beats a byte, and Huffman code of two symbols with its lengths does not either.
    assert_eq!(written(Alphabet::new(5, true), &[1, 4]), [0, 0b10_0001]);
    // A single symbol has no stream: lengths 0, 1, 0, 0, 0 are 1101, 11110000, 110011.
    let lengths = [1, 0b1111_1011, 0b0011_0000, 0b11];
    assert_eq!(written(Alphabet::new(5, true), &[1; 100]), lengths);
    assert_eq!(read(Alphabet::new(5, true), &lengths, 100), Ok(vec![1; 100]));
    assert!(written(Alphabet::new(5, true), &[]).is_empty());
}

#[test]
fn groups_worked_by_hand() {
    // 1 + 3·1 is 4, which has all 4096 states: distance 5, 01101, and 4096, 0001101 and twelve
    // zeros. The streams of two groups are a one after three zeros, and state 0.
    let shares = [0b0001_0110, 0b0000_1011, 0];
    let streams = [2, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 8, 0, 8, 0];
    let message = [&[4, 2], &shares[..], &streams].concat();
    let ternary = Alphabet::new(3, true);
    assert_eq!(read(ternary, &message, 4), Ok(vec![1; 4]));
    let behind = DecodeError::Corrupt("the padding after the last symbol is not zero");
    assert_eq!(read(ternary, &message, 3), Err(behind));
    for size in [0, 1, 6, 255] {
        let mut wrong = message.clone();
        wrong[1] = size;
        assert!(matches!(read(ternary, &wrong, 4), Err(DecodeError::Corrupt(_))), "{size}");
    }
}

#[test]
fn significance_maps_worked_by_hand() {
    let five = Alphabet::new(5, true);
    // 4 is the most frequent symbol. The map, of fixed width, has ones at 2 and 6, the places of
    // the symbols 1 and 0, of three bits each.
    let message = [6, 4, 0, 0, 0b0100_0100, 0, 1];
    assert_eq!(read(five, &message, 8), Ok(vec![4, 4, 1, 4, 4, 4, 0, 4]));
    // The others have a map, too: 1 is the most frequent one, and 0 is at place 1.
    let nested = [6, 4, 0, 0, 0b0100_0101, 6, 1, 0, 0, 0b010, 0, 0];
    assert_eq!(read(five, &nested, 8), Ok(vec![1, 4, 0, 4, 4, 4, 1, 4]));
    // Without other symbols there is no list of them.
    assert_eq!(read(five, &[6, 4, 0, 0, 0], 8), Ok(vec![4; 8]));
    let corrupt = |message: &[u8], len| {
        assert!(matches!(read(five, message, len), Err(DecodeError::Corrupt(_))), "{message:?}");
    };
    corrupt(&[6, 5, 0, 0, 0b0100_0100, 0, 1], 8);
    corrupt(&[6, 4, 0, 0, 0b0100_0100, 0, 5], 8);
    corrupt(&[6, 4, 0, 0, 0b0100_0100, 5, 1], 8);
    // A map of a map, and a map of a symbol that is less than a third of all: 6 of 9 are others, or
    // 7.
    corrupt(&[6, 4, 0, 6, 0, 0, 0, 0, 0], 8);
    let two_thirds = [6, 4, 0, 0, 0b0011_1111, 0, 0, 0, 0, 0];
    assert_eq!(read(five, &two_thirds, 9), Ok(vec![0, 0, 0, 0, 0, 0, 4, 4, 4]));
    corrupt(&[6, 4, 0, 0, 0b0111_1111, 0, 0, 0, 0, 0], 9);
    for end in 0..message.len() {
        assert_eq!(read(five, &message[..end], 8), Err(DecodeError::Truncated), "{end}");
    }
}

#[test]
fn the_least_frequent_maps_return() {
    let forty = Alphabet::new(40, true);
    for len in [8192, 8193, 8194, 8195] {
        let symbol = |at: usize| if at.is_multiple_of(3) { 17 } else { 18 + at as u16 % 7 };
        let symbols: Vec<u16> = (0..len).map(symbol).collect();
        let (mut counts, mut coder, mut message) = (vec![0; 40], SymbolCoder::default(), vec![6]);
        huffman::count(&symbols, &mut counts);
        assert!(significance::is_fit(len, &counts) && !significance::is_fit(len + 3, &counts));
        let list = List { alphabet: forty, symbols: &symbols, counts: &counts };
        significance::put(list, &mut coder, &mut message, &LISTS_OF_MAPS);
        assert_eq!(read(forty, &message, len), Ok(symbols));
    }
}

/// Nested maps in fixed width of a list of `len` symbols. The first two thirds of each list,
/// rounded down, are other symbols, plus `more` in the list at `level`. The n-th symbol is the most
/// frequent one of the n-th list.
fn nested_maps(len: usize, (level, more): (usize, usize)) -> Vec<u8> {
    let (mut message, mut left, mut at) = (Vec::new(), len, 0);
    while left > 0 {
        let others = 2 * left / 3 + if at == level { more } else { 0 };
        let marks: Vec<u16> = (0..left).map(|place| u16::from(place < others)).collect();
        message.extend([6, at as u8, 0, 0]);
        fixed::pack_bits(&marks, &mut message);
        (left, at) = (others, at + 1);
    }
    message
}

#[test]
fn maps_are_nested_as_deep_as_they_can_be() {
    let (sixty, len) = (Alphabet::new(60, true), PART_SYMBOLS);
    let symbols = read(sixty, &nested_maps(len, (0, 0)), len).unwrap();
    let (mut left, mut depth) = (len, 0);
    while left > 0 {
        let others = 2 * left / 3;
        assert!(symbols[others..left].iter().all(|&symbol| symbol == depth), "{depth}");
        (left, depth) = (others, depth + 1);
    }
    assert!(depth > 30);
    let infrequent = DecodeError::Corrupt("a symbol is too rare for a significance map");
    for level in 0..usize::from(depth) {
        assert_eq!(read(sixty, &nested_maps(len, (level, 1)), len).as_ref(), Err(&infrequent));
    }
}

/// Checks that a message decodes, and so does one in a single stream, as older versions wrote it.
fn check_beside_single(alphabet: Alphabet, symbols: &[u16], message: &[u8]) -> f64 {
    let (mut coder, mut old) = (SymbolCoder::default(), vec![1]);
    coder.counts.resize(alphabet.symbols, 0);
    huffman::count(symbols, &mut coder.counts);
    coder.code.fit(&coder.counts, huffman::limit(alphabet.symbols));
    coder.code.write(&mut old);
    coder.code.encode(symbols, &mut old);
    for message in [&old, message] {
        assert_eq!(read(alphabet, message, symbols.len()).as_deref(), Ok(symbols));
        for end in (0..message.len()).step_by(97).chain([message.len() - 1]) {
            assert!(read(alphabet, &message[..end], symbols.len()).is_err(), "{end}");
        }
    }
    message.len() as f64 / old.len() as f64
}

#[test]
fn long_streams_are_four() {
    // Powers of two: Huffman code takes the entropy.
    let symbols: Vec<u16> = (0..40_000).map(|i| [0, 0, 0, 0, 1, 1, 2, 3][i % 8]).collect();
    let five = Alphabet::new(5, true);
    let (short, long) = (written(five, &symbols[..2000]), written(five, &symbols));
    assert_eq!((short[0], long[0]), (1, 2));
    let ratio = check_beside_single(five, &symbols, &long);
    assert!((1.0..1.002).contains(&ratio), "{ratio}");
}

#[test]
fn a_frequent_symbol_takes_less_than_a_bit() {
    let symbol = |word: u32| if word % 50 == 7 { 1 + word / 50 % 3 } else { 0 };
    let symbols: Vec<u16> = random(40_000).into_iter().map(|word| symbol(word) as u16).collect();
    let five = Alphabet::new(5, true);
    let (short, long) = (written(five, &symbols[..2000]), written(five, &symbols));
    assert_eq!((short[0], long[0]), (1, 6));
    // The entropy is 0.173 bits, and Huffman code takes more than one.
    let ratio = check_beside_single(five, &symbols, &long);
    assert!((0.16..0.18).contains(&ratio), "{ratio}");
}

#[test]
fn maps_take_the_entropy() {
    let words = random(300_000);
    // One symbol is more than half of all, the next more than half of the others, and so on; or two
    // are frequent.
    let geometric =
        |word: u32| (0..60).take_while(|at| word.rotate_left(7 * at) % 100 < 30).count();
    let two = |word: u32| match word % 100 {
        0..45 => 9,
        45..90 => 8,
        _ => 10 + (word / 100) as usize % 30,
    };
    for symbol in [&geometric as &dyn Fn(u32) -> usize, &two] {
        let symbols: Vec<u16> = words.iter().map(|&word| symbol(word) as u16).collect();
        let (mut counts, sixty) = (vec![0; 60], Alphabet::new(60, true));
        huffman::count(&symbols, &mut counts);
        let message = written(sixty, &symbols);
        assert_eq!(message[0], 6);
        let entropy = entropy_bits(&counts) as f64 / 8.0;
        let above = message.len() as f64 / entropy;
        assert!((1.0..1.012).contains(&above), "{above}");
        let ratio = check_beside_single(sixty, &symbols, &message);
        assert!(ratio < 0.96, "{ratio}");
        for at in (0..message.len()).step_by(997).chain(0..60) {
            let mut damaged = message.clone();
            damaged[at] ^= 1 << (at % 8);
            let decoded = read(sixty, &damaged, symbols.len()).unwrap_or_default();
            assert!(decoded.iter().all(|&symbol| symbol < 60), "byte {at}");
        }
    }
}

/// Some of the first symbols, equally likely.
fn alike(len: usize, symbols: u32) -> Vec<u16> {
    random(len).into_iter().map(|word| (word % symbols) as u16).collect()
}

#[test]
fn symbols_that_are_alike_are_in_tans_one_by_one() {
    // For five symbols the entropy is 2.322 bits, and Huffman code takes 2.4; for seven, 2.807 and
    // 2.857 bits, 1.7 % more.
    let sixty = Alphabet::new(60, true);
    for (kinds, form, expected) in [(5, 3, 0.967..0.972), (7, 2, 1.0..1.002)] {
        let symbols = alike(40_000, kinds);
        let message = written(sixty, &symbols);
        assert_eq!(message[0], form);
        let ratio = check_beside_single(sixty, &symbols, &message);
        assert!(expected.contains(&ratio), "{kinds}: {ratio}");
    }
    // Also among other symbols: half are symbol 50, and the rest is uniform.
    let symbols: Vec<u16> =
        alike(40_000, 10).into_iter().map(|s| if s < 5 { 50 } else { s }).collect();
    let message = written(sixty, &symbols);
    assert_eq!(message[0], 6);
    let bits = 8.0 * message.len() as f64 / 40_000.0;
    assert!((2.16..2.18).contains(&bits), "the entropy is 1 and half of 2.322 bits: {bits}");
}

#[test]
fn a_list_that_is_not_divided_may_have_a_map() {
    let symbol = |word: u32| if word % 10 < 9 { 3 } else { word / 10 % 200 };
    let symbols: Vec<u16> =
        random(PART_SYMBOLS + 77).into_iter().map(|word| symbol(word) as u16).collect();
    let (alphabet, mut coder) = (Alphabet::new(200, true), SymbolCoder::default());
    let (mut message, mut back) = (Vec::new(), vec![9; symbols.len()]);
    let coding = alphabet.put_coded(&symbols, &mut coder, &mut message);
    assert_eq!(coding, Some(Coding::Significance));
    Coding::Significance.take(&mut &message[..], 200, &mut coder, &mut back).unwrap();
    assert!(back == symbols);
}

#[test]
fn a_map_that_is_not_shorter_is_taken_back() {
    // Two fifths are symbol 0, and seven others are equally frequent. Huffman code takes 1.3 % more
    // than the entropy. The map with its list takes hardly less, as the others are uniform in it,
    // too.
    let (sixty, len) = (Alphabet::new(60, true), 30_000);
    let symbol = |word: u32| if word % 5 < 2 { 0 } else { 1 + word / 5 % 7 };
    let symbols: Vec<u16> = random(len).into_iter().map(|word| symbol(word) as u16).collect();
    let (mut coder, mut counts) = (SymbolCoder::default(), vec![0; 60]);
    huffman::count(&symbols, &mut counts);
    let list = List { alphabet: sixty, symbols: &symbols, counts: &counts };
    assert!(Lengths::fit(list, &mut coder).entropy_saves(&counts));
    assert!(significance::is_fit(len, &counts));
    let message = written(sixty, &symbols);
    assert_eq!(message[0], 2);
    check_beside_single(sixty, &symbols, &message);
}

#[test]
fn few_symbols_are_coded_in_groups() {
    let words = random(250_000);
    let symbol = |&word: &u32| [0, 0, 0, 0, 0, 0, 0, 0, 1, 2][word as usize % 10];
    let symbols: Vec<u16> = words.iter().map(symbol).collect();
    let ternary = Alphabet::new(3, true);
    for (len, head) in [(5000, &[1][..]), (40_000, &[4, 2]), (250_000, &[4, 4])] {
        let message = written(ternary, &symbols[..len]);
        assert!(message.starts_with(head), "{len}: {:?}", &message[..2]);
        // The entropy is 0.922 bits, and Huffman code takes 1.2.
        let ratio = check_beside_single(ternary, &symbols[..len], &message);
        assert!(len < 40_000 || (0.76..0.775).contains(&ratio), "{len}: {ratio}");
        for at in (0..message.len()).step_by(211).chain(0..40) {
            let mut damaged = message.clone();
            damaged[at] ^= 1 << (at % 8);
            let decoded = read(ternary, &damaged, len).unwrap_or_default();
            assert!(decoded.iter().all(|&symbol| symbol < 3), "{len}, byte {at}");
        }
    }
}

#[test]
fn every_width_returns_within_its_bounds() {
    for symbols in [2, 3, 4, 5, 129, 255, 256, 257, 511, 65_535, 65_536] {
        for len in [0, 1, 7, 8, 9, BLOCK, 2 * BLOCK + 13, 40_001] {
            let all: Vec<u16> = (0..len).map(|i| (i * i * 7 % symbols) as u16).collect();
            for huffman in [false, true] {
                let alphabet = Alphabet::new(symbols, huffman);
                let message = written(alphabet, &all);
                assert!(message.len() <= alphabet.max_len(len));
                assert!(len <= alphabet.max_elements(message.len()));
                assert_eq!(read(alphabet, &message, len).as_ref(), Ok(&all));
            }
        }
    }
}

#[test]
fn long_lists_are_in_parts() {
    let symbols: Vec<u16> = (0..PART_SYMBOLS + 900).map(|i| [0, 0, 1, 4][i * i % 7 % 4]).collect();
    let five = Alphabet::new(5, true);
    assert_ne!(written(five, &symbols[..PART_SYMBOLS])[0], 5);
    let message = written(five, &symbols);
    let len = |at: usize| u32::from_le_bytes(*message[at..].first_chunk().unwrap()) as usize;
    let second = 5 + len(1);
    assert_eq!((message[0], second + 4 + len(second)), (5, message.len()));
    // Each part is a separate list.
    let (first, last) = symbols.split_at(PART_SYMBOLS);
    assert_eq!(message[5..second], written(five, first));
    assert_eq!(message[second + 4..], written(five, last));
    assert!(message.len() <= five.max_len(symbols.len()));
    assert_eq!(read(five, &message, symbols.len()).as_ref(), Ok(&symbols));
    // Parts and their symbols end together, and no part has parts.
    assert_eq!(
        read(five, &message[..message.len() - 1], symbols.len()),
        Err(DecodeError::Truncated)
    );
    let result = |at: usize, byte: u8| {
        let mut wrong = message.clone();
        wrong[at] = byte;
        read(five, &wrong, symbols.len())
    };
    assert!(result(1, message[1].wrapping_add(1)).is_err());
    assert!(result(1, message[1].wrapping_sub(1)).is_err());
    assert_eq!(result(5, 5), Err(DecodeError::Corrupt("unknown symbol code")));
    // Threads write and read the same bytes, and refuse the same.
    let workspace = &mut Workspace { helpers: Helpers::new(2), ..Workspace::default() };
    let mut together = vec![];
    workspace.symbols.clone_from(&symbols);
    five.write(workspace, &mut together);
    assert!(together == message);
    workspace.symbols.clear();
    five.read(&mut &message[..], symbols.len(), workspace).unwrap();
    assert!(workspace.symbols == symbols);
    for at in [1, 5, second, second + 4] {
        let mut wrong = message.clone();
        wrong[at] ^= 7;
        assert!(five.read(&mut &wrong[..], symbols.len(), workspace).is_err(), "{at}");
    }
}

#[test]
fn what_is_not_of_the_alphabet_is_refused() {
    let five = Alphabet::new(5, false);
    assert!(matches!(read(five, &[5], 1), Err(DecodeError::Corrupt(_))));
    assert!(matches!(read(five, &[0b1000], 1), Err(DecodeError::Corrupt(_))));
    assert_eq!(read(five, &[0, 0], 1), Err(DecodeError::Trailing { extra: 1 }));
    let huffman = Alphabet::new(5, true);
    assert!(matches!(read(huffman, &[4, 0], 1), Err(DecodeError::Corrupt(_))));
    assert_eq!(read(huffman, &[], 1), Err(DecodeError::Truncated));
    assert_eq!(read(huffman, &[0], 0), Err(DecodeError::Trailing { extra: 1 }));
}
