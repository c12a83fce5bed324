//! The hash of a tensor: a sum over its words, so the changed words alone tell how it changes.
//!
//! A tensor's bytes are words of 8 bytes, the last one padded with zeros. Each word contributes a
//! term of its tensor's seed, its index within the whole tensor, and its bits; the hash is the sum
//! of the terms, in two lanes modulo 2^64. One more term for each tensor stands for its
//! existence, so an empty tensor counts. Hashes of shards add up to the hash of the tensor, and
//! hashes of tensors to the hash of the state.

use gradwire_bits::{kernels, varint};

use crate::{StateHash, Tensor};

/// The index of the term that stands for a tensor's existence. It is above the index of any word.
const EXISTENCE: u64 = u64::MAX;

/// Hashes the bytes of one tensor.
#[derive(Debug, Clone, Copy)]
pub struct TensorHasher {
    seed: u64,
    width: usize,
    /// The bytes of the whole tensor before those that are here.
    start: u64,
    owns_existence: bool,
}

impl TensorHasher {
    /// The hasher for a tensor, or for a shard.
    pub fn new(tensor: &Tensor) -> Self {
        let mut text = Vec::with_capacity(tensor.name().len() + 16);
        varint::write(tensor.name().len() as u64, &mut text);
        text.extend_from_slice(tensor.name().as_bytes());
        text.push(tensor.element().code());
        tensor.shape().iter().for_each(|&dimension| varint::write(dimension, &mut text));
        let width = tensor.element().width();
        Self {
            seed: kernels::state_hash(&text, 0, text.len() as u64)[0],
            width,
            start: tensor.first_element() * width as u64,
            owns_existence: tensor.rows().start == 0,
        }
    }

    /// The hasher for the elements from `first` on, which are then counted from there. `first`
    /// elements must be a multiple of 8 bytes.
    pub fn from(&self, first: usize) -> Self {
        Self { start: self.start + (first * self.width) as u64, owns_existence: false, ..*self }
    }

    /// The term that stands for the tensor's existence; the shard with the first row owns it, or
    /// the one shard of a tensor without rows.
    pub fn existence(&self) -> StateHash {
        if !self.owns_existence {
            return StateHash::default();
        }
        StateHash(kernels::state_term(self.seed, EXISTENCE, 0))
    }

    /// The terms of the bytes from element `first` on. `first` elements must be a multiple of
    /// 8 bytes, and `bytes` too unless they are the last of the tensor.
    pub fn content(&self, first: usize, bytes: &[u8]) -> StateHash {
        StateHash(kernels::state_hash(bytes, self.word(first, 0), self.seed))
    }

    /// What the hash gains if the elements of `base` at `positions` become `values`. `first` and
    /// `base` are as for [`TensorHasher::content`]; the positions increase and count from the start
    /// of `base`. Costs two terms for each changed word.
    pub fn change(&self, first: usize, base: &[u8], positions: &[u32], values: &[u8]) -> StateHash {
        if positions.len() > base.len() / MANY {
            return self.change_of_all(first, base, positions, values);
        }
        match self.width {
            1 => self.change_of::<1>(first, base, positions, values),
            2 => self.change_of::<2>(first, base, positions, values),
            4 => self.change_of::<4>(first, base, positions, values),
            _ => self.change_of::<8>(first, base, positions, values),
        }
    }

    /// As [`TensorHasher::change`], with the terms of all words.
    fn change_of_all(
        &self,
        first: usize,
        base: &[u8],
        mut positions: &[u32],
        mut values: &[u8],
    ) -> StateHash {
        let (mut new, mut change) = ([0; BLOCK], StateHash::default());
        let elements = BLOCK / self.width;
        for (at, base) in base.chunks(BLOCK).enumerate() {
            let start = at * elements;
            let count =
                positions.partition_point(|&position| (position as usize) < start + elements);
            let (some, later) = positions.split_at(count);
            let (content, rest) = values.split_at(count * self.width);
            let new = &mut new[..base.len()];
            new.copy_from_slice(base);
            for (&position, value) in some.iter().zip(content.chunks_exact(self.width)) {
                let place = (position as usize - start) * self.width;
                new[place..place + self.width].copy_from_slice(value);
            }
            change += self.content(first + start, new) - self.content(first + start, base);
            (positions, values) = (later, rest);
        }
        change
    }

    fn change_of<const WIDTH: usize>(
        &self,
        first: usize,
        base: &[u8],
        positions: &[u32],
        values: &[u8],
    ) -> StateHash {
        let mut words = Words::new(self.seed, self.word(first, 0));
        let mut changed: Option<Changed> = None;
        for (at, (&position, value)) in positions.iter().zip(values.as_chunks().0).enumerate() {
            ask(positions, at, WIDTH, base);
            let (word, place) = word_of(position, WIDTH);
            if changed.is_none_or(|changed| changed.word != word) {
                changed.into_iter().for_each(|changed| words.push(changed));
                let old = word_at(base, word);
                changed = Some(Changed { word, old, new: old });
            }
            if let Some(Changed { new, .. }) = &mut changed {
                let mut bytes = new.to_le_bytes();
                bytes.as_chunks_mut::<WIDTH>().0[place] = *value;
                *new = u64::from_le_bytes(bytes);
            }
        }
        changed.into_iter().for_each(|changed| words.push(changed));
        words.finish()
    }

