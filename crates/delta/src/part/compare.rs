//! Comparison of two versions of a part.

use core::ops::Range;

use gradwire_bits::kernels::{CLASSES, Octaves, changed, class_ranks, ones};

use super::coder::{BLOCK, Coder};
use super::cuts::{self, Histogram};
use super::words::Word;
use crate::StateHash;
use crate::hasher::{Gain, TensorHasher};

/// Classes are chosen once this number of changes is known, or at the end of the part. From there
/// on, elements are ranked while they are in the cache.
const ENOUGH: usize = 2048;
/// The form difference is used if one in this number of elements changed.
const MANY: usize = 4;
/// If more than one in this number of a block changed, the changes of the part are counted before
/// more of them are listed.
const DENSE: usize = 6;
/// Tables in which neighbours are counted.
const TABLES: usize = 8;
/// The elements of a sample that shows how many elements each octave has.
const SAMPLE: usize = 1 << 14;

/// Two versions of a part.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) base: &'a [u8],
    pub(super) new: &'a [u8],
}

impl Pair<'_> {
    /// The bytes from here on.
    fn rest(self, start: usize) -> Self {
        Self { base: &self.base[start..], new: &self.new[start..] }
    }
}

/// How two versions of a part differ.
#[expect(clippy::large_enum_variant, reason = "one at a time exists, and it is not moved often")]
pub(super) enum Comparison {
    Same,
    /// All changes were listed.
    Few(Classes),
    /// So many elements changed that they were not all listed.
    Many,
}

/// The classes of a part.
pub(super) struct Classes {
    /// `None` if all elements are in one class.
    pub(super) octaves: Option<Octaves>,
    /// By class: its number of elements.
    pub(super) sizes: [u32; CLASSES],
    /// By octave: its number of changed elements.
    pub(super) changes: Histogram,
}

impl Coder {
    /// Finds the changed elements, their old values, differences and ranks, unless they are many.
    /// Also returns what the hash gains, if there is a hasher and the search did not end early.
    pub(super) fn compare(
        &mut self,
        width: usize,
        pair: Pair<'_>,
        octaves: Option<Octaves>,
        hasher: Option<&TensorHasher>,
    ) -> (Comparison, Option<StateHash>) {
        self.positions.clear();
        let len = pair.base.len();
        let most = len / width / MANY;
        let mut ranking = Ranking::new(octaves);
        let (mut end, mut is_counted, mut gain) = (0, false, hasher.map(TensorHasher::gain));
        while end < len {
            let start = end;
            end = len.min(start + BLOCK * width);
            let first = self.positions.len();
            match width {
                1 => self.compare_block::<u8>(pair, start..end),
                2 => self.compare_block::<u16>(pair, start..end),
                4 => self.compare_block::<u32>(pair, start..end),
                _ => self.compare_block::<u64>(pair, start..end),
            }
            let found = self.positions.len();
            if !is_counted && (found - first) * DENSE > (end - start) / width {
                is_counted = true;
                if found + count_changed(width, pair.rest(end)) >= most {
                    return (Comparison::Many, None);
                }
            }
            if let Some(gain) = &mut gain {
                let [base, new] = [pair.base, pair.new].map(|bytes| &bytes[start..end]);
                gain.add(start / width, base, new, &self.positions[first..]);
            }
            self.rank(&mut ranking, pair.base, first, end);
        }
        let comparison = match self.positions.len() {
            0 => Comparison::Same,
            found if found >= most => Comparison::Many,
            _ => Comparison::Few(ranking.finish(len / width)),
        };
        (comparison, gain.map(Gain::finish))
    }

