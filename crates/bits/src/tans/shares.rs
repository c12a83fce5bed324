//! The number of states of each symbol.

use alloc::vec::Vec;

use crate::elias::Elias;
use crate::kernels::Entry;
use crate::{BitReader, BitWriter, DecodeError, try_resize};

/// The most symbols of an alphabet.
pub const MOST_SYMBOLS: usize = 1 << 10;
/// Bits of a state.
pub(super) const STATE_BITS: u32 = Entry::STATE_BITS;
/// The number of states.
pub(super) const STATES: usize = 1 << STATE_BITS;
const CODE: Elias = Elias::Delta;
/// Binary places of estimated lengths.
const PLACES: u32 = 12;

/// Replaces `shares` by shares in proportion to the counts, at least 1 for each count above 0.
pub(super) fn fit(counts: &[u32], shares: &mut Vec<u16>) {
    assert!(counts.len() <= MOST_SYMBOLS, "there are more than {MOST_SYMBOLS} symbols");
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    assert!(total > 0, "a code needs symbols");
    let share = |&count: &u32| {
        let part = (u64::from(count) * STATES as u64 / total) as u16;
        part.max(u16::from(count > 0))
    };
    shares.clear();
    shares.extend(counts.iter().map(share));
    let mut sum: usize = shares.iter().map(|&share| usize::from(share)).sum();
    while sum < STATES {
        // The symbol with the most occurrences per state, counting half of the additional state.
        let at = first_largest(counts, shares, |count, share| Some((count, 2 * share + 1)));
        shares[at] += 1;
        sum += 1;
    }
    while sum > STATES {
        // The symbol with the fewest, among symbols with several states: the largest inverse.
        let several = |count, share| (share > 1).then_some((2 * share - 1, count));
        let at = first_largest(counts, shares, several);
        shares[at] -= 1;
        sum -= 1;
    }
}

/// The first symbol with the largest quotient.
fn first_largest(
    counts: &[u32],
    shares: &[u16],
    quotient: impl Fn(u64, u64) -> Option<(u64, u64)>,
) -> usize {
    let mut best: Option<(usize, (u64, u64))> = None;
    for (at, (&count, &share)) in counts.iter().zip(shares).enumerate() {
        if share == 0 {
            continue;
        }
        let Some((over, under)) = quotient(u64::from(count), u64::from(share)) else { continue };
        if best.is_none_or(|(_, (most, by))| over * by > most * under) {
            best = Some((at, (over, under)));
        }
    }
    best.expect("some symbol occurs").0
}

/// The length of symbols with these counts, in whole bits: 12 − log2 share for each.
pub(super) fn cost_bits(counts: &[u32], shares: &[u16]) -> u64 {
    let cost = |(&count, &share): (&u32, &u16)| {
        let places = (STATE_BITS << PLACES) - log2(u64::from(share.max(1)));
        u64::from(count) * u64::from(places)
    };
    counts.iter().zip(shares).map(cost).sum::<u64>() >> PLACES
}

/// The entropy of order 0 of symbols with these counts, in whole bits, the same on every machine.
pub fn entropy_bits(counts: &[u32]) -> u64 {
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    let used = counts.iter().filter(|&&count| count > 0);
    let bits = |&count: &u32| u128::from(count) * u128::from(log2(total) - log2(u64::from(count)));
    (used.map(bits).sum::<u128>() >> PLACES) as u64
}

/// The logarithm of a number, in units of 2^-[`PLACES`], rounded down; the same on every machine.
fn log2(value: u64) -> u32 {
    let whole = value.ilog2();
    // The number between 1 and 2, with 31 binary places.
    let (mut rest, mut log) = (value << (63 - whole) >> 32, whole);
    for _ in 0..PLACES {
        rest = (rest * rest) >> 31;
        log <<= 1;
        if rest >> 32 > 0 {
            rest >>= 1;
            log |= 1;
        }
    }
    log
}

/// The distance of each symbol that has states from the previous one, and its share.
fn pairs(shares: &[u16]) -> impl Iterator<Item = [u64; 2]> + '_ {
    let mut after = 0;
    let used = shares.iter().enumerate().filter(|(_, share)| **share > 0);
    used.map(move |(symbol, &share)| {
        let distance = symbol + 1 - after;
        after = symbol + 1;
        [distance as u64, u64::from(share)]
    })
}

