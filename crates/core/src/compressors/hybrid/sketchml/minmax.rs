//! MinMaxSketch: numbers kept by key in fewer bins than there are keys, never larger than they were.
//!
//! A sketch has rows of bins, and a hash function for each row. A number goes into the bin of its key in
//! every row, where the least of those that meet stays; asked for a key, the sketch answers with the
//! largest of its bins. A bin that no key falls in holds the largest number there may be.
//!
//! Keys come in pieces of up to 4096, each with bins of its own, so that these stay in the first-level
//! cache.

use gradwire_bits::{BitReader, BitWriter, DecodeError, kernels};

/// The most rows.
pub(super) const MOST_ROWS: usize = 4;
/// The most keys of a piece, and the most bins of its rows.
const PIECE: usize = 4096;
/// Marks bins that a key falls in, while a sketch is read.
const MET: u16 = 1 << 15;

/// The dimensions of a sketch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct MinMax {
    /// Rows, from 1 to [`MOST_ROWS`].
    pub(super) rows: usize,
    /// Keys for each bin of a row, at least 1.
    pub(super) load: usize,
}

/// The bins of the keys of a piece, row by row.
struct Hashes([[u16; PIECE]; MOST_ROWS]);

impl MinMax {
    /// Bins in a row of a piece.
    fn columns(self, keys: usize) -> usize {
        keys.div_ceil(self.load)
    }

    /// Appends the sketch of the `numbers` of so many `keys`, none above `top`, and leaves what it
    /// answers in their place.
    pub(super) fn write(self, keys: &[u32], numbers: &mut [u16], top: u16, message: &mut Vec<u8>) {
        let mut hashes = Hashes([[0; PIECE]; MOST_ROWS]);
        let mut bins = [0; MOST_ROWS * PIECE];
        let mut writer = BitWriter::new(message);
        for (keys, numbers) in keys.chunks(PIECE).zip(numbers.chunks_mut(PIECE)) {
            let columns = self.columns(keys.len());
            let bins = &mut bins[..self.rows * columns];
            bins.fill(top);
            self.hash(keys, columns, &mut hashes);
            for (row, bins) in bins.chunks_mut(columns).enumerate() {
                for (&number, &at) in numbers.iter().zip(&hashes.0[row]) {
                    let bin = &mut bins[usize::from(at)];
                    *bin = number.min(*bin);
                }
            }
            self.ask(bins, columns, &hashes, numbers);
            bins.iter().for_each(|&bin| writer.put(u64::from(bin), width(top)));
        }
        writer.finish();
    }

    /// Appends what the sketch at the front of `message` answers for each key.
    pub(super) fn read(
        self,
        message: &mut &[u8],
        keys: &[u32],
        top: u16,
        numbers: &mut Vec<u16>,
    ) -> Result<(), DecodeError> {
        let mut hashes = Hashes([[0; PIECE]; MOST_ROWS]);
        let mut bins = [0; MOST_ROWS * PIECE];
        let mut reader = BitReader::new(message);
        for keys in keys.chunks(PIECE) {
            let columns = self.columns(keys.len());
            let bins = &mut bins[..self.rows * columns];
            for bin in bins.iter_mut() {
                *bin = (reader.peek() & ((1 << width(top)) - 1)) as u16;
                reader.skip(width(top));
            }
            reader.check()?;
            if bins.iter().any(|&bin| bin > top) {
                return Err(DecodeError::Corrupt("a bin is above the last bucket of its group"));
            }
            self.hash(keys, columns, &mut hashes);
            let start = numbers.len();
            numbers.resize(start + keys.len(), 0);
            self.ask(bins, columns, &hashes, &mut numbers[start..]);
            for (row, bins) in bins.chunks_mut(columns).enumerate() {
                hashes.0[row][..keys.len()].iter().for_each(|&at| bins[usize::from(at)] |= MET);
            }
            if bins.iter().any(|&bin| bin & MET == 0 && bin != top) {
                return Err(DecodeError::Corrupt("a bin without keys is not the last bucket"));
            }
        }
        *message = &message[reader.finish()?..];
        Ok(())
    }

    /// The most bytes of the sketches of up to `keys` keys in so many lists.
    pub(super) fn max_len(self, keys: usize, lists: usize, top: u16) -> usize {
        let pieces = keys.div_ceil(PIECE) + lists;
        let bins = self.rows.saturating_mul(self.columns(keys) + pieces);
        bins.saturating_mul(width(top) as usize).div_ceil(8) + lists
    }

    fn hash(self, keys: &[u32], columns: usize, hashes: &mut Hashes) {
        for (row, hashes) in hashes.0[..self.rows].iter_mut().enumerate() {
            let seed = (row as u32).wrapping_mul(0x9e37_79b9);
            kernels::hashed(keys, seed, columns as u16, hashes);
        }
    }