    /// Ranks the changed elements up to `end` within their classes, of which those from `first` on
    /// are new.
    fn rank(&mut self, ranking: &mut Ranking, base: &[u8], first: usize, end: usize) {
        let Ranking { classes, ranked, known } = ranking;
        let Some(octaves) = &mut classes.octaves else { return };
        for &old in &self.olds[first..] {
            classes.changes[usize::from(octaves.of(old))] += 1;
        }
        let (found, width) = (self.positions.len(), octaves.width);
        if *ranked == 0 {
            let is_enough = found >= ENOUGH || end == base.len();
            if !is_enough || found == 0 {
                return;
            }
            let elements = [end, base.len()].map(|bytes| (bytes / width) as u32);
            let sample = sample(&base[..end], octaves);
            octaves.last = cuts::choose(&classes.changes, &sample, elements);
        }
        let (base, at) = (&base[*ranked..end], (*ranked / width) as u32);
        self.ranks.resize(found, 0);
        let (positions, ranks) = (&self.positions[*known..], &mut self.ranks[*known..]);
        class_ranks(octaves, base, at, positions, &mut classes.sizes, ranks);
        (*ranked, *known) = (end, found);
    }

    /// Finds the changed elements of a block.
    fn compare_block<T: Word>(&mut self, pair: Pair<'_>, range: Range<usize>) {
        let first = (range.start / T::BYTES) as u32;
        let [base, new] = [pair.base, pair.new].map(|bytes| &bytes[range.clone()]);
        let mut words = [0; BLOCK / 64];
        let words = &mut words[..(base.len() / T::BYTES).div_ceil(64)];
        let known = self.positions.len();
        let count = changed(T::BYTES, base, new, words);
        self.olds.resize(known + count, 0);
        self.moves.resize(known + count, 0);
        if count == 0 {
            return;
        }
        ones(bytemuck::cast_slice(words), first, &mut self.positions);
        let to = self.olds[known..].iter_mut().zip(&mut self.moves[known..]);
        for (&position, (old, zigzag)) in self.positions[known..].iter().zip(to) {
            let [base, new] = [base, new].map(|bytes| T::at(bytes, (position - first) as usize));
            (*old, *zigzag) = (base.wide(), base.zigzag(new));
        }
    }
}

/// How far the changed elements of a part have been ranked.
struct Ranking {
    classes: Classes,
    /// The bytes of the base in front of which all are ranked.
    ranked: usize,
    /// The changed elements among them.
    known: usize,
}

impl Ranking {
    fn new(octaves: Option<Octaves>) -> Self {
        let classes = Classes { octaves, sizes: [0; CLASSES], changes: [0; 256] };
        Self { classes, ranked: 0, known: 0 }
    }

    /// The classes of a part of `len` elements.
    fn finish(mut self, len: usize) -> Classes {
        if self.classes.octaves.is_none() {
            self.classes.sizes[0] = len as u32;
        }
        self.classes
    }
}

/// The number of elements that changed.
fn count_changed(width: usize, Pair { base, new }: Pair<'_>) -> usize {
    let len = BLOCK * width;
    let mut words = [0; BLOCK / 64];
    let blocks = base.chunks(len).zip(new.chunks(len));
    blocks
        .map(|(base, new)| {
            let words = &mut words[..(base.len() / width).div_ceil(64)];
            changed(width, base, new, words)
        })
        .sum()
}

/// Counts the octaves of lines of 64 bytes at fixed distances.
pub(super) fn sample(base: &[u8], octaves: &Octaves) -> Histogram {
    let lines = (SAMPLE * octaves.width / 64).max(1);
    let distance = (base.len() / 64).div_ceil(lines).max(1);
    // Neighbours are counted apart: a second increment of a count waits for the first.
    let mut tables = [[0; 256]; TABLES];
    for line in base.chunks(64).step_by(distance) {
        match octaves.width {
            1 => count::<u8>(line, octaves, &mut tables),
            2 => count::<u16>(line, octaves, &mut tables),
            4 => count::<u32>(line, octaves, &mut tables),
            _ => count::<u64>(line, octaves, &mut tables),
        }
    }
    core::array::from_fn(|octave| tables.iter().map(|table| table[octave]).sum())
}

fn count<T: Word>(line: &[u8], octaves: &Octaves, tables: &mut [Histogram; TABLES]) {
    for elements in line.chunks(TABLES * T::BYTES) {
        for (element, table) in T::all(elements).zip(&mut *tables) {
            table[usize::from(octaves.of(element.wide()))] += 1;
        }
    }
}