pub(super) fn len_bits(shares: &[u16]) -> u64 {
    pairs(shares).flatten().map(|number| u64::from(CODE.len(number))).sum()
}

pub(super) fn write(shares: &[u16], out: &mut Vec<u8>) {
    let mut writer = BitWriter::new(out);
    pairs(shares).flatten().for_each(|number| CODE.write(number, &mut writer));
    writer.finish();
}

/// Reads the shares of an alphabet of `symbols`, and returns the number of bytes read.
pub(super) fn read(
    bytes: &[u8],
    symbols: usize,
    shares: &mut Vec<u16>,
) -> Result<usize, DecodeError> {
    if symbols > MOST_SYMBOLS {
        return Err(DecodeError::Corrupt("there are too many symbols for a tANS code"));
    }
    shares.clear();
    try_resize(shares, symbols, 0)?;
    let mut reader = BitReader::new(bytes);
    let (mut after, mut left) = (0, STATES as u64);
    while left > 0 {
        let distance = CODE.read(&mut reader)?;
        if distance > (symbols - after) as u64 {
            return Err(DecodeError::Corrupt("a tANS share lies past the alphabet"));
        }
        let share = CODE.read(&mut reader)?;
        if share > left {
            return Err(DecodeError::Corrupt("tANS shares exceed the states"));
        }
        after += distance as usize;
        shares[after - 1] = share as u16;
        left -= share;
    }
    reader.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    fn fitted(counts: &[u32]) -> Vec<u16> {
        let mut shares = Vec::new();
        fit(counts, &mut shares);
        shares
    }

    #[test]
    fn shares_by_hand() {
        assert_eq!(fitted(&[1, 0, 3]), [1024, 0, 3072]);
        assert_eq!(fitted(&[5]), [4096]);
        // Thirds are 1365, and the first symbol gets the one that remains.
        assert_eq!(fitted(&[7, 7, 7]), [1366, 1365, 1365]);
        // Rare symbols have one state each, taken from the frequent one.
        assert_eq!(fitted(&[1, 1 << 30, 1]), [1, 4094, 1]);
        assert_eq!(fitted(&vec![1; 1024]), vec![4; 1024]);
    }

    #[test]
    fn logarithms_are_rounded_down() {
        for value in 1..=4096u32 {
            let exact = f64::from(value).log2() * f64::from(1 << PLACES);
            let error = exact - f64::from(log2(u64::from(value)));
            assert!((-1e-3..1.001).contains(&error), "{value}: {error}");
        }
        assert_eq!(cost_bits(&[100, 8], &[1024, 512]), 100 * 2 + 8 * 3);
        assert_eq!(entropy_bits(&[100, 0, 50, 50]), 300);
        assert_eq!(entropy_bits(&[u32::MAX; 2]), u64::from(u32::MAX) * 2);
        assert_eq!((entropy_bits(&[]), entropy_bits(&[0, 7])), (0, 0));
    }

    #[test]
    fn bits_by_hand() {
        // Distance 2, δ 0100; share 4096, δ of 13 is 000 1101, in γ 0001101, then twelve zeros.
        let shares = [0, 4096];
        let mut bytes = Vec::new();
        write(&shares, &mut bytes);
        assert_eq!(bytes, [0b1000_0010, 0b101, 0]);
        assert_eq!(len_bits(&shares), 4 + 19);
        let mut back = Vec::new();
        assert_eq!(read(&bytes, 2, &mut back), Ok(3));
        assert_eq!(back, shares);
        let past = DecodeError::Corrupt("a tANS share lies past the alphabet");
        assert_eq!(read(&bytes, 1, &mut back), Err(past));
        for end in 0..3 {
            assert_eq!(read(&bytes[..end], 2, &mut back), Err(DecodeError::Truncated));
        }
        let mut bytes = Vec::new();
        write(&[4095, 2], &mut bytes);
        let exceed = DecodeError::Corrupt("tANS shares exceed the states");
        assert_eq!(read(&bytes, 2, &mut back), Err(exceed));
    }
}
