//! A piece of the tensor: rotated, rounded and scaled.

use std::ops::Range;

use gradwire_bits::kernels;

use super::quantizer::Quantizer;
use crate::numeric::matrix;
use crate::numeric::rotation::{RotationPiece, Signs, thirds};
use crate::wire::levels;
use crate::{BLOCK, Source, Workspace};

/// Squared norms for which no square and no rotated element overflows or loses digits.
const ORDINARY: Range<f64> = 1e-27..1e27;

/// A piece in work. Aligned, because a vector that crosses two lines of the cache takes twice the
/// time.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Block(pub(super) [f32; BLOCK]);

impl Default for Block {
    fn default() -> Self {
        Self([0.0; BLOCK])
    }
}

/// The rotated elements of a piece, and its levels, rotated back.
#[derive(Debug, Default)]
struct Blocks {
    rotated: Block,
    turned: Block,
}

/// What a piece's scale depends on besides its levels.
#[derive(Debug, Clone, Copy)]
struct Norm {
    /// The sum of the squares of the elements over the unit.
    square: f64,
    /// A power of two by which the elements were divided.
    unit: f32,
}

/// Quantizes a piece, and returns its scale.
pub(super) fn encode_piece(
    piece: RotationPiece,
    signs: &Signs,
    quantizers: &[Option<Quantizer>; 2],
    source: &mut Source<'_>,
    symbols: [&mut [u16]; 2],
    workspace: &mut Workspace,
) -> f32 {
    let Blocks { rotated, turned } = workspace.own();
    let (rotated, decoded) = (&mut rotated.0[..piece.size], &mut turned.0[..piece.size]);
    let norm = rotate(piece, signs, source, rotated);
    let (_, over_norm) = levels::invertible(norm.square.sqrt() as f32);
    decoded.fill(0.0);
    let mut first = 0;
    for (quantizer, symbols) in quantizers.iter().zip(symbols) {
        let part = first..first + symbols.len();
        first = part.end;
        if let Some(quantizer) = quantizer {
            quantizer.quantize(&rotated[part.clone()], over_norm, symbols, &mut decoded[part]);
        }
    }
    let along = kernels::inner_product(decoded, rotated);
    if !source.keeps_residual() {
        return norm.enlarged(norm.square / along);
    }
    let least = along / (piece.size as f64 * kernels::sum_of_squares(decoded));
    kernels::hadamard(decoded);
    take_error(piece, signs, norm.enlarged(least), source, decoded)
}

/// Writes the signs of a rotated piece, and returns its scale: [`encode_piece`] for levels of 1 and
/// −1.
pub(super) fn encode_signs(
    piece: RotationPiece,
    signs: &Signs,
    source: &mut Source<'_>,
    bits: &mut [u8],
    workspace: &mut Workspace,
) -> f32 {
    let rotated = &mut workspace.own::<Blocks>().rotated.0[..piece.size];
    let norm = rotate(piece, signs, source, rotated);
    kernels::sign_bits(rotated, bits);
    let along = kernels::sum_of_magnitudes(rotated);
    if !source.keeps_residual() {
        return norm.enlarged(norm.square / along);
    }
    let least = along / (piece.size * piece.size) as f64;
    turn_signs(bits, &[], rotated);
    take_error(piece, signs, norm.enlarged(least), source, rotated)
}

/// Writes H·s for the signs s of a message. Prefetches `ahead`.
fn turn_signs(bits: &[u8], ahead: &[f32], turned: &mut [f32]) {
    let [first, second, third] = thirds(ahead);
    kernels::prefetch(first);
    kernels::signed_ones(bits, turned);
    kernels::prefetch(second);
    kernels::hadamard(turned);
    kernels::prefetch(third);
}

/// Takes a piece, leaves its error, and returns its scale: the one that leaves the least error, but
/// no residual that overflows.
fn take_error(
    piece: RotationPiece,
    signs: &Signs,
    least: f32,
    source: &mut Source<'_>,
    turned: &[f32],
) -> f32 {
    let room = (f32::MAX - source.abs_max()) / matrix::abs_max(turned);
    let scale = least.min(room);
    source.take(piece.start, piece.len, |x| signs.add_turned(turned, [scale, -1.0], x));
    scale
}

/// Writes the rotated piece over the unit of its norm.
fn rotate(
    RotationPiece { start, len, .. }: RotationPiece,
    signs: &Signs,
    source: &mut Source<'_>,
    rotated: &mut [f32],
) -> Norm {
    let square = source.peek_long(start, len, |x, ahead| signs.rotate_to(x, ahead, rotated));
    if ORDINARY.contains(&square) {
        return Norm { square, unit: 1.0 };
    }
    let mut scaled = [0.0; BLOCK];
    let scaled = &mut scaled[..len];
    source.peek_again(start, len, |x| scaled.copy_from_slice(x));
    let unit = power_of_two(matrix::abs_max(scaled));
    kernels::scale(scaled, 1.0 / unit);
    Norm { square: signs.rotate_to(scaled, &[], rotated), unit }
}

/// The largest normal power of two up to a number, or the least one.
fn power_of_two(number: f32) -> f32 {
    f32::from_bits(number.to_bits() & 0x7f80_0000).max(f32::MIN_POSITIVE)
}

impl Norm {
    /// A scale of the elements over the unit as a scale of the elements; 0 if all are 0, or if it
    /// would be subnormal.
    fn enlarged(self, scale: f64) -> f32 {
        let scale = scale * f64::from(self.unit);
        if scale >= f64::from(f32::MIN_POSITIVE) { scale.min(f32::MAX.into()) as f32 } else { 0.0 }
    }
}

/// Adds a decoded piece.
pub(super) fn add_piece(
    piece: RotationPiece,
    signs: &Signs,
    quantizers: &[Option<Quantizer>; 2],
    symbols: [&[u16]; 2],
    (scale, weight): (f32, f32),
    out: &mut [f32],
) {
    let mut turned = Block::default();
    let decoded = &mut turned.0[..piece.size];
    let mut first = 0;
    for (quantizer, symbols) in quantizers.iter().zip(symbols) {
        let part = first..first + symbols.len();
        first = part.end;
        if let Some(quantizer) = quantizer {
            quantizer.add(symbols, &mut decoded[part]);
        }
    }
    kernels::hadamard(decoded);
    signs.add_turned(decoded, [scale, weight], out);
}

/// Adds a decoded piece of signs. Prefetches `ahead`.
pub(super) fn add_signs(
    signs: &Signs,
    bits: &[u8],
    [scale, weight]: [f32; 2],
    turned: &mut [f32],
    out: &mut [f32],
    ahead: &[f32],
) {
    turn_signs(bits, ahead, turned);
    signs.add_turned(turned, [scale, weight], out);
}
