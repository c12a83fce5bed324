//! Decoding of parts.

use gradwire_bits::kernels::{
    CLASSES, Octaves, Ranked, class_bits, class_counts, class_places, class_sizes, ones, prefetch,
};
use gradwire_bits::{BitReader, DecodeError, expect_len, try_resize};

use super::coder::{BLOCK, Coder, Content, octaves, shifts};
use super::sparse::ClassChanges;
use super::words::Word;
use super::{PART, form, sparse};
use crate::ElementType;

/// From a changed element to the one that is asked for.
const LATER: usize = 24;
/// If the code has less than a byte for this number of elements, most groups of 64 elements are
/// skipped.
const RARE: usize = 256;

impl Coder {
    /// Reads the form of a part of `len` elements. `bytes` is exactly what [`encode`](Self::encode)
    /// appended. The base is the one given there; without a base a part can be read if it was
    /// encoded without one.
    ///
    /// # Errors
    /// Bytes that no encoder writes, or a form that needs a base if there is none. The memory used
    /// is at most proportional to `len`.
    ///
    /// # Panics
    /// If `len` is above [`PART`], or the base has another number of elements.
    pub fn decode<'a>(
        &'a mut self,
        element: ElementType,
        len: usize,
        base: Option<&[u8]>,
        bytes: &'a [u8],
    ) -> Result<Content<'a>, DecodeError> {
        assert!(len <= PART, "a part has at most {PART} elements");
        assert!(base.is_none_or(|base| base.len() == len * element.width()));
        let (&form, code) = bytes.split_first().ok_or(DecodeError::Truncated)?;
        match (form, base) {
            (form::RAW, _) => {
                expect_len(code, len * element.width())?;
                Ok(Content::Whole(code))
            }
            (form::DENSE, _) => {
                self.decode_dense(element, len, code)?;
                Ok(Content::Whole(&self.whole))
            }
            (form::SAME, Some(_)) => {
                expect_len(code, 0)?;
                Ok(Content::Same)
            }
            (form::CLASSES | form::PORTABLE, Some(base)) => {
                let octaves = if form == form::CLASSES { octaves(element) } else { None };
                if form == form::CLASSES && octaves.is_none() {
                    return Err(DecodeError::Corrupt("integers have no classes"));
                }
                match element.width() {
                    1 => self.changes::<u8>(element, octaves, base, code)?,
                    2 => self.changes::<u16>(element, octaves, base, code)?,
                    4 => self.changes::<u32>(element, octaves, base, code)?,
                    _ => self.changes::<u64>(element, octaves, base, code)?,
                }
                Ok(Content::Changes { positions: &self.positions, values: &self.values })
            }
            (form::DIFFERENCE, Some(base)) => {
                self.decode_difference(element, base, code)?;
                Ok(Content::Whole(&self.values))
            }
            (form::SAME | form::CLASSES | form::PORTABLE | form::DIFFERENCE, None) => {
                Err(DecodeError::Corrupt("the form of a part needs a base"))
            }
            _ => Err(DecodeError::Corrupt("a part has an unknown form")),
        }
    }

    /// Decodes a sparse form; in classes if there are octaves.
    fn changes<T: Word>(
        &mut self,
        element: ElementType,
        octaves: Option<Octaves>,
        base: &[u8],
        code: &[u8],
    ) -> Result<(), DecodeError> {
        let (mut reader, len) = (BitReader::new(code), base.len() / T::BYTES);
        // Each change has a bit for its sign.
        let most = len.min(8 * code.len());
        let rules = match octaves {
            Some(mut octaves) => {
                sparse::read_cuts(&mut reader, &mut octaves)?;
                let is_rare = code.len() * RARE < len;
                let sizes = if is_rare {
                    try_resize(&mut self.counts, len.div_ceil(64), 0)?;
                    class_counts(&octaves, base, &mut self.counts)
                } else {
                    class_sizes(&octaves, base)
                };
                let used = &sizes[..octaves.used()];
                let rules = sparse::read(&mut reader, used, most, &mut self.changes)?;
                self.locate::<T>(&octaves, (!is_rare).then_some(&sizes), base)?;
                self.take_places(&octaves, element.mantissa_bits())?;
                rules
            }
            None => {
                let rules = sparse::read(&mut reader, &[len as u32], most, &mut self.changes)?;
                self.changes.shifts.fill(0);
                core::mem::swap(&mut self.positions, &mut self.changes.ranks);
                try_resize(&mut self.olds, self.positions.len(), 0)?;
                for (at, old) in self.olds.iter_mut().enumerate() {
                    if let Some(&later) = self.positions.get(at + LATER) {
                        prefetch(&base[later as usize * T::BYTES..][..1]);
                    }
                    *old = T::at(base, self.positions[at] as usize).wide();
                }
                rules
            }
        };
        let ClassChanges { ends, shifts, moves, .. } = &mut self.changes;
        rules.take(&mut reader, ends, shifts, moves)?;
        expect_len(code, reader.finish()?)?;
        self.take_values::<T>(octaves.is_some())
    }

    /// Finds the changed elements and their old values: from the numbers of elements of each class,
    /// or, if few changed, from those of each class in each group.
    fn locate<T: Word>(
        &mut self,
        octaves: &Octaves,
        sizes: Option<&[u32; CLASSES]>,
        base: &[u8],
    ) -> Result<(), DecodeError> {
        let count = self.changes.ranks.len();
        self.positions.clear();
        self.positions.try_reserve(count + 64)?;
        try_resize(&mut self.olds, count, 0)?;
        let mut next = sizes.map(|sizes| self.mark_ranks(sizes)).transpose()?;
        let mut ranked = Ranked::new(&self.changes.ranks, self.changes.ends);
        let mut words = [0; BLOCK / 64];
        for (at, base) in base.chunks(BLOCK * T::BYTES).enumerate() {
            let (first, known) = ((at * BLOCK) as u32, self.positions.len());
            let words = &mut words[..(base.len() / T::BYTES).div_ceil(64)];
            match &mut next {
                Some(next) => class_bits(octaves, base, &self.marks, next, words),
                None => {
                    let counts = &self.counts[at * BLOCK / 64..][..words.len()];
                    class_places(octaves, base, counts, &mut ranked, words);
                }
            }
            ones(bytemuck::cast_slice(words), first, &mut self.positions);
            take_olds::<T>(&self.positions[known..], first, base, &mut self.olds[known..]);
        }
        Ok(())
    }

    /// Sets a bit for each changed element in lists of all elements, class by class; returns where
    /// the lists start.
    fn mark_ranks(&mut self, sizes: &[u32; CLASSES]) -> Result<[usize; CLASSES], DecodeError> {
        let before = |class: usize| sizes[..class].iter().map(|&size| size as usize).sum::<usize>();
        let starts = core::array::from_fn(before);
        self.marks.clear();
        try_resize(&mut self.marks, before(CLASSES) / 64 + 2, 0)?;
        for (class, start) in starts.into_iter().enumerate() {
            let ranks = self.changes.start(class) as usize..self.changes.ends[class] as usize;
            for &rank in &self.changes.ranks[ranks] {
                let place = start + rank as usize;
                self.marks[place / 64] |= 1 << (place % 64);
            }
        }
        Ok(starts)
    }

    /// Finds the places and the shifts of the changed elements.
    fn take_places(&mut self, octaves: &Octaves, mantissa_bits: u32) -> Result<(), DecodeError> {
        let (classes, shifts) = (octaves.classes(), shifts(octaves, mantissa_bits));
        let mut next: [u32; CLASSES] = core::array::from_fn(|class| self.changes.start(class));
        try_resize(&mut self.places, self.positions.len(), 0)?;
        for (&old, to) in self.olds.iter().zip(&mut self.places) {
            let octave = usize::from(octaves.of(old));
            let place = &mut next[usize::from(classes[octave]) % CLASSES];
            self.changes.shifts[*place as usize] = shifts[octave];
            *to = *place;
            *place += 1;
        }
        Ok(())
    }

    /// Computes the new elements.
    fn take_values<T: Word>(&mut self, sorted: bool) -> Result<(), DecodeError> {
        let moves = &self.changes.moves;
        try_resize(&mut self.values, self.positions.len() * T::BYTES, 0)?;
        let each = self.olds.iter().zip(self.values.chunks_exact_mut(T::BYTES));
        let each = each.enumerate().map(|(at, (&old, value))| {
            let place = if sorted { self.places[at] as usize } else { at };
            let new = T::narrow(old).changed(moves[place]);
            new.unwrap_or(T::narrow(0)).write(value);
            new.is_some()
        });
        let valid = each.fold(true, |all, each| all & each);
        if valid { Ok(()) } else { Err(DecodeError::Corrupt("a difference is too large")) }
    }
}

/// Copies the elements at positions, which are counted from `first`.
fn take_olds<T: Word>(positions: &[u32], first: u32, base: &[u8], olds: &mut [u64]) {
    for (&position, old) in positions.iter().zip(olds) {
        *old = T::at(base, (position - first) as usize).wide();
    }
}
