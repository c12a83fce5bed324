//! Encoding of parts.

use gradwire_bits::BitWriter;
use gradwire_bits::kernels::{CLASSES, Octaves, Ranks, changed, class_ranks, ones};

use super::coder::{Coder, Options, octaves, shifts};
use super::cuts::{self, Histogram};
use super::words::Word;
use super::{PART, form, sparse};
use crate::ElementType;

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
        let Some(base) = base else { return raw(new, out) };
        assert_eq!(base.len(), new.len(), "the base of a part has its length");
        self.changed.resize(len.div_ceil(64), 0);
        let count = changed(element.width(), base, new, &mut self.changed);
        if count == 0 {
            return out.push(form::SAME);
        }
        let start = out.len();
        match element.width() {
            1 => self.sparse::<u8>(element, Pair { base, new }, options, out),
            2 => self.sparse::<u16>(element, Pair { base, new }, options, out),
            4 => self.sparse::<u32>(element, Pair { base, new }, options, out),
            _ => self.sparse::<u64>(element, Pair { base, new }, options, out),
        }
        if out.len() - start > new.len() {
            out.truncate(start);
            raw(new, out);
        }
    }

    /// Appends a sparse form of the part.
    fn sparse<T: Word>(
        &mut self,
        element: ElementType,
        pair: Pair<'_>,
        options: Options,
        out: &mut Vec<u8>,
    ) {
        self.positions.clear();
        ones(bytemuck::cast_slice(&self.changed), 0, &mut self.positions);
        let octaves = octaves(element).filter(|_| !options.portable);
        out.push(if octaves.is_some() { form::CLASSES } else { form::PORTABLE });
        let mut writer = BitWriter::new(out);
        let (mut sizes, mut used) = ([(pair.new.len() / T::BYTES) as u32; CLASSES], 1);
        match octaves {
            Some(mut octaves) => {
                let ends = self.choose_classes::<T>(pair.base, &mut octaves);
                sparse::write_cuts(&octaves, &mut writer);
                (sizes, used) = (self.rank(pair.base, &octaves, ends), octaves.used());
                self.take_shifts::<T>(pair.base, &octaves, element.mantissa_bits());
            }
            None => {
                self.changes.shifts.clear();
                self.changes.shifts.resize(self.positions.len(), 0);
                self.changes.ends = [self.positions.len() as u32; CLASSES];
                self.changes.ranks.clone_from(&self.positions);
                self.places.clear();
                self.places.extend(0..self.positions.len() as u32);
            }
        }
        self.take_differences::<T>(pair);
        sparse::write(&self.changes, &sizes[..used], &mut writer);
        writer.finish();
    }

    /// Chooses the cuts between classes; returns by class the number of changes in it and those
    /// before it.
    fn choose_classes<T: Word>(&self, base: &[u8], octaves: &mut Octaves) -> [u32; CLASSES] {
        let mut changes: Histogram = [0; 256];
        for &position in &self.positions {
            changes[usize::from(octaves.of(T::at(base, position as usize).wide()))] += 1;
        }
        octaves.last =
            cuts::choose(&changes, &sample::<T>(base, octaves), (base.len() / T::BYTES) as u32);
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
        let ranks = Ranks { next, ranks: &mut self.changes.ranks, places: &mut self.places };
        class_ranks(octaves, base, &self.changed, &mut { ranks })
    }

    /// Computes the shifts of the changed elements, class by class.
    fn take_shifts<T: Word>(&mut self, base: &[u8], octaves: &Octaves, mantissa_bits: u32) {
        let shifts = shifts(octaves, mantissa_bits);
        self.changes.shifts.resize(self.positions.len(), 0);
        for (&position, &place) in self.positions.iter().zip(&self.places) {
            let octave = octaves.of(T::at(base, position as usize).wide());
            self.changes.shifts[place as usize] = shifts[usize::from(octave)];
        }
    }

    /// Computes the differences of the changed elements, class by class.
    fn take_differences<T: Word>(&mut self, pair: Pair<'_>) {
        let changes = &mut self.changes;
        changes.signs.resize(self.positions.len(), 0);
        changes.sizes.resize(self.positions.len(), 0);
        for (&position, &place) in self.positions.iter().zip(&self.places) {
            let [base, new] = [pair.base, pair.new].map(|bytes| T::at(bytes, position as usize));
            let difference = base.difference(new);
            changes.signs[place as usize] = difference.below.into();
            changes.sizes[place as usize] = difference.units;
        }
    }
}

/// Two versions of a part.
#[derive(Clone, Copy)]
struct Pair<'a> {
    base: &'a [u8],
    new: &'a [u8],
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

/// Appends the form `raw`.
fn raw(new: &[u8], out: &mut Vec<u8>) {
    out.push(form::RAW);
    out.extend_from_slice(new);
}