    /// What the hash gains if `base` becomes `new`, which differs at `positions`. `first` and both
    /// slices are as for [`TensorHasher::content`]; the positions increase, and are counted as
    /// `first` is. Costs two terms for each changed word.
    pub fn difference(
        &self,
        first: usize,
        base: &[u8],
        new: &[u8],
        positions: &[u32],
    ) -> StateHash {
        let mut gain = self.gain();
        gain.add(first, base, new, positions);
        gain.finish()
    }

    /// What the hash gains by no changes yet.
    pub(crate) fn gain(&self) -> Gain<'_> {
        Gain { hasher: self, words: Words::new(self.seed, 0) }
    }

    fn word(&self, first: usize, word: usize) -> u64 {
        (self.start + (first * self.width) as u64) / 8 + word as u64
    }
}

/// What a hash gains by changes that come in blocks.
pub(crate) struct Gain<'a> {
    hasher: &'a TensorHasher,
    words: Words,
}

impl Gain<'_> {
    /// Adds the changes of a block, as for [`TensorHasher::difference`].
    pub(crate) fn add(&mut self, first: usize, base: &[u8], new: &[u8], positions: &[u32]) {
        let Self { hasher, words } = self;
        if positions.len() > base.len() / MANY {
            words.change += hasher.content(first, new) - hasher.content(first, base);
            return;
        }
        words.first = hasher.word(first, 0);
        let (start, mut done) = (first * hasher.width / 8, usize::MAX);
        for &position in positions {
            let word = word_of(position, hasher.width).0 - start;
            if word != done {
                words.push(Changed { word, old: word_at(base, word), new: word_at(new, word) });
                done = word;
            }
        }
    }

    /// What the hash gains by all of them.
    pub(crate) fn finish(self) -> StateHash {
        self.words.finish()
    }
}

/// The word of an element, and the element's place in it.
#[inline(always)]
fn word_of(position: u32, width: usize) -> (usize, usize) {
    let bytes = position as usize * width;
    (bytes / 8, bytes % 8 / width)
}

/// If more than one element changed in this number of bytes, all words are hashed.
const MANY: usize = 48;
/// Bytes that are hashed together.
const BLOCK: usize = 4096;

/// From a changed element to the one that is asked for.
const LATER: usize = 24;

/// Asks the processor for the place of a later change.
#[inline(always)]
fn ask(positions: &[u32], at: usize, width: usize, bytes: &[u8]) {
    if let Some(&later) = positions.get(at + LATER) {
        let start = later as usize * width;
        kernels::prefetch(&bytes[start..=start]);
    }
}

/// A word before and after a change, and its place.
#[derive(Debug, Clone, Copy)]
struct Changed {
    word: usize,
    old: u64,
    new: u64,
}

/// Changed words whose terms are summed together.
const TOGETHER: usize = 256;

/// Sums the terms of changed words.
struct Words {
    seed: u64,
    /// The index of word 0.
    first: u64,
    indices: [u64; TOGETHER],
    old: [u64; TOGETHER],
    new: [u64; TOGETHER],
    count: usize,
    change: StateHash,
}

impl Words {
    fn new(seed: u64, first: u64) -> Self {
        let [indices, old, new] = [[0; TOGETHER]; 3];
        Self { seed, first, indices, old, new, count: 0, change: StateHash::default() }
    }

    #[inline(always)]
    fn push(&mut self, Changed { word, old, new }: Changed) {
        let at = self.count % TOGETHER;
        (self.indices[at], self.old[at], self.new[at]) = (self.first + word as u64, old, new);
        self.count = at + 1;
        if self.count == TOGETHER {
            self.sum();
        }
    }

    fn sum(&mut self) {
        let (indices, old) = (&self.indices[..self.count], &self.old[..self.count]);
        let words = kernels::ChangedWords { indices, old, new: &self.new };
        self.change += StateHash(kernels::state_change(words, self.seed));
        self.count = 0;
    }

    fn finish(mut self) -> StateHash {
        self.sum();
        self.change
    }
}

