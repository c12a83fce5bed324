//! Block-scaled formats: 4- or 8-bit floats that are multiples of the scale of their block.
//!
//! Blocks follow each other, and the last may be shorter. A block has a byte for its scale; an
//! element has a code of 8 bits, or of 4 bits, the first of each two in the low half of a byte.

use super::minifloat::{E2m1, E4m3, E5m2, Minifloat};
use super::{cases, kernel};

/// A block-scaled format.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum BlockScaled {
    /// Blocks of 32 E4M3 elements; the scale is a power of two, as E8M0.
    Mxfp8E4m3,
    /// Blocks of 32 E5M2 elements; the scale is a power of two, as E8M0.
    Mxfp8E5m2,
    /// Blocks of 32 E2M1 elements; the scale is a power of two, as E8M0.
    Mxfp4,
    /// Blocks of 16 E2M1 elements; the scale is E4M3, times the scale of the tensor.
    Nvfp4 {
        /// The scale of the tensor, at least 0.
        scale: f32,
    },
}

impl BlockScaled {
    /// The number of elements of a block.
    pub const fn block(self) -> usize {
        match self {
            Self::Nvfp4 { .. } => NV_BLOCK,
            _ => MX_BLOCK,
        }
    }

    /// The bits of an element.
    pub const fn bits(self) -> usize {
        match self {
            Self::Mxfp8E4m3 | Self::Mxfp8E5m2 => 8,
            Self::Mxfp4 | Self::Nvfp4 { .. } => 4,
        }
    }

    /// The largest byte of a scale: finite elements have no larger one, and with a larger one
    /// decoded elements might overflow.
    pub const fn largest_scale(self) -> u8 {
        match self {
            Self::Mxfp8E4m3 => Mx::<E4m3>::LARGEST,
            Self::Mxfp8E5m2 => Mx::<E5m2>::LARGEST,
            Self::Mxfp4 => Mx::<E2m1>::LARGEST,
            Self::Nvfp4 { .. } => 0x7e,
        }
    }

    /// The code of the largest finite element. Greater codes, without the sign, are infinity and
    /// NaN.
    pub const fn largest_code(self) -> u8 {
        match self {
            Self::Mxfp8E4m3 => 0x7e,
            Self::Mxfp8E5m2 => 0x7b,
            Self::Mxfp4 | Self::Nvfp4 { .. } => 7,
        }
    }

    /// The bytes of the codes of `elements` elements.
    const fn code_bytes(self, elements: usize) -> usize {
        match self.bits() {
            8 => elements,
            _ => elements.div_ceil(2),
        }
    }
}

const MX_BLOCK: usize = 32;
const NV_BLOCK: usize = 16;

/// The scales of a format.
trait Scales<const BLOCK: usize>: Copy {
    type Element: Minifloat;

    /// The byte of a block's scale, from the largest absolute value.
    fn of_largest(self, largest: f32) -> u8;

    /// The scale of a byte.
    fn scale(self, byte: u8) -> f32;

    /// Its inverse, or 0 if the scale is 0.
    fn inverse(self, byte: u8) -> f32;
}

/// The scale of byte b is 2^(b − 127).
#[derive(Clone, Copy)]
struct Mx<E>(E);

impl<E: Minifloat> Mx<E> {
    /// The exponent of the largest element.
    const EXPONENT: u32 = (E::MOST.to_bits() >> 23) - 127;
    /// The byte for a largest absolute value of 2^127 or more.
    const LARGEST: u8 = 254 - Self::EXPONENT as u8;
}

impl<E: Minifloat> Scales<MX_BLOCK> for Mx<E> {
    type Element = E;

    #[inline(always)]
    fn of_largest(self, largest: f32) -> u8 {
        (largest.to_bits() >> 23).saturating_sub(Self::EXPONENT) as u8
    }

    #[inline(always)]
    fn scale(self, byte: u8) -> f32 {
        // 2^−127 is subnormal.
        f32::from_bits(if byte == 0 { 1 << 22 } else { u32::from(byte) << 23 })
    }

