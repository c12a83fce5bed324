//! MinMaxSketch: stores a number per key in fewer bins than keys, and never overestimates one.
//!
//! A sketch has rows of bins, and a hash function per row, which maps a key to a bin. A bin stores
//! the smallest of the numbers of its keys. A query returns the largest of the key's bins. A bin
//! without keys stores the largest possible number.
//!
//! Keys are divided into pieces of up to 4096. Each piece has its own bins, which fit in the
//! first-level cache.

use gradwire_bits::{DecodeError, kernels, try_resize};

use crate::Helpers;
use crate::wire::symbols::Alphabet;
use crate::workspace::SymbolCoder;

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
    /// Keys per bin of a row, at least 1.
    pub(super) load: usize,
    /// Whether bins are sent in Huffman code.
    pub(super) huffman: bool,
}

/// The bins of the keys of a piece, row by row.
struct Hashes([[u16; PIECE]; MOST_ROWS]);

impl MinMax {
    /// Bins in a row of a piece.
    fn columns(self, keys: usize) -> usize {
        keys.div_ceil(self.load)
    }

    /// Bins in all rows of all pieces.
    pub(super) fn bins(self, keys: usize) -> usize {
        let whole = keys / PIECE * self.columns(PIECE);
        self.rows * (whole + self.columns(keys % PIECE))
    }

    /// The alphabet of bins up to `top`; `None` if all bins are 0 and thus not sent.
    fn alphabet(self, top: u8) -> Option<Alphabet> {
        (top > 0).then(|| Alphabet::new(usize::from(top) + 1, self.huffman))
    }

    /// Appends the sketch of `numbers`, one per key and at most `top`, and replaces them by the
    /// results of queries.
    pub(super) fn write(
        self,
        keys: &[u32],
        numbers: &mut [u8],
        top: u8,
        (bins, coder): (&mut Vec<u16>, &mut SymbolCoder),
        message: &mut Vec<u8>,
    ) {
        let all = bins;
        let mut hashes = Hashes([[0; PIECE]; MOST_ROWS]);
        all.clear();
        for (keys, numbers) in keys.chunks(PIECE).zip(numbers.chunks_mut(PIECE)) {
            let columns = self.columns(keys.len());
            let start = all.len();
            all.resize(start + self.rows * columns, u16::from(top));
            let bins = &mut all[start..];
            self.hash(keys, columns, &mut hashes);
            for (row, bins) in bins.chunks_mut(columns).enumerate() {
                for (&number, &at) in numbers.iter().zip(&hashes.0[row]) {
                    let bin = &mut bins[usize::from(at)];
                    *bin = u16::from(number).min(*bin);
                }
            }
            self.ask(bins, columns, &hashes, numbers);
        }
        if let Some(alphabet) = self.alphabet(top) {
            alphabet.put(all, coder, &mut Helpers::default(), message);
        }
    }

    /// Reads the sketch at the front of `message`, and queries it for each key.
    pub(super) fn read(
        self,
        message: &mut &[u8],
        keys: &[u32],
        top: u8,
        (bins, coder): (&mut Vec<u16>, &mut SymbolCoder),
        numbers: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let all = bins;
        let mut hashes = Hashes([[0; PIECE]; MOST_ROWS]);
        all.clear();
        try_resize(all, self.bins(keys.len()), 0)?;
        if let Some(alphabet) = self.alphabet(top) {
            alphabet.take(message, all.len(), all, coder, &mut Helpers::default())?;
        }
        numbers.clear();
        try_resize(numbers, keys.len(), 0)?;
        let mut rest = &mut all[..];
        for (keys, numbers) in keys.chunks(PIECE).zip(numbers.chunks_mut(PIECE)) {
            let columns = self.columns(keys.len());
            let (bins, next) = rest.split_at_mut(self.rows * columns);
            rest = next;
            self.hash(keys, columns, &mut hashes);
            self.ask(bins, columns, &hashes, numbers);
            for (row, bins) in bins.chunks_mut(columns).enumerate() {
                hashes.0[row][..keys.len()].iter().for_each(|&at| bins[usize::from(at)] |= MET);
            }
            if bins.iter().any(|&bin| bin & MET == 0 && bin != u16::from(top)) {
                return Err(DecodeError::Corrupt("an empty bin does not hold the last bucket"));
            }
        }
        Ok(())
    }

    /// The most bytes of the sketches of up to `keys` keys in `lists` lists.
    pub(super) fn max_len(self, keys: usize, lists: usize, top: u8) -> usize {
        let pieces = keys.div_ceil(PIECE) + lists;
        let bins = self.rows.saturating_mul(self.columns(keys) + pieces);
        // Each list has padding, and a byte before its code.
        let each = 1 + usize::from(self.huffman);
        self.alphabet(top).map_or(0, |alphabet| alphabet.max_len(bins) + each * lists)
    }

