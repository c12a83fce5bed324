//! Whole parts: in planes, or raw.

use gradwire_bits::planes::Layout;
use gradwire_bits::{DecodeError, expect_len, try_resize};

use super::coder::Coder;
use super::form;
use crate::ElementType;

impl Coder {
    /// Appends the shorter one of the forms dense and raw.
    pub(super) fn encode_whole(&mut self, element: ElementType, new: &[u8], out: &mut Vec<u8>) {
        let start = out.len();
        out.push(form::DENSE);
        self.planes.encode(layout(element), new, out);
        if out.len() - start > new.len() {
            out.truncate(start);
            out.push(form::RAW);
            out.extend_from_slice(new);
        }
    }

    /// Decodes the form dense of `len` elements.
    pub(super) fn decode_dense(
        &mut self,
        element: ElementType,
        len: usize,
        code: &[u8],
    ) -> Result<(), DecodeError> {
        try_resize(&mut self.whole, len * element.width(), 0)?;
        let used = self.planes.decode(layout(element), code, &mut self.whole)?;
        expect_len(code, used)
    }
}

fn layout(element: ElementType) -> Layout {
    match element.exponent_bits() {
        0 => Layout::integers(element.width()),
        _ => Layout::floats(element.width()),
    }
}