    #[inline(always)]
    fn inverse(self, byte: u8) -> f32 {
        f32::from_bits((254 - u32::from(byte)) << 23)
    }
}

/// The scale of a byte is its number in E4M3, times the scale of the tensor.
#[derive(Clone, Copy)]
struct Nv(f32);

impl Scales<NV_BLOCK> for Nv {
    type Element = E2m1;

    #[inline(always)]
    fn of_largest(self, largest: f32) -> u8 {
        let (byte, _) = E4m3::nearest(largest / (E2m1::MOST * self.0), 1.0);
        if (1.0 / self.scale(byte)).is_finite() { byte } else { 0 }
    }

    #[inline(always)]
    fn scale(self, byte: u8) -> f32 {
        self.0 * E4m3::number(byte)
    }

    #[inline(always)]
    fn inverse(self, byte: u8) -> f32 {
        if byte == 0 { 0.0 } else { 1.0 / self.scale(byte) }
    }
}

/// Runs an expression with the scales of a format.
macro_rules! with_scales {
    ($format:expr, $scales:ident => $run:expr) => {
        match $format {
            BlockScaled::Mxfp8E4m3 => with_scales!(@ Mx(E4m3), $scales => $run),
            BlockScaled::Mxfp8E5m2 => with_scales!(@ Mx(E5m2), $scales => $run),
            BlockScaled::Mxfp4 => with_scales!(@ Mx(E2m1), $scales => $run),
            BlockScaled::Nvfp4 { scale } => with_scales!(@ Nv(scale), $scales => $run),
        }
    };
    (@ $value:expr, $scales:ident => $run:expr) => {{
        let $scales = $value;
        $run
    }};
}

kernel! {
    /// Writes the scale of each block and the code of each element, the nearest, and leaves
    /// `value − decoded` in `values`; NaN and infinity may get any code. The half of a byte behind
    /// an odd last code of 4 bits is 0.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn blocks_residual(
        values: &mut [f32],
        format: BlockScaled,
        scales: &mut [u8],
        codes: &mut [u8],
    ) {
        check(format, values.len(), scales, codes);
        with_scales!(format, all => encode(all, values, scales, codes));
    }
}

kernel! {
    /// Adds `weight` times each decoded element to `out`. Codes and scales are up to the largest of
    /// the format.
    ///
    /// # Panics
    /// If the lengths do not fit.
    pub fn blocks_add(
        scales: &[u8],
        codes: &[u8],
        format: BlockScaled,
        weight: f32,
        out: &mut [f32],
    ) {
        check(format, out.len(), scales, codes);
        with_scales!(format, all => add(all, scales, codes, weight, out));
    }
}

kernel! {
    /// The largest byte without its highest bit; 0 for an empty slice.
    pub fn max_without_sign(bytes: &[u8]) -> u8 {
        bytes.iter().fold(0, |largest, &byte| largest.max(byte & 0x7f))
    }
}

fn check(format: BlockScaled, elements: usize, scales: &[u8], codes: &[u8]) {
    assert_eq!(scales.len(), elements.div_ceil(format.block()), "a scale for each block");
    assert_eq!(codes.len(), format.code_bytes(elements), "a code for each element");
}

/// Blocks of a group. The numbers of all blocks of a group are computed together, by vectors.
const GROUP: usize = 32;
/// The most elements of a group.
const MOST: usize = GROUP * MX_BLOCK;

