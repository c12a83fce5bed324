//! The device form of sparse messages.

use gradwire_bits::DecodeError;

use crate::wire::fields;
use crate::wire::positions::make_room;

/// Positions and values of a sparse message, after numbers that belong to the whole message.
///
/// The bytes are `LEVELS` × f32, the number n of elements as u32, n increasing positions as u32, n
/// values as f32.
pub(crate) struct Pairs<'a, const LEVELS: usize> {
    pub(crate) levels: [f32; LEVELS],
    positions: &'a [[u8; 4]],
    values: &'a [[u8; 4]],
}

impl<'a, const LEVELS: usize> Pairs<'a, LEVELS> {
    /// Reads a form of at most `most` of `elements` elements.
    pub(crate) fn read(
        mut form: &'a [u8],
        most: usize,
        elements: usize,
    ) -> Result<Self, DecodeError> {
        let mut levels = [0.0; LEVELS];
        for level in &mut levels {
            *level = fields::take_scale(&mut form)?;
        }
        let count = fields::take(&mut form, 4)?;
        let count = u32::from_le_bytes([count[0], count[1], count[2], count[3]]) as usize;
        if count > most {
            return Err(DecodeError::Corrupt("there are more pairs than the configuration allows"));
        }
        fields::expect_len(form, 8 * count)?;
        let (positions, values) = form.as_chunks().0.split_at(count);
        let at = |bytes: &[u8; 4]| u32::from_le_bytes(*bytes);
        let increasing = positions.is_sorted_by(|a, b| at(a) < at(b));
        if !increasing || positions.last().is_some_and(|last| at(last) as usize >= elements) {
            return Err(DecodeError::Corrupt("positions are not increasing and within the tensor"));
        }
        Ok(Self { levels, positions, values })
    }

    /// The positions.
    pub(crate) fn positions(&self) -> impl Iterator<Item = u32> {
        self.positions.iter().map(|bytes| u32::from_le_bytes(*bytes))
    }

    /// Replaces two lists by the positions and values.
    pub(crate) fn copy_to(
        &self,
        positions: &mut Vec<u32>,
        values: &mut Vec<f32>,
    ) -> Result<(), DecodeError> {
        let count = self.positions.len();
        make_room(count, usize::MAX, positions)?;
        make_room(count, usize::MAX, values)?;
        positions.extend(self.positions());
        values.extend(self.values.iter().map(|bytes| f32::from_le_bytes(*bytes)));
        Ok(())
    }
}

/// Appends a form of these positions and as many of the values.
pub(crate) fn write(
    levels: &[f32],
    positions: &[u32],
    values: impl Iterator<Item = f32>,
    form: &mut Vec<u8>,
) -> Result<(), DecodeError> {
    form.try_reserve(4 * levels.len() + 4 + 8 * positions.len())?;
    fields::put_f32s(levels, form);
    form.extend_from_slice(&(positions.len() as u32).to_le_bytes());
    form.extend(positions.iter().flat_map(|position| position.to_le_bytes()));
    form.extend(values.take(positions.len()).flat_map(f32::to_le_bytes));
    Ok(())
}