/// A word of `bytes`, padded with zeros.
fn word_at(bytes: &[u8], word: usize) -> u64 {
    let mut padded = [0; 8];
    let bytes = &bytes[8 * word..];
    if let Some(word) = bytes.first_chunk() {
        return u64::from_le_bytes(*word);
    }
    let len = bytes.len();
    padded[..len].copy_from_slice(bytes);
    u64::from_le_bytes(padded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ElementType;

    fn tensor(name: &str, shape: &[u64]) -> Tensor {
        Tensor::new(name, ElementType::Bf16, shape).unwrap()
    }

    fn whole(tensor: &Tensor, bytes: &[u8]) -> StateHash {
        let hasher = TensorHasher::new(tensor);
        hasher.existence() + hasher.content(0, bytes)
    }

    #[test]
    fn name_type_shape_and_bits_count() {
        let bytes: Vec<u8> = (0..48).collect();
        let hash = whole(&tensor("w", &[6, 4]), &bytes);
        let mut others = vec![
            whole(&tensor("v", &[6, 4]), &bytes),
            whole(&tensor("w", &[4, 6]), &bytes),
            whole(&Tensor::new("w", ElementType::F16, [6, 4]).unwrap(), &bytes),
            StateHash::default(),
        ];
        for bit in 0..8 * bytes.len() {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            others.push(whole(&tensor("w", &[6, 4]), &flipped));
        }
        for other in others {
            assert!(hash.0[0] != other.0[0] && hash.0[1] != other.0[1]);
        }
        let empty = whole(&tensor("w", &[0]), &[]);
        assert_ne!(empty, StateHash::default());
    }

    #[test]
    fn hashes_of_shards_add_up() {
        let bytes: Vec<u8> = (0..44u8).map(|i| i.wrapping_mul(7)).collect();
        let hash = whole(&tensor("w", &[11, 2]), &bytes);
        let shards = [0..4, 4..10, 10..11].map(|rows: std::ops::Range<u64>| {
            let shard = Tensor::shard("w", ElementType::Bf16, [11, 2], rows.clone()).unwrap();
            whole(&shard, &bytes[rows.start as usize * 4..rows.end as usize * 4])
        });
        assert_eq!(shards.into_iter().sum::<StateHash>(), hash);
        // Ranks without rows add nothing.
        let none = Tensor::shard("w", ElementType::Bf16, [11, 2], 11..11).unwrap();
        assert_eq!(whole(&none, &[]), StateHash::default());
    }

    #[test]
    fn changes_are_the_difference_of_two_hashes_at_any_density() {
        let tensor = tensor("w", &[6003]);
        let hasher = TensorHasher::new(&tensor);
        let base: Vec<u8> = (0..12_006u32).map(|i| (i * i / 7) as u8).collect();
        for distance in [1, 2, 3, 7, 20, 23, 24, 25, 100, 5000] {
            let chosen = |&at: &u32| (at % distance == 0 || at == 6002) && at % 5 != 1;
            let positions: Vec<u32> = (0..6003).filter(chosen).collect();
            let mut new = base.clone();
            positions.iter().for_each(|&position| new[2 * position as usize + 1] ^= 0x55);
            let values = positions.iter().flat_map(|&position| &new[2 * position as usize..][..2]);
            let values: Vec<u8> = values.copied().collect();
            let expected = whole(&tensor, &new) - whole(&tensor, &base);
            assert_eq!(hasher.change(0, &base, &positions, &values), expected, "{distance}");
            assert_eq!(hasher.difference(0, &base, &new, &positions), expected, "{distance}");
            // The same in blocks, and from an element on.
            let (third, blocks) = (hasher.from(2000), (2000..6003).step_by(1024));
            let sum: StateHash = blocks
                .map(|first| {
                    let end = 6003.min(first + 1024);
                    let range = 2 * first..2 * end;
                    let positions: Vec<u32> = (first..end)
                        .filter(|&at| base[2 * at + 1] != new[2 * at + 1])
                        .map(|at| at as u32 - 2000)
                        .collect();
                    let (base, new) = (&base[range.clone()], &new[range]);
                    third.difference(first - 2000, base, new, &positions)
                })
                .sum();
            let first = hasher.content(0, &new[..4000]) - hasher.content(0, &base[..4000]);
            assert_eq!(first + sum, expected, "{distance}");
        }
    }

    #[test]
    fn a_change_is_the_difference_of_two_hashes() {
        let base: Vec<u8> = (0..460u32).map(|i| (i * 5) as u8).collect();
        let (positions, values) = ([0, 1, 3, 4, 9, 229], [7u8, 1, 8, 2, 9, 3, 0, 0, 1, 2, 3, 4]);
        let mut new = base.clone();
        for (position, value) in positions.iter().zip(values.as_chunks::<2>().0) {
            new[2 * position..2 * position + 2].copy_from_slice(value);
        }
        let positions = positions.map(|position| position as u32);
        let tensor = tensor("w", &[230]);
        let change = TensorHasher::new(&tensor).change(0, &base, &positions, &values);
        assert_eq!(whole(&tensor, &base) + change, whole(&tensor, &new));
        let hasher = TensorHasher::new(&tensor);
        assert_eq!(hasher.difference(0, &base, &new, &positions), change);
        assert_eq!(hasher.content(0, &new) - hasher.content(0, &base), change);
        let hash = whole(&tensor, &base);
        assert_eq!(StateHash::from_bytes(hash.to_bytes()), hash);
    }
}
