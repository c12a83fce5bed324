//! Counts of symbols.

use crate::kernels;

/// Alphabets up to this size are counted symbol by symbol.
const FEW: usize = 16;
/// Symbols of a block, which stays in the cache while each symbol of the alphabet is counted.
const BLOCK: usize = 4096;

/// Alphabets up to this size are counted in several tables.
const SMALL: usize = 1024;

/// The number of symbols to count before the tables are added up.
const STRETCH: usize = 1 << 20;

/// Bytes that differ by less than this are counted in pairs.
const NEAR: u8 = 64;

/// The number of such pairs.
const PAIRS: usize = NEAR as usize * NEAR as usize;

/// Tables of counts, one cache line apart: stores to the same places of pages wait for each other.
#[repr(align(64))]
struct Tables<const SIZE: usize, const TABLES: usize>([([u32; SIZE], [u32; 16]); TABLES]);

impl<const SIZE: usize, const TABLES: usize> Tables<SIZE, TABLES> {
    /// Counts neighbours in separate tables: a second increment of the same count waits until the
    /// first is stored.
    fn add<S: Copy + Into<usize>>(&mut self, symbols: &[S]) {
        let (groups, rest) = symbols.as_chunks::<TABLES>();
        for group in groups {
            for ((table, _), &symbol) in self.0.iter_mut().zip(group) {
                table[symbol.into()] += 1;
            }
        }
        for &symbol in rest {
            self.0[0].0[symbol.into()] += 1;
        }
    }

    fn sum(&self, symbol: usize) -> u32 {
        self.0.iter().map(|(table, _)| table[symbol]).sum()
    }
}

/// Adds the occurrences of each symbol to its count; counts saturate at `u32::MAX`.
///
/// # Panics
/// If a symbol has no count.
pub fn count(symbols: &[u16], counts: &mut [u32]) {
    match counts.len() {
        0..=FEW => count_few(symbols, counts),
        // Eight tables of 256 counts fit in the first-level cache.
        17..=256 => count_small::<_, 256, 8>(symbols, counts),
        257..=SMALL => count_small::<_, SMALL, 4>(symbols, counts),
        _ => count_one_by_one(symbols, counts),
    }
}

/// Adds the occurrences of each byte to its count; counts saturate at `u32::MAX`.
pub fn count_bytes(bytes: &[u8], counts: &mut [u32; 256]) {
    let (least, largest) = kernels::byte_range(bytes);
    if bytes.len() < 4 * PAIRS || largest - least >= NEAR {
        return count_small::<u8, 256, 8>(bytes, counts);
    }
    for stretch in bytes.chunks(STRETCH) {
        let (twos, last) = stretch.as_chunks();
        count_one_by_one(last, counts);
        let mut pairs = [0; 1024];
        let mut tables = Tables([([0; PAIRS], [0; 16]); 2]);
        for twos in twos.chunks(pairs.len()) {
            kernels::pair_near(twos, least, &mut pairs);
            tables.add(&pairs[..twos.len()]);
        }
        for pair in 0..PAIRS {
            let sum = tables.sum(pair);
            // Bytes above 255 do not occur.
            for byte in [pair % usize::from(NEAR), pair / usize::from(NEAR)] {
                if let Some(count) = counts.get_mut(usize::from(least) + byte) {
                    *count = count.saturating_add(sum);
                }
            }
        }
    }
}

fn count_one_by_one<S: Copy + Into<usize>>(symbols: &[S], counts: &mut [u32]) {
    for &symbol in symbols {
        let count = &mut counts[symbol.into()];
        *count = count.saturating_add(1);
    }
}

/// Counts each symbol by itself.
fn count_few(symbols: &[u16], counts: &mut [u32]) {
    for block in symbols.chunks(BLOCK) {
        let mut counted = 0;
        for (symbol, count) in counts.iter_mut().enumerate() {
            let occurrences = kernels::occurrences(block, symbol as u16);
            *count = count.saturating_add(occurrences);
            counted += occurrences as usize;
        }
        assert!(counted == block.len(), "a symbol is not of the {} that are counted", counts.len());
    }
}

/// Counts in separate tables.
fn count_small<S: Copy + Into<usize>, const SIZE: usize, const TABLES: usize>(
    symbols: &[S],
    counts: &mut [u32],
) {
    // With fewer symbols the tables cost more than they save.
    if symbols.len() < 4 * SIZE {
        return count_one_by_one(symbols, counts);
    }
    for stretch in symbols.chunks(STRETCH) {
        let mut tables = Tables::<SIZE, TABLES>([([0; SIZE], [0; 16]); TABLES]);
        tables.add(stretch);
        let sums = (0..SIZE).map(|symbol| (symbol, tables.sum(symbol)));
        for (symbol, sum) in sums.filter(|&(_, sum)| sum > 0) {
            counts[symbol] = counts[symbol].saturating_add(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn counts_are_those_of_a_plain_loop() {
        for alphabet in [1, 2, 16, 17, 255, 256, 257, 1024, 1025, 65_536] {
            for len in [0, 1, 5, 1023, 1024, 1027, 4096, 10_001, STRETCH + 3] {
                let at = |i: usize| (i * i % alphabet.min(1 + i % 777)) as u16;
                let symbols: Vec<u16> = (0..len).map(at).collect();
                let (mut counts, mut expected) = (vec![7; alphabet], vec![7; alphabet]);
                count(&symbols, &mut counts);
                symbols.iter().for_each(|&symbol| expected[usize::from(symbol)] += 1);
                assert_eq!(counts, expected, "{len} of {alphabet}");
            }
        }
    }

    #[test]
    fn counts_of_bytes_are_those_of_a_plain_loop() {
        for (least, alphabet) in [(0, 1), (7, 2), (192, 64), (191, 65), (30, 64), (0, 256)] {
            for len in [0, 1, 5, 4096, 16_383, 16_384, 16_387, 100_001, 2 * STRETCH + 3] {
                let at = |i: usize| (least + (i * i + i / 7) % alphabet.min(1 + i % 777)) as u8;
                let bytes: Vec<u8> = (0..len).map(at).collect();
                let (mut counts, mut expected) = ([7; 256], [7; 256]);
                count_bytes(&bytes, &mut counts);
                bytes.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
                assert_eq!(counts, expected, "{len} of {alphabet} from {least}");
            }
        }
    }

    #[test]
    fn counts_do_not_overflow() {
        let mut counts = [u32::MAX - 1, 0];
        count(&vec![0; 5000], &mut counts);
        assert_eq!(counts, [u32::MAX, 0]);
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn what_is_not_of_the_alphabet_is_not_counted() {
        count(&vec![200; 5000], &mut [0; 200]);
    }

    #[test]
    #[should_panic(expected = "not of the 3 that are counted")]
    fn what_is_not_of_a_few_is_not_counted() {
        count(&[0, 3, 1], &mut [0; 3]);
    }
}