    fn ask(self, bins: &[u16], columns: usize, hashes: &Hashes, numbers: &mut [u16]) {
        numbers.fill(0);
        for (row, bins) in bins.chunks(columns).enumerate() {
            for (number, &at) in numbers.iter_mut().zip(&hashes.0[row]) {
                *number = bins[usize::from(at)].max(*number);
            }
        }
    }
}

/// The bits of a number up to `top`.
fn width(top: u16) -> u32 {
    u16::BITS - top.leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u32) -> Vec<u32> {
        (0..count).map(|at| 7 * at + at % 5).collect()
    }

    #[test]
    fn a_bin_for_all_keys_holds_the_least() {
        // Two rows of one bin: 3 of 3 bits each.
        let sketch = MinMax { rows: 2, load: 5 };
        let (mut message, mut numbers) = (vec![9], [5, 3, 6, 7]);
        sketch.write(&[1, 8, 90, 91], &mut numbers, 7, &mut message);
        assert_eq!((message, numbers), (vec![9, 0b011_011], [3; 4]));
    }

    #[test]
    fn two_keys_in_two_bins_worked_by_hand() {
        // Key 0 hashes to 0 in every row with seed 0, key 1 to 23827 of 65536: bin 0 of 2 as well. The
        // second bin is met by none, and holds the largest number.
        let sketch = MinMax { rows: 1, load: 1 };
        let (mut message, mut numbers) = (vec![], [2, 1]);
        sketch.write(&[0, 1], &mut numbers, 3, &mut message);
        assert_eq!((message, numbers), (vec![0b11_01], [1, 1]));
    }

    /// By maps from row and bin, without pieces' bounds or packing.
    fn naive(sketch: MinMax, keys: &[u32], numbers: &[u16]) -> Vec<u16> {
        let mut answers = Vec::new();
        for (keys, numbers) in keys.chunks(PIECE).zip(numbers.chunks(PIECE)) {
            let columns = keys.len().div_ceil(sketch.load) as u16;
            let bin = |row: usize, key: u32| {
                let mut bin = [0];
                kernels::hashed(&[key], (row as u32).wrapping_mul(0x9e37_79b9), columns, &mut bin);
                (row, bin[0])
            };
            let mut least = std::collections::HashMap::new();
            for (&key, &number) in keys.iter().zip(numbers) {
                for row in 0..sketch.rows {
                    let entry = least.entry(bin(row, key)).or_insert(u16::MAX);
                    *entry = number.min(*entry);
                }
            }
            let answer = |&key: &u32| (0..sketch.rows).map(|row| least[&bin(row, key)]).max();
            answers.extend(keys.iter().map(|key| answer(key).unwrap()));
        }
        answers
    }

    #[test]
    fn answers_are_those_of_the_definition_and_never_larger() {
        for (rows, load) in [(1, 1), (2, 5), (4, 2), (3, 64)] {
            let sketch = MinMax { rows, load };
            for count in [0, 1, 5, 4096, 10_000] {
                let keys = keys(count);
                let given: Vec<u16> = keys.iter().map(|key| (key * 37 % 32) as u16).collect();
                let (mut message, mut numbers) = (vec![], given.clone());
                sketch.write(&keys, &mut numbers, 31, &mut message);
                assert_eq!(numbers, naive(sketch, &keys, &given));
                assert!(numbers.iter().zip(&given).all(|(answer, given)| answer <= given));
                assert!(message.len() <= sketch.max_len(keys.len(), 1, 31));
                let (mut rest, mut read) = (&[&message[..], &[77]].concat()[..], vec![]);
                sketch.read(&mut rest, &keys, 31, &mut read).unwrap();
                assert_eq!((rest, read), (&[77][..], numbers));
            }
        }
    }

    #[test]
    fn one_bucket_takes_no_bits() {
        let (mut message, mut numbers) = (vec![], [0, 0]);
        MinMax { rows: 2, load: 5 }.write(&[3, 4], &mut numbers, 0, &mut message);
        assert!(message.is_empty());
    }

    #[test]
    fn malformed_sketches_are_refused() {
        let sketch = MinMax { rows: 1, load: 1 };
        let read = |bytes: &[u8], top| {
            sketch.read(&mut &bytes[..], &[0, 1], top, &mut Vec::new()).unwrap_err()
        };
        assert_eq!(read(&[], 3), DecodeError::Truncated);
        let above = DecodeError::Corrupt("a bin is above the last bucket of its group");
        assert_eq!(read(&[0b11_01], 2), above);
        let unmet = DecodeError::Corrupt("a bin without keys is not the last bucket");
        assert_eq!(read(&[0b10_01], 3), unmet);
        let padding = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(read(&[0b1_11_01], 3), padding);
    }
}
