//! Decoding of one stream with the table of codes.

use super::Code;
use super::symbol::Symbol;
use crate::kernels::Singles;
use crate::{BitReader, DecodeError};

impl Code {
    /// Fills `out` with symbols decoded from the start of `bytes`, and returns the number of bytes
    /// read. Symbols of one byte lose their upper bits if they are larger. The code must come from
    /// [`read`](Self::read).
    ///
    /// # Errors
    /// `Truncated`, or `Corrupt` for padding that is not zero, and for symbols of an empty
    /// alphabet. The content of `out` is then unspecified.
    ///
    /// # Panics
    /// If the code was fitted instead of read.
    pub fn decode<S: Symbol>(&self, bytes: &[u8], out: &mut [S]) -> Result<usize, DecodeError> {
        if !self.has_stream(bytes, out)? {
            return Ok(0);
        }
        let mut reader = BitReader::new(bytes);
        self.decode_stream(&mut reader, out)?;
        reader.finish()
    }

    /// Whether there is a stream to fill `out` from; if not, fills in the symbols.
    pub(super) fn has_stream<S: Symbol>(
        &self,
        bytes: &[u8],
        out: &mut [S],
    ) -> Result<bool, DecodeError> {
        if let Some(symbol) = self.single {
            out.fill(S::at(symbol));
            return Ok(false);
        }
        if out.is_empty() {
            return Ok(false);
        }
        if self.longest == 0 {
            return Err(DecodeError::Corrupt("symbols of an empty alphabet"));
        }
        assert!(!self.table.is_empty(), "decoding needs a code from `read`, not from `fit`");
        // A symbol takes at least a bit.
        if out.len() > bytes.len().saturating_mul(8) {
            return Err(DecodeError::Truncated);
        }
        Ok(true)
    }

    /// Decodes symbols one stream after another.
    pub(super) fn decode_stream<S: Symbol>(
        &self,
        reader: &mut BitReader<'_>,
        out: &mut [S],
    ) -> Result<(), DecodeError> {
        match self.fixed_table() {
            Some(table) => {
                decode_groups::<S, 4>(reader, out, |bits| table[bits as usize % table.len()])
            }
            None => decode_groups::<S, 3>(reader, out, |bits| {
                self.table[bits as usize & (self.table.len() - 1)]
            }),
        }
    }

    /// The table, if no code is longer than its index.
    pub(super) fn fixed_table(&self) -> Option<&Singles> {
        self.table.as_slice().try_into().ok()
    }
}

/// Decodes groups of symbols that fit in a window, and then the rest.
#[inline(always)]
fn decode_groups<S: Symbol, const GROUP: usize>(
    reader: &mut BitReader<'_>,
    out: &mut [S],
    entry: impl Fn(u64) -> u32,
) -> Result<(), DecodeError> {
    let (groups, rest) = out.as_chunks_mut::<GROUP>();
    for group in groups {
        decode_group(reader, group, &entry);
        reader.check()?;
    }
    for symbol in rest {
        decode_group(reader, core::array::from_mut(symbol), &entry);
    }
    reader.check()
}

#[inline(always)]
fn decode_group<S: Symbol, const GROUP: usize>(
    reader: &mut BitReader<'_>,
    group: &mut [S; GROUP],
    entry: impl Fn(u64) -> u32,
) {
    let mut bits = reader.peek();
    let mut symbols = [S::at(0); GROUP];
    let mut width = 0;
    for symbol in &mut symbols {
        let entry = entry(bits);
        *symbol = S::at((entry >> 16) as u16);
        // Shifts by the lowest six bits of the entry: its length.
        bits = bits.wrapping_shr(entry);
        width += entry & 0xff;
    }
    *group = symbols;
    reader.skip(width);
}
