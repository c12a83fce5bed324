//! A piece of the tensor: rotated, rounded and scaled.

use gradwire_bits::kernels;

use super::quantizer::Quantizer;
use crate::numeric::matrix;
use crate::numeric::rotation::{RotationPiece, Signs};
use crate::wire::levels;
use crate::{BLOCK, Source, Workspace};

/// The rotated elements of a piece.
#[derive(Debug, Default)]
struct Rotated(Vec<f32>);

/// Quantizes a piece, and returns its scale.
pub(super) fn encode_piece(
    piece: RotationPiece,
    signs: &Signs,
    quantizers: &[Option<Quantizer>; 2],
    source: &mut Source<'_>,
    symbols: [&mut [u16]; 2],
    workspace: &mut Workspace,
) -> f32 {
    let RotationPiece { start, len, size } = piece;
    let (largest, inverse) = levels::invertible(source.abs_max());
    let Workspace { block: decoded, own, .. } = workspace;
    let Rotated(rotated) = own.get();
    rotated.resize(size, 0.0);
    let (elements, padding) = rotated.split_at_mut(len);
    source.peek(start, len, |x| kernels::copy(x, elements));
    kernels::scale(elements, inverse);
    padding.fill(0.0);
    let square = kernels::sum_of_squares(rotated);
    let (norm, over_norm) = levels::invertible(square.sqrt() as f32);
    let largest = if norm == 0.0 { 0.0 } else { largest };
    signs.rotate(rotated);

    decoded.clear();
    decoded.resize(size, 0.0);
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
        return enlarged(square / along, largest);
    }
    let least = along / (size as f64 * kernels::sum_of_squares(decoded));
    signs.rotate_back(decoded);
    // The residual of an element is finite, too.
    let room = (f32::MAX - source.abs_max()) / matrix::abs_max(decoded);
    let scale = enlarged(least, largest).min(room);
    source.take(start, len, |x| kernels::add_limited(x, decoded, scale, -1.0));
    scale
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
    // No piece is larger.
    let mut decoded = [0.0; BLOCK];
    let decoded = &mut decoded[..piece.size];
    let mut first = 0;
    for (quantizer, symbols) in quantizers.iter().zip(symbols) {
        let part = first..first + symbols.len();
        first = part.end;
        if let Some(quantizer) = quantizer {
            quantizer.add(symbols, &mut decoded[part]);
        }
    }
    signs.rotate_back(decoded);
    kernels::add_limited(out, &decoded[..piece.len], scale, weight);
}

/// The scale of a piece whose elements were divided by `largest`; 0 if all elements are 0.
fn enlarged(scale: f64, largest: f32) -> f32 {
    let scale = if scale.is_finite() { scale * f64::from(largest) } else { 0.0 };
    scale.min(f64::from(f32::MAX)) as f32
}