#[inline(always)]
fn encode<const BLOCK: usize, S: Scales<BLOCK>>(
    all: S,
    values: &mut [f32],
    scales: &mut [u8],
    codes: &mut [u8],
) {
    let bytes = GROUP * bytes_of_block::<BLOCK, S>();
    let groups = values.chunks_mut(GROUP * BLOCK).zip(codes.chunks_mut(bytes));
    for ((values, codes), places) in groups.zip(scales.chunks_mut(GROUP)) {
        let (mut bytes, mut scales, mut inverses) = ([0; GROUP], [0.0; GROUP], [0.0; GROUP]);
        let largest = largest_of_blocks::<BLOCK>(values);
        for (at, &largest) in largest.iter().enumerate() {
            bytes[at] = all.of_largest(f32::from_bits(largest));
            (scales[at], inverses[at]) = (all.scale(bytes[at]), all.inverse(bytes[at]));
        }
        places.copy_from_slice(&bytes[..places.len()]);
        if S::Element::BITS == 8 {
            round_blocks::<BLOCK, S>(values, &scales, &inverses, codes);
        } else {
            let mut halves = [0; MOST];
            round_blocks::<BLOCK, S>(values, &scales, &inverses, &mut halves);
            for (byte, pair) in codes.iter_mut().zip(halves.as_chunks().0) {
                let pair = u16::from_le_bytes(*pair);
                *byte = (pair | pair >> 4) as u8;
            }
        }
    }
}

/// The bits of the largest absolute value of each block of a group; 0 for missing blocks.
#[inline(always)]
fn largest_of_blocks<const BLOCK: usize>(values: &[f32]) -> [u32; GROUP] {
    let of = |block: &[f32]| block.iter().fold(0, |most, x| (x.to_bits() & 0x7fff_ffff).max(most));
    let mut largest = [0; GROUP];
    let (blocks, rest) = values.as_chunks::<BLOCK>();
    blocks.iter().zip(&mut largest).for_each(|(block, largest)| *largest = of(block));
    if let Some(last) = largest.get_mut(blocks.len()) {
        *last = of(rest);
    }
    largest
}

/// Writes a byte with the code of each element of a group, and leaves the errors.
#[inline(always)]
fn round_blocks<const BLOCK: usize, S: Scales<BLOCK>>(
    values: &mut [f32],
    scales: &[f32; GROUP],
    inverses: &[f32; GROUP],
    codes: &mut [u8],
) {
    let round = |block: &mut [f32], codes: &mut [u8], at: usize| {
        for (x, code) in block.iter_mut().zip(codes) {
            let (nearest, number) = S::Element::nearest(*x, inverses[at]);
            *code = nearest;
            *x -= number * scales[at];
        }
    };
    let (blocks, rest) = values.as_chunks_mut::<BLOCK>();
    let count = blocks.len();
    let (whole, last) = codes.as_chunks_mut::<BLOCK>();
    for (at, (block, codes)) in blocks.iter_mut().zip(whole.iter_mut()).enumerate() {
        round(block, codes, at);
    }
    if !rest.is_empty() {
        round(rest, whole.get_mut(count).map_or(last, |codes| &mut codes[..]), count);
    }
}

#[inline(always)]
fn add<const BLOCK: usize, S: Scales<BLOCK>>(
    all: S,
    scales: &[u8],
    codes: &[u8],
    weight: f32,
    out: &mut [f32],
) {
    let bytes = GROUP * bytes_of_block::<BLOCK, S>();
    let groups = out.chunks_mut(GROUP * BLOCK).zip(codes.chunks(bytes));
    for ((out, codes), bytes) in groups.zip(scales.chunks(GROUP)) {
        let mut scales = [0.0; GROUP];
        bytes.iter().zip(&mut scales).for_each(|(&byte, scale)| *scale = all.scale(byte));
        if S::Element::BITS == 8 {
            add_blocks::<BLOCK, S>(codes, &scales, weight, out);
        } else {
            let mut halves = [0; MOST];
            for (pair, &byte) in halves.as_chunks_mut::<2>().0.iter_mut().zip(codes) {
                *pair = [byte & 15, byte >> 4];
            }
            add_blocks::<BLOCK, S>(&halves, &scales, weight, out);
        }
    }
}

