//! Parts: up to 2^20 successive elements of a tensor, coded alone.
//!
//! [`Coder::encode`] appends the shortest form of a part, [`Coder::decode`] reads it without
//! changing the base, and [`apply`] then writes the changes over the base. The first byte names the
//! form:
//!
//! | byte | form | the decoder needs the base |
//! |---:|---|---|
//! | 0 | same: nothing changed | no |
//! | 1 | sparse in classes: ranks within classes of the base's octaves, and differences | yes |
//! | 2 | sparse, portable: positions and differences of changed elements | for the values |
//! | 3 | difference: the difference of every element, in classes of octaves | yes |
//! | 4 | dense: all elements, in [planes](gradwire_bits::planes) | no |
//! | 5 | raw: all elements | no |
//!
//! A part has no length of its own: the caller knows the number of elements and of bytes. All
//! functions take elements as little-endian bytes of any alignment. The code of a part depends on
//! nothing but the part, its base and the options.

mod coder;
mod compare;
mod cuts;
mod decode;
mod dense;
mod difference;
mod elias;
mod encode;
mod estimate;
mod segments;
mod sparse;
mod steps;
mod words;

use gradwire_bits::kernels;

use crate::ElementType;

pub use coder::{Coder, Content, Options};

/// The most elements of a part.
pub const PART: usize = 1 << 20;

/// The first byte of a part.
mod form {
    pub(super) const SAME: u8 = 0;
    pub(super) const CLASSES: u8 = 1;
    pub(super) const PORTABLE: u8 = 2;
    pub(super) const DIFFERENCE: u8 = 3;
    pub(super) const DENSE: u8 = 4;
    pub(super) const RAW: u8 = 5;
}

/// Whether a code gives all elements of its part, and may be far shorter than these.
pub(crate) fn is_whole(code: &[u8]) -> bool {
    matches!(code.first(), Some(&(form::DIFFERENCE | form::DENSE)))
}

/// Writes the content of a part over the base.
///
/// # Panics
/// If the content is not that of a part with as many elements as the base.
pub fn apply(element: ElementType, content: &Content<'_>, base: &mut [u8]) {
    match *content {
        Content::Same => {}
        Content::Whole(new) => base.copy_from_slice(new),
        Content::Changes { positions, values } => {
            kernels::scatter(element.width(), positions, values, base);
        }
    }
}

#[cfg(test)]
mod tests;
