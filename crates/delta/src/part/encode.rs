//! Encoding of parts.

use gradwire_bits::BitWriter;
use gradwire_bits::kernels::{CLASSES, Octaves, Ranks, changed, class_ranks, ones};

use super::coder::{BLOCK, Coder, Options, octaves, shifts};
use super::cuts::{self, Histogram};
use super::words::Word;
use super::{PART, form, sparse};
use crate::ElementType;

/// Forms without the base are tried if a sparse one exceeds this fraction of the part.
const DENSE: usize = 4;
/// The elements of a sample that shows how many elements each octave has.
const SAMPLE: usize = 1 << 14;

impl Coder {
    /// Appends the shortest form of the part `new`, given the part of the base with the same
    /// places, or none.
    ///
    /// # Panics
    /// If `new` is no whole number of elements, has more than [`PART`] of them, or `base` has
    /// another length.
    pub fn encode(
        &mut self,
        element: ElementType,
        base: Option<&[u8]>,
        new: &[u8],
        options: Options,
        out: &mut Vec<u8>,
    ) {
        assert!(new.len().is_multiple_of(element.width()), "a part has whole elements");
        let len = new.len() / element.width();
        assert!(len <= PART, "a part has at most {PART} elements");
        let Some(base) = base else { return self.encode_whole(element, new, out) };
        assert_eq!(base.len(), new.len(), "the base of a part has its length");
        match element.width() {
            1 => self.compare::<u8>(base, new),
            2 => self.compare::<u16>(base, new),
            4 => self.compare::<u32>(base, new),
            _ => self.compare::<u64>(base, new),
        }
        if self.positions.is_empty() {
            return out.push(form::SAME);
        }
        let start = out.len();
        self.sparse(element, base, options, out);
        if out.len() - start > new.len() / DENSE {
            let end = out.len();
            self.encode_whole(element, new, out);
            keep_shorter(out, start, end);
        }
    }

    /// Finds the changed elements, their old values and their differences.
    fn compare<T: Word>(&mut self, base: &[u8], new: &[u8]) {
        self.positions.clear();
        self.changed.resize((new.len() / T::BYTES).div_ceil(64), 0);
        let blocks = base.chunks(BLOCK * T::BYTES).zip(new.chunks(BLOCK * T::BYTES));
        for (at, (words, (base, new))) in
            self.changed.chunks_mut(BLOCK / 64).zip(blocks).enumerate()
        {
            let (first, known) = ((at * BLOCK) as u32, self.positions.len());
            changed(T::BYTES, base, new, words);
            ones(bytemuck::cast_slice(words), first, &mut self.positions);
            let positions = &self.positions[known..];
            self.olds.resize(self.positions.len(), 0);
            self.moves.resize(self.positions.len(), 0);
            let to = self.olds[known..].iter_mut().zip(&mut self.moves[known..]);
            for (&position, (old, zigzag)) in positions.iter().zip(to) {
                let [base, new] =
                    [base, new].map(|bytes| T::at(bytes, (position - first) as usize));
                (*old, *zigzag) = (base.wide(), base.zigzag(new));
            }
        }
    }

    /// Appends a sparse form of the part.
    fn sparse(&mut self, element: ElementType, base: &[u8], options: Options, out: &mut Vec<u8>) {
        let octaves = octaves(element).filter(|_| !options.portable);
        out.push(if octaves.is_some() { form::CLASSES } else { form::PORTABLE });
        let mut writer = BitWriter::new(out);
        let (mut sizes, mut used) = ([(base.len() / element.width()) as u32; CLASSES], 1);
        match octaves {
            Some(mut octaves) => {
                let ends = self.choose_classes(base, &mut octaves);
                sparse::write_cuts(&octaves, &mut writer);
                (sizes, used) = (self.rank(base, &octaves, ends), octaves.used());
                self.sort(&octaves, element.mantissa_bits());
            }
            None => {
                let changes = &mut self.changes;
                changes.shifts.clear();
                changes.shifts.resize(self.positions.len(), 0);
                changes.ends = [self.positions.len() as u32; CLASSES];
                changes.ranks.clone_from(&self.positions);
                changes.moves.clone_from(&self.moves);
            }
        }
        sparse::write(&self.changes, &sizes[..used], &mut writer);
        writer.finish();
    }

    /// Chooses the cuts between classes; returns by class the number of changes in it and those
    /// before it.
    fn choose_classes(&self, base: &[u8], octaves: &mut Octaves) -> [u32; CLASSES] {
        let mut changes: Histogram = [0; 256];
        for &old in &self.olds[..self.positions.len()] {
            changes[usize::from(octaves.of(old))] += 1;
        }
        let sample = match octaves.width {
            1 => sample::<u8>(base, octaves),
            2 => sample::<u16>(base, octaves),
            4 => sample::<u32>(base, octaves),
            _ => sample::<u64>(base, octaves),
        };
        octaves.last = cuts::choose(&changes, &sample, (base.len() / octaves.width) as u32);
        let (classes, mut ends) = (octaves.classes(), [0; CLASSES]);
        for (&class, count) in classes.iter().zip(changes) {
            ends[usize::from(class)..].iter_mut().for_each(|end| *end += count);
        }
        ends
    }

    /// Finds the ranks of the changed elements, and returns the sizes of the classes.
    fn rank(&mut self, base: &[u8], octaves: &Octaves, ends: [u32; CLASSES]) -> [u32; CLASSES] {
        let count = self.positions.len();
        self.changes.ends = ends;
        self.changes.ranks.resize(count, 0);
        self.places.resize(count, 0);
        let next = core::array::from_fn(|class| self.changes.start(class));
        let (ranks, places) = (&mut self.changes.ranks[..], &mut self.places[..]);
        class_ranks(octaves, base, &self.changed, &mut Ranks { next, ranks, places })
    }

    /// Sorts the differences of the changed elements by class.
    fn sort(&mut self, octaves: &Octaves, mantissa_bits: u32) {
        let (shifts, changes) = (shifts(octaves, mantissa_bits), &mut self.changes);
        changes.moves.resize(self.places.len(), 0);
        changes.shifts.resize(self.places.len(), 0);
        for ((&old, &zigzag), &place) in self.olds.iter().zip(&self.moves).zip(&self.places) {
            changes.moves[place as usize] = zigzag;
            changes.shifts[place as usize] = shifts[usize::from(octaves.of(old))];
        }
    }
}

/// Counts the octaves of lines of 64 bytes at fixed distances.
fn sample<T: Word>(base: &[u8], octaves: &Octaves) -> Histogram {
    let mut counts = [0; 256];
    let lines = (SAMPLE * T::BYTES / 64).max(1);
    let distance = (base.len() / 64).div_ceil(lines).max(1);
    for line in base.chunks(64).step_by(distance) {
        for element in T::all(line) {
            counts[usize::from(octaves.of(element.wide()))] += 1;
        }
    }
    counts
}

/// Removes the longer one of two codes, the first of which starts at `start`, and the other at
/// `end`.
fn keep_shorter(out: &mut Vec<u8>, start: usize, end: usize) {
    if out.len() - end < end - start {
        out.drain(start..end);
    } else {
        out.truncate(end);
    }
}