/// Adds the elements of a group, whose codes are bytes.
#[inline(always)]
fn add_blocks<const BLOCK: usize, S: Scales<BLOCK>>(
    codes: &[u8],
    scales: &[f32; GROUP],
    weight: f32,
    out: &mut [f32],
) {
    for ((out, codes), scale) in out.chunks_mut(BLOCK).zip(codes.chunks(BLOCK)).zip(scales) {
        for (out, &code) in out.iter_mut().zip(codes) {
            *out += weight * (S::Element::number(code) * scale);
        }
    }
}

/// The bytes of the codes of a whole block.
const fn bytes_of_block<const BLOCK: usize, S: Scales<BLOCK>>() -> usize {
    BLOCK * S::Element::BITS as usize / 8
}

/// The formats, with a scale for `nvfp4` from the input.
#[cfg(any(test, feature = "testing"))]
fn formats(x: f32) -> [BlockScaled; 4] {
    let scale = if x.is_finite() { x.abs() } else { 1.0 };
    let nv = BlockScaled::Nvfp4 { scale };
    [BlockScaled::Mxfp8E4m3, BlockScaled::Mxfp8E5m2, BlockScaled::Mxfp4, nv]
}

cases![
    ("blocks_residual", |input, output| {
        for format in super::formats(input.x) {
            let mut values = input.floats();
            let mut scales = input.elements(input.len.div_ceil(format.block()), |_| 9);
            let mut codes = input.elements((input.len * format.bits()).div_ceil(8), |_| 9);
            blocks_residual(&mut values, format, &mut scales, &mut codes);
            output.computed(&values);
            output.bits(scales.iter().chain(&*codes).copied());
        }
    }),
    ("blocks_add", |input, output| {
        for format in super::formats(input.x) {
            let scales =
                input.elements(input.len.div_ceil(format.block()), |at| input.word(at) as u8);
            let codes = (input.len * format.bits()).div_ceil(8);
            let codes = input.elements(codes, |at| (input.word(at) >> 16) as u8);
            let mut out = input.more();
            blocks_add(&scales, &codes, format, input.y, &mut out);
            output.computed(&out);
        }
    }),
    ("max_without_sign", |input, output| {
        output.bits(input.bytes().windows(5).map(max_without_sign));
    }),
];

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    /// The scales and codes of values, and what they leave.
    fn encoded(format: BlockScaled, values: &[f32]) -> (Vec<u8>, Vec<u8>, Vec<f32>) {
        let mut left = values.to_vec();
        let mut scales = alloc::vec![9; values.len().div_ceil(format.block())];
        let mut codes = alloc::vec![9; format.code_bytes(values.len())];
        blocks_residual(&mut left, format, &mut scales, &mut codes);
        (scales, codes, left)
    }

    #[test]
    fn blocks_by_hand() {
        // The largest is 300 = 1.17·2^8, so the scale is 1. 17 is between 16 and 18, and 16 is
        // even; 2^−10 is between 0 and 2^−9.
        let values = [300.0, -17.0, 2f32.powi(-10), 1.0, -0.0];
        let (scales, codes, left) = encoded(BlockScaled::Mxfp8E4m3, &values);
        assert_eq!((&scales[..], &codes[..]), (&[127][..], &[0x79, 0xd8, 0, 0x38, 0x80][..]));
        assert_eq!(left, [12.0, -1.0, 2f32.powi(-10), 0.0, 0.0]);
        // The scale is 2^−7: 300 becomes 320, and −18 is between −16 and −20; −16 is even.
        let (scales, codes, left) = encoded(BlockScaled::Mxfp8E5m2, &[300.0, 20.0, -18.0]);
        assert_eq!((&scales[..], &codes[..]), (&[120][..], &[0x79, 0x69, 0xe8][..]));
        assert_eq!(left, [-20.0, 0.0, -2.0]);
        // The scale is 2: 7.5 saturates to 6, −2.5 becomes −2, 0.75 becomes 1, 0.25 becomes 0.
        let (scales, codes, left) = encoded(BlockScaled::Mxfp4, &[15.0, -5.0, 1.5, 0.5, -1.0]);
        assert_eq!((&scales[..], &codes[..]), (&[128][..], &[0xc7, 0x02, 0x09][..]));
        assert_eq!(left, [3.0, -1.0, -0.5, 0.5, 0.0]);
        // 12 of 6·0.25 is 8, so the scale is 2; in a second block 0.1 of 1.5 becomes 0.0703125.
        let mut values = [0.0; 17];
        (values[0], values[3], values[16]) = (12.0, -5.0, 0.1);
        let (scales, codes, left) = encoded(BlockScaled::Nvfp4 { scale: 0.25 }, &values);
        assert_eq!((&scales[..], &codes[..3]), (&[0x50, 0x19][..], &[0x07, 0xc0, 0][..]));
        assert_eq!(codes[7..], [0, 0x07]);
        assert_eq!((left[0], left[3], left[16]), (0.0, -1.0, 0.1 - 6.0 * 0.25 * 0.070_312_5));
    }

    #[test]
    fn what_is_left_is_what_is_not_decoded() {
        let formats = [BlockScaled::Mxfp8E4m3, BlockScaled::Mxfp8E5m2, BlockScaled::Mxfp4];
        for format in formats.into_iter().chain([BlockScaled::Nvfp4 { scale: 1e-3 }]) {
            crate::kernels::samples::sweep(|values| {
                let (scales, codes, left) = encoded(format, values);
                assert!(scales.iter().all(|&scale| scale <= format.largest_scale()));
                let mut decoded = alloc::vec![0.0; values.len()];
                blocks_add(&scales, &codes, format, 1.0, &mut decoded);
                let mut halves = alloc::vec![0.0; values.len()];
                blocks_add(&scales, &codes, format, 0.5, &mut halves);
                for (((x, y), half), left) in values.iter().zip(decoded).zip(halves).zip(left) {
                    assert_eq!((x - y, y / 2.0), (left, half), "{format:?}");
                }
            });
        }
    }

    #[test]
    fn the_ends_of_the_range() {
        let formats = [BlockScaled::Mxfp8E4m3, BlockScaled::Mxfp8E5m2, BlockScaled::Mxfp4];
        for format in formats {
            // The largest saturates; the scale of zeros is the least.
            let largest = format.largest_scale();
            let (scales, _, left) = encoded(format, &[f32::MAX, f32::MIN]);
            assert!(scales == [largest] && left[0] > 0.0 && left[0] < f32::MAX / 4.0);
            let (scales, codes, _) = encoded(format, &[0.0, -0.0]);
            assert_eq!(scales, [0]);
            let signs = if format.bits() == 8 { &[0, 0x80][..] } else { &[0x80] };
            assert_eq!(codes, signs);
            // The least scale is 2^−127, and all elements are exact multiples of it.
            let (scales, _, left) = encoded(format, &[2f32.powi(-127), 3.0 * 2f32.powi(-127)]);
            assert_eq!((&scales[..], &left[..]), (&[0][..], &[0.0; 2][..]));
        }
        // Without an inverse of the scale, zeros are sent.
        for scale in [0.0, 2f32.powi(-149), 2f32.powi(-140)] {
            let values = [100.0 * scale, -scale];
            let (scales, codes, left) = encoded(BlockScaled::Nvfp4 { scale }, &values);
            assert_eq!((&scales[..], &codes[..], &left[..]), (&[0][..], &[0x80][..], &values[..]));
        }
        // A scale below half of the least, 2^−9, is 0.
        let values = [6.0 * 2f32.powi(-10), -1e-3];
        let (scales, _, left) = encoded(BlockScaled::Nvfp4 { scale: 1.0 }, &values);
        assert_eq!((&scales[..], &left[..]), (&[0][..], &values[..]));
    }

    #[test]
    fn signs_do_not_count() {
        assert_eq!(max_without_sign(&[]), 0);
        assert_eq!(max_without_sign(&[0x80, 0x83, 0x02]), 3);
    }
}
