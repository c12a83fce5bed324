//! Encoding of parts.

use gradwire_bits::BitWriter;
use gradwire_bits::kernels::{CLASSES, Octaves};

use super::coder::{Coder, Options, octaves, shifts};
use super::compare::{Classes, Comparison, Pair};
use super::sparse::ClassChanges;
use super::{PART, estimate, form, sparse};
use crate::{ElementType, StateHash, TensorHasher};

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
        match base {
            Some(base) => _ = self.encode_pair(element, [base, new], options, None, out),
            None => {
                check(element, new);
                self.encode_whole(element, new, out);
            }
        }
    }

    /// As [`encode`](Self::encode), for the part of a base and the new one. Returns what the hash
    /// of the tensor gains; `hasher` counts elements from the start of the part.
    ///
    /// # Panics
    /// As [`encode`](Self::encode).
    pub fn encode_hashed(
        &mut self,
        element: ElementType,
        versions: [&[u8]; 2],
        options: Options,
        hasher: &TensorHasher,
        out: &mut Vec<u8>,
    ) -> StateHash {
        let change = self.encode_pair(element, versions, options, Some(hasher), out);
        let [base, new] = versions;
        change.unwrap_or_else(|| hasher.content(0, new) - hasher.content(0, base))
    }

    /// Appends the shortest form of a part. Returns what the hash gains; `None` if it is not known.
    fn encode_pair(
        &mut self,
        element: ElementType,
        [base, new]: [&[u8]; 2],
        options: Options,
        hasher: Option<&TensorHasher>,
        out: &mut Vec<u8>,
    ) -> Option<StateHash> {
        check(element, new);
        assert_eq!(base.len(), new.len(), "the base of a part has its length");
        let octaves = octaves(element).filter(|_| !options.portable);
        let (pair, start) = (Pair { base, new }, out.len());
        let (comparison, change) = self.compare(element.width(), pair, octaves, hasher);
        match comparison {
            Comparison::Same => {
                out.push(form::SAME);
                return change;
            }
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
        change
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
        // Slices: the pointers of vectors would be read again after each write.
        let ClassChanges { ranks, moves, shifts: distances, .. } = changes;
        let (ranks, moves, distances) = (&mut ranks[..], &mut moves[..], &mut distances[..]);
        for ((&old, &zigzag), &rank) in self.olds.iter().zip(&self.moves).zip(&self.ranks) {
            let octave = usize::from(octaves.of(old));
            let next = &mut next[usize::from(class[octave]) % CLASSES];
            let place = *next as usize;
            (ranks[place], moves[place], distances[place]) = (rank, zigzag, shifts[octave]);
            *next += 1;
        }
    }
}

/// Panics unless the bytes are those of a part.
fn check(element: ElementType, new: &[u8]) {
    assert!(new.len().is_multiple_of(element.width()), "a part has whole elements");
    assert!(new.len() / element.width() <= PART, "a part has at most {PART} elements");
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
