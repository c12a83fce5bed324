//! Decoding of parts.

use gradwire_bits::kernels::{CLASSES, Octaves, Ranked, class_counts, class_places, ones};
use gradwire_bits::{BitReader, DecodeError, expect_len, try_resize};

use super::coder::{Coder, Content, octaves, shifts};
use super::sparse::Changes;
use super::words::{Difference, Word};
use super::{PART, form, sparse};
use crate::ElementType;

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
            (form::SAME | form::CLASSES | form::PORTABLE, None) => {
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
                try_resize(&mut self.counts, len.div_ceil(64), 0)?;
                let sizes = class_counts(&octaves, base, &mut self.counts);
                let sizes = &sizes[..octaves.used()];
                let rules = sparse::read(&mut reader, sizes, most, &mut self.changes)?;
                self.locate(&octaves, base)?;
                self.take_places::<T>(&octaves, element.mantissa_bits(), base)?;
                rules
            }
            None => {
                let rules = sparse::read(&mut reader, &[len as u32], most, &mut self.changes)?;
                self.changes.shifts.fill(0);
                core::mem::swap(&mut self.positions, &mut self.changes.ranks);
                self.places.clear();
                self.places.try_reserve(self.positions.len())?;
                self.places.extend(0..self.positions.len() as u32);
                rules
            }
        };
        let Changes { ends, shifts, sizes, .. } = &mut self.changes;
        rules.take(&mut reader, ends, shifts, sizes)?;
        expect_len(code, reader.finish()?)?;
        self.take_values::<T>(base)
    }

    /// Finds the positions of the changed elements.
    fn locate(&mut self, octaves: &Octaves, base: &[u8]) -> Result<(), DecodeError> {
        try_resize(&mut self.changed, self.counts.len(), 0)?;
        let ranked = Ranked { ranks: &self.changes.ranks, ends: self.changes.ends };
        class_places(octaves, base, &self.counts, ranked, &mut self.changed);
        self.positions.clear();
        self.positions.try_reserve(self.changes.ranks.len() + 64)?;
        ones(bytemuck::cast_slice(&self.changed), 0, &mut self.positions);
        Ok(())
    }

    /// Finds the places and the shifts of the changed elements.
    fn take_places<T: Word>(
        &mut self,
        octaves: &Octaves,
        mantissa_bits: u32,
        base: &[u8],
    ) -> Result<(), DecodeError> {
        let (classes, shifts) = (octaves.classes(), shifts(octaves, mantissa_bits));
        let mut next: [u32; CLASSES] = core::array::from_fn(|class| self.changes.start(class));
        try_resize(&mut self.places, self.positions.len(), 0)?;
        for (&position, to) in self.positions.iter().zip(&mut self.places) {
            let octave = usize::from(octaves.of(T::at(base, position as usize).wide()));
            let place = &mut next[usize::from(classes[octave]) % CLASSES];
            self.changes.shifts[*place as usize] = shifts[octave];
            *to = *place;
            *place += 1;
        }
        Ok(())
    }

    /// Computes the new elements at the positions.
    fn take_values<T: Word>(&mut self, base: &[u8]) -> Result<(), DecodeError> {
        let (changes, mut valid) = (&self.changes, true);
        self.values.clear();
        self.values.try_reserve(self.positions.len() * T::BYTES)?;
        for (&position, &place) in self.positions.iter().zip(&self.places) {
            let old = T::at(base, position as usize);
            let (below, less) = (changes.signs[place as usize], changes.sizes[place as usize]);
            let units = less.wrapping_add(1);
            let new = old.moved(Difference { below: below != 0, units });
            valid &= new.is_some() & (units != 0);
            new.unwrap_or(old).push(&mut self.values);
        }
        if valid { Ok(()) } else { Err(DecodeError::Corrupt("a difference is too large")) }
    }
}
