//! What the three-valued compressors share: quartic packing by blocks.
//!
//! Quartic packing cuts a tensor into five contiguous fifths and packs one trit of each into a byte
//! (see [`gradwire_bits::quartic`]). Here that is done a block of each fifth at a time, so that
//! digits, gradient and residual stay in the first-level cache between the steps.

use std::ops::Range;

use gradwire_bits::kernels;

use crate::{BLOCK, Source, Workspace};

/// Five times trit 0: the byte of five zeros.
const ZEROS: u8 = 121;

/// The cut of a tensor into five parts of equal length, the last ones short.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fifths {
    elements: usize,
    /// The length of a part, and the number of bytes before any run is coded.
    pub(super) len: usize,
}

impl Fifths {
    pub(super) fn new(elements: usize) -> Self {
        Self { elements, len: elements.div_ceil(5) }
    }

    /// The elements of `part` that bytes `start .. start + len` hold.
    fn range(&self, part: usize, start: usize, len: usize) -> Range<usize> {
        let first = part * self.len + start;
        first.min(self.elements)..(first + len).min(self.elements)
    }

    /// The blocks of bytes, as start and length.
    fn blocks(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let len = self.len;
        (0..len).step_by(BLOCK).map(move |start| (start, BLOCK.min(len - start)))
    }

    /// Quantizes the tensor: `quantize` is given the offset of a piece, the piece, and the digits
    /// to which it appends a trit; `emit` each block of finished bytes.
    pub(super) fn encode(
        &self,
        source: &mut Source<'_>,
        digits: &mut Vec<u8>,
        mut quantize: impl FnMut(usize, &mut [f32], &mut [u8]),
        mut emit: impl FnMut(&[u8]),
    ) {
        digits.resize(BLOCK, 0);
        for (start, len) in self.blocks() {
            let digits = &mut digits[..len];
            digits.fill(0);
            for part in 0..5 {
                let range = self.range(part, start, len);
                let (real, padding) = digits.split_at_mut(range.len());
                source.take(range.start, range.len(), |piece| quantize(range.start, piece, real));
                // Past the end of the tensor stand zero trits, so that they join runs of zeros.
                padding.iter_mut().for_each(|digit| *digit = 3 * *digit + 1);
            }
            emit(digits);
        }
    }

    /// Adds `scale` times the trits to `out`; `fill` yields the bytes in order.
    pub(super) fn decode_add(
        &self,
        workspace: &mut Workspace,
        scale: f32,
        out: &mut [f32],
        mut fill: impl FnMut(&mut [u8]),
    ) {
        workspace.bytes.resize(BLOCK, 0);
        for (start, len) in self.blocks() {
            let digits = &mut workspace.bytes[..len];
            fill(digits);
            for part in 0..5 {
                let range = self.range(part, start, len);
                kernels::ternary_add(&digits[..range.len()], part, scale, &mut out[range]);
            }
        }
    }

    /// Whether the places past the end of the tensor hold zero trits. `last` are the last bytes, as
    /// many as there are up to four: padding is at most four trits, and no further from the end.
    pub(super) fn padding_is_zero(&self, last: &[u8]) -> bool {
        (self.elements..5 * self.len).all(|place| {
            let (part, column) = (place / self.len, place % self.len);
            let byte = last[last.len() - (self.len - column)];
            byte / 3u8.pow(4 - part as u32) % 3 == 1
        })
    }
}

/// The last up to four bytes that run-coded bytes expand to, in order, in the front of the array.
pub(super) fn last_bytes(coded: &[u8], expanded: usize) -> ([u8; 4], usize) {
    let wanted = expanded.min(4);
    let mut last = [0; 4];
    let mut bytes = coded.iter().rev().flat_map(|&byte| match byte {
        0..=242 => std::iter::repeat_n(byte, 1),
        run => std::iter::repeat_n(ZEROS, usize::from(run) - 241),
    });
    for slot in last[..wanted].iter_mut().rev() {
        *slot = bytes.next().unwrap_or(ZEROS);
    }
    (last, wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_cover_every_element_once_in_order() {
        for elements in 0..60 {
            let fifths = Fifths::new(elements);
            let all: Vec<usize> =
                (0..5).flat_map(|part| fifths.range(part, 0, fifths.len)).collect();
            assert_eq!(all, (0..elements).collect::<Vec<_>>());
        }
    }

    #[test]
    fn last_bytes_look_into_runs() {
        assert_eq!(last_bytes(&[7, 243, 9], 4), ([7, 121, 121, 9], 4));
        assert_eq!(last_bytes(&[255], 14), ([121; 4], 4));
        assert_eq!(last_bytes(&[5, 6], 2), ([5, 6, 0, 0], 2));
    }

    #[test]
    fn padding_is_found_in_every_part() {
        // Six elements: two bytes; places 6 to 9 are part 3 and part 4 of both.
        let fifths = Fifths::new(6);
        assert!(fifths.padding_is_zero(&[121, 121]));
        assert!(fifths.padding_is_zero(&[121 + 81, 121 - 9]));
        for wrong in [[122, 121], [121, 120], [124, 121], [121, 118]] {
            assert!(!fifths.padding_is_zero(&wrong), "{wrong:?}");
        }
    }
}
