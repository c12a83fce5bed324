//! Encoding of parts.

use gradwire_bits::BitWriter;
use gradwire_bits::kernels::{CLASSES, Octaves};

use super::coder::{Coder, Options, octaves, shifts};
use super::compare::{Classes, Comparison, Pair};
use super::{PART, estimate, form, sparse};
use crate::ElementType;

/// Forms without the base are tried if another one exceeds this fraction of the part.
const LARGE: usize = 4;
/// Forms without the base are also tried if another one exceeds this fraction of the part, and a
/// sample says that they may be shorter.
const NOTICEABLE: usize = 1024;

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
        let octaves = octaves(element).filter(|_| !options.portable);
        let (pair, start) = (Pair { base, new }, out.len());
        match self.compare(element.width(), pair, octaves) {
            Comparison::Same => return out.push(form::SAME),
            Comparison::Few(classes) => self.sparse(element, &classes, out),
            Comparison::Many => self.encode_difference(element, pair, options.portable, out),
        }
        let code = out.len() - start;
        let is_large = code > new.len() / LARGE;
        if is_large || code > new.len() / NOTICEABLE && estimate::may_be_shorter(element, new, code)
        {
            let end = out.len();
            self.encode_whole(element, new, out);
            keep_shorter(out, start, end);
        }
    }

    /// Appends a sparse form of the part.
    fn sparse(&mut self, element: ElementType, classes: &Classes, out: &mut Vec<u8>) {
        out.push(if classes.octaves.is_some() { form::CLASSES } else { form::PORTABLE });
        let mut writer = BitWriter::new(out);
        let mut used = 1;
        match &classes.octaves {
            Some(octaves) => {
                sparse::write_cuts(octaves, &mut writer);
                used = octaves.used();
                self.sort(octaves, classes, element.mantissa_bits());
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
        sparse::write(&self.changes, &classes.sizes[..used], &mut writer);
        writer.finish();
    }

    /// Sorts the changed elements by class.
    fn sort(&mut self, octaves: &Octaves, classes: &Classes, mantissa_bits: u32) {
        let (shifts, changes, count) =
            (shifts(octaves, mantissa_bits), &mut self.changes, self.ranks.len());
        let class = octaves.classes();
        changes.ends = [0; CLASSES];
        for (&class, &count) in class.iter().zip(&classes.changes) {
            changes.ends[usize::from(class)..].iter_mut().for_each(|end| *end += count);
        }
        changes.ranks.resize(count, 0);
        changes.moves.resize(count, 0);
        changes.shifts.resize(count, 0);
        let mut next: [u32; CLASSES] = core::array::from_fn(|class| changes.start(class));
        for ((&old, &zigzag), &rank) in self.olds.iter().zip(&self.moves).zip(&self.ranks) {
            let octave = usize::from(octaves.of(old));
            let place = &mut next[usize::from(class[octave]) % CLASSES];
            changes.ranks[*place as usize] = rank;
            changes.moves[*place as usize] = zigzag;
            changes.shifts[*place as usize] = shifts[octave];
            *place += 1;
        }
    }
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
