//! Parts: up to 2^20 successive elements of a tensor, coded alone.
//!
//! [`Coder::encode`] appends the shortest form of a part, [`Coder::decode`] reads it without
//! changing the base, and [`apply`] then writes the changes over the base. The first byte names the
//! form:
//!
//! | byte | form | the decoder needs the base |
//! |---:|---|---|
//! | 0 | same: nothing changed | no |
//! | 2 | sparse: positions and differences of changed elements | for the values |
//! | 5 | raw: all elements | no |
//!
//! A part has no length of its own: the caller knows the number of elements and of bytes. All
//! functions take elements as little-endian bytes of any alignment.

mod words;

use gradwire_bits::{DecodeError, rice, varint};

use crate::ElementType;
use words::Word;

/// The most elements of a part.
pub const PART: usize = 1 << 20;

const SAME: u8 = 0;
const PORTABLE: u8 = 2;
const RAW: u8 = 5;

/// What the writer of a part may use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// Positions are coded without the base: more bytes, but readers that hold no base can list
    /// them, and several deltas can be folded into one.
    pub portable: bool,
}

/// The content of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Content<'a> {
    /// The elements are those of the base.
    Same,
    /// Some elements differ from the base.
    Changes {
        /// Places of the changed elements within the part, in increasing order.
        positions: &'a [u32],
        /// The new elements at these places, little-endian, one after another.
        values: &'a [u8],
    },
    /// All elements of the part, little-endian.
    Whole(&'a [u8]),
}

/// Encodes and decodes parts. Keeps its working memory: about 8 bytes for each changed element and
/// 256 KiB, so in a steady state it allocates nothing.
#[derive(Debug, Default)]
pub struct Coder {
    positions: Vec<u32>,
    values: Vec<u8>,
    code: Vec<u8>,
}

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
        assert!(new.len() / element.width() <= PART, "a part has at most {PART} elements");
        let Some(base) = base else { return raw(new, out) };
        assert_eq!(base.len(), new.len(), "the base of a part has its length");
        if base == new {
            return out.push(SAME);
        }
        let _ = options;
        match element.width() {
            1 => self.encode_sparse::<u8>(base, new),
            2 => self.encode_sparse::<u16>(base, new),
            4 => self.encode_sparse::<u32>(base, new),
            _ => self.encode_sparse::<u64>(base, new),
        }
        if self.code.len() < new.len() {
            out.push(PORTABLE);
            out.extend_from_slice(&self.code);
        } else {
            raw(new, out);
        }
    }

    fn encode_sparse<T: Word>(&mut self, base: &[u8], new: &[u8]) {
        let pairs = T::all(base).zip(T::all(new)).enumerate();
        let changed = pairs.filter(|(_, (base, new))| base != new);
        self.positions.clear();
        self.code.clear();
        self.values.clear();
        for (position, (base, new)) in changed {
            self.positions.push(position as u32);
            varint::write(T::zigzag(base, new), &mut self.values);
        }
        varint::write(self.positions.len() as u64, &mut self.code);
        let parameter = rice::optimal_parameter(self.positions.len(), new.len() / T::BYTES);
        rice::encode(&self.positions, parameter, &mut self.code);
        self.code.extend_from_slice(&self.values);
    }

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
            (RAW, _) => {
                gradwire_bits::expect_len(code, len * element.width())?;
                Ok(Content::Whole(code))
            }
            (SAME, Some(_)) => {
                gradwire_bits::expect_len(code, 0)?;
                Ok(Content::Same)
            }
            (PORTABLE, Some(base)) => {
                match element.width() {
                    1 => self.decode_sparse::<u8>(base, code)?,
                    2 => self.decode_sparse::<u16>(base, code)?,
                    4 => self.decode_sparse::<u32>(base, code)?,
                    _ => self.decode_sparse::<u64>(base, code)?,
                }
                Ok(Content::Changes { positions: &self.positions, values: &self.values })
            }
            (SAME | PORTABLE, None) => Err(DecodeError::Corrupt("the form of a part needs a base")),
            _ => Err(DecodeError::Corrupt("a part has an unknown form")),
        }
    }

    fn decode_sparse<T: Word>(&mut self, base: &[u8], mut code: &[u8]) -> Result<(), DecodeError> {
        let len = base.len() / T::BYTES;
        let count = varint::read(&mut code)?;
        if count > len as u64 {
            return Err(DecodeError::Corrupt("a part has more changes than elements"));
        }
        self.positions.clear();
        self.values.clear();
        let parameter = rice::optimal_parameter(count as usize, len);
        let used = rice::decode(code, count as usize, len, parameter, &mut self.positions)?;
        code = &code[used..];
        self.values.try_reserve(self.positions.len() * T::BYTES)?;
        for &position in &self.positions {
            let new = T::at(base, position as usize).changed(varint::read(&mut code)?);
            let new = new.ok_or(DecodeError::Corrupt("a change is none, or too large"))?;
            new.push(&mut self.values);
        }
        gradwire_bits::expect_len(code, 0)
    }
}

/// Appends the form `raw`.
fn raw(new: &[u8], out: &mut Vec<u8>) {
    out.push(RAW);
    out.extend_from_slice(new);
}

/// Writes the content of a part over the base.
///
/// # Panics
/// If the content is not that of a part with as many elements as the base.
pub fn apply(element: ElementType, content: &Content<'_>, base: &mut [u8]) {
    match *content {
        Content::Same => {}
        Content::Whole(new) => base.copy_from_slice(new),
        Content::Changes { positions, values } => match element.width() {
            1 => scatter::<1>(positions, values, base),
            2 => scatter::<2>(positions, values, base),
            4 => scatter::<4>(positions, values, base),
            _ => scatter::<8>(positions, values, base),
        },
    }
}

fn scatter<const WIDTH: usize>(positions: &[u32], values: &[u8], base: &mut [u8]) {
    let base = base.as_chunks_mut::<WIDTH>().0;
    for (&position, value) in positions.iter().zip(values.as_chunks::<WIDTH>().0) {
        base[position as usize] = *value;
    }
}

#[cfg(test)]
mod tests;
