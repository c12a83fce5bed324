//! Lossless code of floats and integers, in planes of bytes.
//!
//! Elements have 1, 2, 4 or 8 bytes, and are opaque: NaN, −0 and every other pattern of bits
//! return. Plane k has byte k of each element, from the lowest up. In floats the sign is moved
//! below the mantissa before, so the uppermost plane begins with the exponent. Exponents of
//! trained weights and of gradients take 2.6 bits of 8; signs and mantissas are noise.
//!
//! Each plane has the shortest of four forms:
//! - 0, **raw**: its bytes.
//! - 1, **constant**: the byte that all of its bytes equal.
//! - 2, **Huffman**: a [Huffman code](crate::huffman) of all 256 bytes: its code lengths, and one
//!   stream, or, from 4096 elements on, four.
//! - 3, **tANS**: a [tANS code](crate::tans) of all 256 bytes, if it saves at least a sixteenth of
//!   Huffman's length, because it is slower.
//!
//! A block is the forms of its planes, two bits each from the lowest up, in one byte, or two for
//! eight planes, and then the planes. A block without elements has no bytes.
//!
//! Range: any number of elements; blocks of 2^16 to 2^20 are the fastest. Size: for normal weights
//! 66.2 % of bfloat16, 83.1 % of binary32, and 82 % of E4M3 that a scale spreads over its range;
//! never more than the elements and 2 bytes. Cost: a pass over the elements, and one to three over
//! each plane. A plane whose bytes look random in a sample of 4096 is raw without any further look.
//!
//! ```
//! use gradwire_bits::planes::{Coder, Layout};
//!
//! let weights: Vec<u8> = (0..5000).flat_map(|i| (0.01 + i as f32 / 1e4).to_le_bytes()).collect();
//! let (mut coder, mut bytes) = (Coder::default(), Vec::new());
//! coder.encode(Layout::floats(4), &weights, &mut bytes);
//! assert!(bytes.len() < weights.len() * 80 / 100);
//!
//! let mut back = vec![0; weights.len()];
//! assert_eq!(coder.decode(Layout::floats(4), &bytes, &mut back)?, bytes.len());
//! assert_eq!(back, weights);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

mod plane;

use alloc::vec::Vec;

use crate::reserve::{room, try_room};
use crate::{DecodeError, kernels, try_resize};
use plane::{Form, PlaneCoder};

/// The most bytes of an element.
const WIDEST: usize = 8;
/// Elements that are split into planes at once. They stay in the first-level cache.
const CHUNK: usize = 2048;

/// The bytes of an element, and whether it is a float.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    width: usize,
    /// The number of bits by which elements are rotated to the left.
    rotation: u32,
}

impl Layout {
    /// Integers of `width` bytes.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8.
    pub const fn integers(width: usize) -> Self {
        assert!(matches!(width, 1 | 2 | 4 | 8), "elements have 1, 2, 4 or 8 bytes");
        Self { width, rotation: 0 }
    }

    /// Floats of `width` bytes: a sign bit, then the exponent, then the mantissa.
    ///
    /// # Panics
    /// If the width is not 1, 2, 4 or 8.
    pub const fn floats(width: usize) -> Self {
        Self { rotation: 1, ..Self::integers(width) }
    }

    /// Bytes of an element.
    pub const fn width(self) -> usize {
        self.width
    }

    /// Bytes in front of the planes.
    const fn header(self) -> usize {
        self.width.div_ceil(4)
    }

    /// The most bytes of a block of `len` elements.
    pub const fn max_len(self, len: usize) -> usize {
        len.saturating_mul(self.width).saturating_add(self.header())
    }

    /// The forms of the planes at the start of a block; raw for planes that do not exist.
    fn forms(self, bytes: &[u8]) -> Result<[Form; WIDEST], DecodeError> {
        let header = bytes.get(..self.header()).ok_or(DecodeError::Truncated)?;
        let mut forms = [Form::Raw; WIDEST];
        for (forms, byte) in forms.chunks_exact_mut(4).zip(header) {
            for (at, form) in forms.iter_mut().enumerate() {
                *form = Form::of(byte >> (2 * at));
            }
        }
        if forms[self.width..].iter().any(|&form| form != Form::Raw) {
            return Err(DecodeError::Corrupt("a form stands for a plane that does not exist"));
        }
        Ok(forms)
    }

    /// Writes the planes of elements, one after the other.
    fn split(self, elements: &[u8], planes: &mut [u8]) {
        let rotation = self.rotation;
        match self.width {
            2 => split(elements, planes, |some, planes| kernels::split_2(some, rotation, planes)),
            4 => split(elements, planes, |some, planes| kernels::split_4(some, rotation, planes)),
            _ => split(elements, planes, |some, planes| kernels::split_8(some, rotation, planes)),
        }
    }