    fn hash(self, keys: &[u32], columns: usize, hashes: &mut Hashes) {
        for (row, hashes) in hashes.0[..self.rows].iter_mut().enumerate() {
            let seed = (row as u32).wrapping_mul(0x9e37_79b9);
            kernels::hashed(keys, seed, columns as u16, hashes);
        }
    }

    fn ask(self, bins: &[u16], columns: usize, hashes: &Hashes, numbers: &mut [u8]) {
        numbers.fill(0);
        for (row, bins) in bins.chunks(columns).enumerate() {
            for (number, &at) in numbers.iter_mut().zip(&hashes.0[row]) {
                *number = (bins[usize::from(at)] as u8).max(*number);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(count: u32) -> Vec<u32> {
        (0..count).map(|at| 7 * at + at % 5).collect()
    }

    fn sketch(rows: usize, load: usize) -> MinMax {
        MinMax { rows, load, huffman: false }
    }

    fn write(sketch: MinMax, keys: &[u32], numbers: &mut [u8], top: u8) -> Vec<u8> {
        let (mut bins, mut coder, mut message) = Default::default();
        sketch.write(keys, numbers, top, (&mut bins, &mut coder), &mut message);
        message
    }

    fn read(
        sketch: MinMax,
        message: &mut &[u8],
        keys: &[u32],
        top: u8,
    ) -> Result<Vec<u8>, DecodeError> {
        let (mut bins, mut coder, mut numbers) = Default::default();
        sketch.read(message, keys, top, (&mut bins, &mut coder), &mut numbers).map(|()| numbers)
    }

    #[test]
    fn a_bin_for_all_keys_holds_the_least() {
        // Two rows of one bin: 3 of 3 bits each.
        let mut numbers = [5, 3, 6, 7];
        let message = write(sketch(2, 5), &[1, 8, 90, 91], &mut numbers, 7);
        assert_eq!((message, numbers), (vec![0b011_011], [3; 4]));
    }

    #[test]
    fn two_keys_in_two_bins_worked_by_hand() {
        // Key 0 hashes to 0 in every row with seed 0, key 1 to 23827 of 65536: bin 0 of 2 as well.
        // The second bin has no keys, and stores the largest number.
        let mut numbers = [2, 1];
        let message = write(sketch(1, 1), &[0, 1], &mut numbers, 3);
        assert_eq!((message, numbers), (vec![0b11_01], [1, 1]));
    }

    /// With maps from row and bin, without packing or bounds of pieces.
    fn naive(sketch: MinMax, keys: &[u32], numbers: &[u8]) -> Vec<u8> {
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
                    let entry = least.entry(bin(row, key)).or_insert(u8::MAX);
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
        let shapes = [(1, 1), (2, 5), (4, 2), (3, 64)];
        for ((rows, load), huffman) in shapes.into_iter().flat_map(|s| [(s, false), (s, true)]) {
            let sketch = MinMax { rows, load, huffman };
            for count in [0, 1, 5, 4096, 10_000] {
                let keys = keys(count);
                let given: Vec<u8> = keys.iter().map(|key| (key * 37 % 32) as u8).collect();
                let mut numbers = given.clone();
                let message = write(sketch, &keys, &mut numbers, 31);
                assert_eq!(numbers, naive(sketch, &keys, &given));
                assert!(numbers.iter().zip(&given).all(|(answer, given)| answer <= given));
                assert!(message.len() <= sketch.max_len(keys.len(), 1, 31));
                let mut rest = &[&message[..], &[77]].concat()[..];
                let answers = read(sketch, &mut rest, &keys, 31).unwrap();
                assert_eq!((rest, answers), (&[77][..], numbers));
            }
        }
    }

    #[test]
    fn one_bucket_takes_no_bits() {
        for huffman in [false, true] {
            let sketch = MinMax { rows: 2, load: 5, huffman };
            assert!(write(sketch, &[3, 4], &mut [0, 0], 0).is_empty());
            assert_eq!(read(sketch, &mut &[][..], &[3, 4], 0), Ok(vec![0, 0]));
        }
    }

    #[test]
    fn malformed_sketches_are_refused() {
        let read =
            |bytes: &[u8], top| read(sketch(1, 1), &mut &bytes[..], &[0, 1], top).unwrap_err();
        assert_eq!(read(&[], 3), DecodeError::Truncated);
        let above = DecodeError::Corrupt("a symbol is not in the alphabet");
        assert_eq!(read(&[0b11_01], 2), above);
        let unmet = DecodeError::Corrupt("an empty bin does not hold the last bucket");
        assert_eq!(read(&[0b10_01], 3), unmet);
        let padding = DecodeError::Corrupt("padding bits are not zero");
        assert_eq!(read(&[0b1_11_01], 3), padding);
    }
}
