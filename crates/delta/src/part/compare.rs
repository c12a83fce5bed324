//! Comparison of two versions of a part.

use core::ops::Range;

use gradwire_bits::kernels::{CLASSES, Octaves, changed, class_ranks, ones};

use super::coder::{BLOCK, Coder};
use super::cuts::{self, Histogram};
use super::words::Word;

/// Classes are chosen once this number of changes is known, or at the end of the part. From there
/// on, elements are ranked while they are in the cache.
const ENOUGH: usize = 2048;
/// The form difference is used if this fraction of the elements changed; the rest need not be
/// compared then.
pub(super) const MANY: usize = 4;
/// The elements of a sample that shows how many elements each octave has.
const SAMPLE: usize = 1 << 14;

/// Two versions of a part.
#[derive(Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) base: &'a [u8],
    pub(super) new: &'a [u8],
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
    /// Finds the changed elements, their old values, differences and ranks, or enough of them to
    /// see that there are many. `None` if nothing changed.
    pub(super) fn compare(
        &mut self,
        width: usize,
        pair: Pair<'_>,
        octaves: Option<Octaves>,
    ) -> Option<Classes> {
        self.positions.clear();
        let mut classes = Classes { octaves, sizes: [0; CLASSES], changes: [0; 256] };
        // The elements that were compared, those of them that were ranked, and their changes.
        let (mut end, mut ranked, mut known, len) = (0, 0, 0, pair.base.len());
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
            self.has_all = end == len;
            if self.positions.len() >= len / width / MANY {
                break;
            }
            let Some(octaves) = &mut classes.octaves else { continue };
            for &old in &self.olds[first..] {
                classes.changes[usize::from(octaves.of(old))] += 1;
            }
            if ranked == 0 {
                let enough = self.positions.len() >= ENOUGH || end == len;
                if !enough || self.positions.is_empty() {
                    continue;
                }
                let elements = [end, len].map(|bytes| (bytes / width) as u32);
                let sample = sample(&pair.base[..end], octaves);
                octaves.last = cuts::choose(&classes.changes, &sample, elements);
            }
            let (base, at) = (&pair.base[ranked..end], (ranked / width) as u32);
            self.ranks.resize(self.positions.len(), 0);
            let (positions, ranks) = (&self.positions[known..], &mut self.ranks[known..]);
            class_ranks(octaves, base, at, positions, &mut classes.sizes, ranks);
            (ranked, known) = (end, self.positions.len());
        }
        if classes.octaves.is_none() {
            classes.sizes[0] = (len / width) as u32;
        }
        (!self.positions.is_empty()).then_some(classes)
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

/// Counts the octaves of lines of 64 bytes at fixed distances.
pub(super) fn sample(base: &[u8], octaves: &Octaves) -> Histogram {
    let lines = (SAMPLE * octaves.width / 64).max(1);
    let distance = (base.len() / 64).div_ceil(lines).max(1);
    let mut counts = [0; 256];
    for line in base.chunks(64).step_by(distance) {
        match octaves.width {
            1 => count::<u8>(line, octaves, &mut counts),
            2 => count::<u16>(line, octaves, &mut counts),
            4 => count::<u32>(line, octaves, &mut counts),
            _ => count::<u64>(line, octaves, &mut counts),
        }
    }
    counts
}

fn count<T: Word>(line: &[u8], octaves: &Octaves, counts: &mut Histogram) {
    T::all(line).for_each(|element| counts[usize::from(octaves.of(element.wide()))] += 1);
}