    /// Writes elements of planes; planes that do not exist are ignored.
    fn join(self, planes: [&[u8]; WIDEST], elements: &mut [u8]) {
        let [a, b, c, d, ..] = planes;
        match self.width {
            2 => kernels::join_2([a, b], self.rotation, elements.as_chunks_mut().0),
            4 => kernels::join_4([a, b, c, d], self.rotation, elements.as_chunks_mut().0),
            _ => kernels::join_8(planes, self.rotation, elements.as_chunks_mut().0),
        }
    }
}

/// Splits elements into planes, chunk by chunk.
fn split<const WIDTH: usize>(
    elements: &[u8],
    planes: &mut [u8],
    kernel: impl Fn(&[[u8; WIDTH]], [&mut [u8]; WIDTH]),
) {
    let elements = elements.as_chunks().0;
    let mut planes = planes.chunks_exact_mut(elements.len());
    let mut planes: [&mut [u8]; WIDTH] =
        core::array::from_fn(|_| planes.next().expect("there are as many planes as bytes"));
    for some in elements.chunks(CHUNK) {
        let parts = planes.each_mut().map(|plane| {
            plane.split_off_mut(..some.len()).expect("a plane has a byte for each element")
        });
        kernel(some, parts);
    }
}

/// Encodes and decodes blocks. It keeps its memory, so a steady state allocates nothing: the bytes
/// of the largest block, four bytes for each of its elements if a plane was in tANS, and some
/// tables.
#[derive(Debug, Default, Clone)]
pub struct Coder {
    /// The planes of a block, one after the other.
    planes: Vec<u8>,
    plane: PlaneCoder,
}

impl Coder {
    /// Reserves memory for blocks of up to `len` elements, so [`encode`](Self::encode) allocates
    /// nothing but for its output, whatever the forms of their planes.
    pub fn reserve(&mut self, layout: Layout, len: usize) {
        if layout.width > 1 {
            room(&mut self.planes, layout.width.saturating_mul(len));
        }
        self.plane.reserve(len);
    }

    /// Reserves memory for blocks of up to `len` elements, so [`decode`](Self::decode) allocates
    /// nothing, whatever the forms of their planes.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_reserve(&mut self, layout: Layout, len: usize) -> Result<(), DecodeError> {
        if layout.width > 1 {
            try_room(&mut self.planes, layout.width.saturating_mul(len))?;
        }
        self.plane.try_reserve(len)
    }

    /// Appends a block of little-endian elements.
    ///
    /// # Panics
    /// If the last element is incomplete.
    pub fn encode(&mut self, layout: Layout, elements: &[u8], out: &mut Vec<u8>) {
        assert!(elements.len().is_multiple_of(layout.width), "elements are complete");
        if elements.is_empty() {
            return;
        }
        let Self { planes, plane } = self;
        let planes = if layout.width == 1 {
            elements
        } else {
            planes.resize(elements.len(), 0);
            layout.split(elements, planes);
            planes
        };
        let start = out.len();
        out.resize(start + layout.header(), 0);
        for (at, bytes) in planes.chunks_exact(elements.len() / layout.width).enumerate() {
            let form = plane.encode(bytes, out);
            out[start + at / 4] |= (form as u8) << (2 * (at % 4));
        }
    }

    /// Fills `elements` from the block at the start of `bytes`, and returns the number of bytes
    /// read.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt` or `OutOfMemory`. The content of `elements` is then unspecified.
    ///
    /// # Panics
    /// If the last element is incomplete.
    pub fn decode(
        &mut self,
        layout: Layout,
        bytes: &[u8],
        elements: &mut [u8],
    ) -> Result<usize, DecodeError> {
        assert!(elements.len().is_multiple_of(layout.width), "elements are complete");
        if elements.is_empty() {
            return Ok(0);
        }
        let Self { planes, plane } = self;
        let forms = layout.forms(bytes)?;
        let mut rest = &bytes[layout.header()..];
        if layout.width == 1 {
            plane.decode(forms[0], &mut rest, elements)?;
            return Ok(bytes.len() - rest.len());
        }
        try_resize(planes, elements.len(), 0)?;
        let len = elements.len() / layout.width;
        // Raw planes are read where they are.
        let mut raw = [None; WIDEST];
        for (at, decoded) in planes[..elements.len()].chunks_exact_mut(len).enumerate() {
            match forms[at] {
                Form::Raw => raw[at] = Some(rest.split_off(..len).ok_or(DecodeError::Truncated)?),
                form => plane.decode(form, &mut rest, decoded)?,
            }
        }
        let decoded = planes.chunks_exact(len);
        let mut sources: [&[u8]; WIDEST] = [&[]; WIDEST];
        for ((source, raw), decoded) in sources.iter_mut().zip(raw).zip(decoded).take(layout.width)
        {
            *source = raw.unwrap_or(decoded);
        }
        layout.join(sources, elements);
        Ok(bytes.len() - rest.len())
    }
}

#[cfg(test)]
mod tests;
