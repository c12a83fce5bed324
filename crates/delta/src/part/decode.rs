//! Decoding of parts.

use gradwire_bits::kernels::{CLASSES, Octaves, Ranked, class_counts, class_places, ones};
use gradwire_bits::{BitReader, DecodeError, expect_len, try_resize};

use super::coder::{Coder, Content, octaves};
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
                    1 => self.decode_sparse::<u8>(octaves, base, code)?,
                    2 => self.decode_sparse::<u16>(octaves, base, code)?,
                    4 => self.decode_sparse::<u32>(octaves, base, code)?,
                    _ => self.decode_sparse::<u64>(octaves, base, code)?,
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
    fn decode_sparse<T: Word>(
        &mut self,
        octaves: Option<Octaves>,
        base: &[u8],
        code: &[u8],
    ) -> Result<(), DecodeError> {
        let mut reader = BitReader::new(code);
        let by_octave = match octaves {
            Some(mut octaves) => {
                sparse::read_cuts(&mut reader, &mut octaves)?;
                try_resize(&mut self.counts, (base.len() / T::BYTES).div_ceil(64), 0)?;
                let sizes = class_counts(&octaves, base, &mut self.counts);
                sparse::read(&mut reader, &sizes[..octaves.used()], &mut self.changes)?;
                self.locate(&octaves, base)?;
                octaves.classes()
            }
            None => {
                let len = (base.len() / T::BYTES) as u32;
                sparse::read(&mut reader, &[len], &mut self.changes)?;
                core::mem::swap(&mut self.positions, &mut self.changes.ranks);
                [0; 256]
            }
        };
        expect_len(code, reader.finish()?)?;
        self.take_values::<T>(octaves, &by_octave, base)
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

    /// Computes the new elements at the positions. `classes` has the class of each octave.
    fn take_values<T: Word>(
        &mut self,
        octaves: Option<Octaves>,
        classes: &[u8; 256],
        base: &[u8],
    ) -> Result<(), DecodeError> {
        let (changes, mut valid) = (&self.changes, true);
        let mut next: [u32; CLASSES] = core::array::from_fn(|class| changes.start(class));
        self.values.clear();
        self.values.try_reserve(self.positions.len() * T::BYTES)?;
        for &position in &self.positions {
            let old = T::at(base, position as usize);
            let class = octaves.map_or(0, |octaves| classes[usize::from(octaves.of(old.wide()))]);
            let place = &mut next[usize::from(class) % CLASSES];
            let (below, less) = (changes.signs[*place as usize], changes.sizes[*place as usize]);
            *place += 1;
            let units = less.wrapping_add(1);
            let new = old.moved(Difference { below: below != 0, units });
            valid &= new.is_some() & (units != 0);
            new.unwrap_or(old).push(&mut self.values);
        }
        if valid { Ok(()) } else { Err(DecodeError::Corrupt("a difference is too large")) }
    }
}
