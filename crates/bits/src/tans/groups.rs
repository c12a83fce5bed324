//! Groups of symbols of a small alphabet as symbols of a larger one: a state then stands for
//! several symbols. This is block coding, with the extension of the alphabet (Cover, Thomas:
//! "Elements of Information Theory", chapter 5).
//!
//! Of n symbols in groups of g, group i of ⌈n/g⌉ has symbols i, i + ⌈n/g⌉, i + 2·⌈n/g⌉ and so on;
//! symbols behind the last are 0. With an alphabet of a symbols its value is the first, plus a
//! times the second, plus a² times the third, and so on.

use alloc::vec::Vec;

use crate::DecodeError;
use crate::kernels::{add_digits, take_digits};

/// The most values of a group. Rare values take a state each from the others: with more values,
/// code becomes longer.
pub const MOST_VALUES: usize = 256;
/// Groups joined or split at a time: they stay in the first-level cache.
const BLOCK: usize = 2048;

/// The number of values of a group of symbols.
///
/// # Errors
/// `Corrupt` for groups of fewer than two symbols, or of more than 256 values.
pub fn values(alphabet: usize, size: usize) -> Result<usize, DecodeError> {
    let values = u32::try_from(size).ok().and_then(|size| alphabet.checked_pow(size));
    values
        .filter(|&values| size >= 2 && alphabet >= 2 && values <= MOST_VALUES)
        .ok_or(DecodeError::Corrupt("groups of symbols are too small, or too large"))
}

/// The most symbols in a group for this alphabet; `None` if even two have too many values.
pub fn size(alphabet: usize) -> Option<usize> {
    (2..).take_while(|&size| values(alphabet, size).is_ok()).last()
}

/// Replaces `expected` by the expected count of each value if symbols were independent of their
/// neighbours, from the counts of symbols; at least one value has a count above 0.
///
/// # Panics
/// If groups of this size have too many [values], or no symbol occurs.
pub fn expected_counts(counts: &[u32], size: usize, expected: &mut Vec<u32>) {
    let values = values(counts.len(), size).expect("groups have few values");
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    assert!(total > 0.0, "no symbol occurs");
    let groups = total / size as f64;
    expected.clear();
    expected.extend((0..values).map(|value| {
        let (mut often, mut rest) = (groups, value);
        for _ in 0..size {
            often *= f64::from(counts[rest % counts.len()]) / total;
            rest /= counts.len();
        }
        (often + 0.5) as u32
    }));
    // With very few groups, all values are rare.
    let most = (0..counts.len()).max_by_key(|&at| counts[at]).unwrap_or(0);
    let all_alike = (0..size).fold(0, |value, _| value * counts.len() + most);
    expected[all_alike] = expected[all_alike].max(1);
}

/// Replaces `groups` by the values of the groups of symbols; symbols are below `alphabet`.
///
/// # Panics
/// If groups of this size have too many [values].
pub fn join(symbols: &[u16], alphabet: usize, size: usize, groups: &mut Vec<u16>) {
    values(alphabet, size).expect("groups have few values");
    let len = symbols.len().div_ceil(size);
    groups.clear();
    groups.extend_from_slice(&symbols[..len]);
    for (at, groups) in groups.chunks_mut(BLOCK).enumerate() {
        let mut factor = alphabet;
        for symbols in symbols[len..].chunks(len) {
            add_digits(groups, symbols.get(at * BLOCK..).unwrap_or(&[]), factor as u16);
            factor *= alphabet;
        }
    }
}

/// Fills `symbols` with the symbols whose groups have these values; `groups` are unspecified
/// afterwards.
///
/// # Errors
/// `Corrupt` for wrong [values], or if a symbol behind the last is not 0.
///
/// # Panics
/// If there are not as many groups as the symbols need.
pub fn split(
    groups: &mut [u16],
    alphabet: usize,
    size: usize,
    symbols: &mut [u16],
) -> Result<(), DecodeError> {
    values(alphabet, size)?;
    let (len, count) = (groups.len(), symbols.len());
    assert_eq!(len, count.div_ceil(size), "groups are as many as their symbols need");
    let (mut digits, mut behind) = ([0; BLOCK], 0);
    for (at, groups) in groups.chunks_mut(BLOCK).enumerate() {
        let digits = &mut digits[..groups.len()];
        for place in 0..size {
            take_digits(groups, alphabet as u16, digits);
            let start = (place * len + at * BLOCK).min(count);
            // Up to the next place, or the last symbol.
            let there = digits.len().min(count - start);
            symbols[start..start + there].copy_from_slice(&digits[..there]);
            behind = digits[there..].iter().fold(behind, |any, digit| any | digit);
        }
    }
    if behind == 0 {
        Ok(())
    } else {
        Err(DecodeError::Corrupt("the padding after the last symbol is not zero"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_by_hand() {
        // Groups 0 and 1 of 1, 2; 0, 2; 1: 1 + 3·0 + 9·1 and 2 + 3·2.
        let (symbols, mut groups) = ([1, 2, 0, 2, 1], Vec::new());
        join(&symbols, 3, 3, &mut groups);
        assert_eq!(groups, [10, 8]);
        let mut back = [9; 5];
        assert_eq!(split(&mut groups, 3, 3, &mut back), Ok(()));
        assert_eq!(back, symbols);
        // The second group has no third symbol.
        assert!(split(&mut [10, 8 + 9], 3, 3, &mut back).is_err());
    }

    #[test]
    fn expected_counts_by_hand() {
        let mut expected = Vec::new();
        // 100 pairs; symbol 1 is half of the symbols, 0 and 2 a quarter each. Value 4 is 1 and 1.
        expected_counts(&[50, 100, 50], 2, &mut expected);
        assert_eq!(expected, [6, 13, 6, 13, 25, 13, 6, 13, 6]);
        expected_counts(&[1, 1, 1], 4, &mut expected);
        assert_eq!(expected.iter().sum::<u32>(), 1);
    }

    #[test]
    fn sizes_have_few_values() {
        let sizes = [2, 3, 4, 5, 6, 7, 16, 17, 256].map(size);
        let expected = [Some(8), Some(5), Some(4), Some(3), Some(3), Some(2), Some(2), None, None];
        assert_eq!(sizes, expected);
        assert_eq!(values(3, 4), Ok(81));
        for (alphabet, size) in [(3, 1), (3, 6), (1, 2), (0, 2), (2, usize::MAX)] {
            assert!(values(alphabet, size).is_err(), "{alphabet}, {size}");
        }
    }

    #[test]
    fn any_number_of_symbols_returns() {
        for count in [0, 1, 2, 3, 5, 7, BLOCK, 3 * BLOCK + 1, 9 * BLOCK + 5] {
            for alphabet in [2, 3, 5, 16] {
                for size in 2..=size(alphabet).unwrap() {
                    let symbol = |at: usize| ((at * at + at / 7) % alphabet) as u16;
                    let symbols: Vec<u16> = (0..count).map(symbol).collect();
                    let (mut groups, mut back) = (Vec::new(), vec![9; count]);
                    join(&symbols, alphabet, size, &mut groups);
                    assert!(groups.iter().all(|&x| usize::from(x) < alphabet.pow(size as u32)));
                    split(&mut groups, alphabet, size, &mut back).unwrap();
                    assert_eq!(back, symbols, "{count} symbols of {alphabet} in groups of {size}");
                }
            }
        }
    }
}
