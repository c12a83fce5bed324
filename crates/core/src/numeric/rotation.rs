//! The random rotation of a tensor in pieces, which makes its elements nearly normally distributed.
//!
//! A piece x of n elements becomes y = H·D·x, with H the Walsh–Hadamard matrix, whose elements are
//! 1 and −1, and D random signs. The rotation back is x = D·H·y / n. The elements of y have the
//! deviation ‖x‖.
//!
//! A piece has 4096 elements, so it stays in the cache. The rest after the last whole piece is
//! padded to the next power of two if it has fewer than 64 elements, or if at most an eighth of the
//! padded piece is padding. Otherwise its first elements, the largest power of two below its
//! length, are a piece, and the remainder is divided again in this way.

use std::ops::Range;

use gradwire_bits::kernels;

use crate::{BLOCK, Rng};

/// A part of the tensor that is rotated at once, and padded to `size`, a power of two.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct RotationPiece {
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) size: usize,
}

/// The pieces of a tensor. Only the last may be padded.
pub(crate) fn pieces(elements: usize) -> impl Iterator<Item = RotationPiece> {
    let mut start = 0;
    std::iter::from_fn(move || {
        let left = elements - start;
        let size = left.next_power_of_two();
        let (len, size) = match () {
            () if left == 0 => return None,
            () if left >= BLOCK => (BLOCK, BLOCK),
            () if left < 64 || 8 * (size - left) <= size => (left, size),
            () => (size / 2, size / 2),
        };
        start += len;
        Some(RotationPiece { start: start - len, len, size })
    })
}

/// The pieces of a part of a tensor; before it are only whole pieces of [`BLOCK`] elements.
pub(crate) fn pieces_of(part: Range<usize>) -> impl Iterator<Item = RotationPiece> {
    pieces(part.len()).map(move |piece| RotationPiece { start: part.start + piece.start, ..piece })
}

/// The random signs of a piece, 32 in a word.
pub(crate) struct Signs([u32; BLOCK / 32]);

impl Signs {
    /// The sign of element i of the tensor is bit i mod 32 of word i / 32 of the stream. Padding
    /// has the bits after the bits of its piece.
    pub(crate) fn draw(rng: &Rng, piece: RotationPiece) -> Self {
        let mut signs = [0; BLOCK / 32];
        rng.fill_from(piece.start / 32, &mut signs[..piece.size.div_ceil(32)]);
        Self(signs)
    }

    /// Replaces x by H·D·x.
    pub(crate) fn rotate(&self, piece: &mut [f32]) {
        kernels::rotate(piece, &self.0);
    }

    /// Writes H·D·x, with zeros after the elements of a piece with padding. Returns the sum of the
    /// squares of x. Prefetches `ahead`.
    pub(crate) fn rotate_to(&self, x: &[f32], ahead: &[f32], rotated: &mut [f32]) -> f64 {
        let (elements, padding) = rotated.split_at_mut(x.len());
        let [first, second, third] = thirds(ahead);
        kernels::prefetch(first);
        kernels::flip_to(x, &self.0, elements);
        let square = kernels::sum_of_squares(x);
        padding.fill(0.0);
        kernels::prefetch(second);
        kernels::hadamard(rotated);
        kernels::prefetch(third);
        square
    }

    /// Adds `weight` times the finite numbers scale·D·y, with y = H·q and as many elements as
    /// `out`.
    pub(crate) fn add_turned(&self, y: &[f32], [scale, weight]: [f32; 2], out: &mut [f32]) {
        kernels::add_flipped(out, y, &self.0, scale, weight);
    }

    /// Replaces y by D·H·y, which is the rotation back times the piece's size.
    pub(crate) fn rotate_back(&self, piece: &mut [f32]) {
        kernels::rotate_back(piece, &self.0);
    }
}

/// Three parts of elements to be prefetched.
pub(crate) fn thirds(ahead: &[f32]) -> [&[f32]; 3] {
    let (first, rest) = ahead.split_at(ahead.len() / 3);
    let (second, third) = rest.split_at(rest.len() / 2);
    [first, second, third]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_powers_of_two_with_little_padding() {
        let sizes = |elements| -> Vec<[usize; 2]> {
            pieces(elements).map(|piece| [piece.len, piece.size]).collect()
        };
        assert!(sizes(0).is_empty());
        assert_eq!(sizes(1), [[1, 1]]);
        assert_eq!(sizes(33), [[33, 64]]);
        assert_eq!(sizes(1000), [[1000, 1024]]);
        assert_eq!(sizes(2 * BLOCK + 800), [[4096; 2], [4096; 2], [512; 2], [256; 2], [32; 2]]);
        for elements in [63, 64, 65, 100, 895, 896, 4095, 9000] {
            let end = |piece: RotationPiece| {
                assert!(piece.len <= piece.size && piece.start.is_multiple_of(32), "{piece:?}");
                piece.start + piece.len
            };
            assert_eq!(pieces(elements).map(end).last(), Some(elements));
        }
    }

    #[test]
    fn rotated_elements_have_one_deviation_and_return() {
        let piece = RotationPiece { start: 64, len: 1024, size: 1024 };
        let signs = Signs::draw(&Rng::new(1, 2, 3, 4, 5), piece);
        // Small whole numbers, so nothing rounds.
        let x: Vec<f32> = (0..1024).map(|i| (i * i % 7) as f32 - 3.0).collect();
        let mut y = x.clone();
        signs.rotate(&mut y);
        let square = |values: &[f32]| values.iter().map(|x| x * x).sum::<f32>();
        assert_eq!(square(&y), 1024.0 * square(&x));
        signs.rotate_back(&mut y);
        assert!(y.iter().zip(&x).all(|(y, x)| *y == 1024.0 * x));
    }
}
