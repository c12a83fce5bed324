//! Conversion of messages of linear compressors to and from `f32`.

use gradwire::Dtype;
use gradwire_bits::kernels;

/// Little-endian elements to `f32`; `bits` is working memory.
pub(crate) fn widen(bytes: &[u8], dtype: Dtype, bits: &mut Vec<u16>, out: &mut Vec<f32>) {
    out.clear();
    if dtype == Dtype::F32 {
        return widen_onto(bytes, out);
    }
    bits.clear();
    bits.extend(bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])));
    out.resize(bits.len(), 0.0);
    match dtype {
        Dtype::F16 => kernels::f16_to_f32(bits, out),
        _ => kernels::bf16_to_f32(bits, out),
    }
}

/// Appends little-endian `f32` elements.
pub(crate) fn widen_onto(bytes: &[u8], out: &mut Vec<f32>) {
    out.extend(bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])));
}

/// Appends `f32` values as little-endian elements.
pub(crate) fn narrow_onto(values: &[f32], out: &mut Vec<u8>) {
    let start = out.len();
    out.resize(start + 4 * values.len(), 0);
    narrow(values, Dtype::F32, &mut Vec::new(), &mut out[start..]);
}

/// `f32` values to little-endian elements, to nearest even; 16-bit elements saturate.
pub(crate) fn narrow(values: &[f32], dtype: Dtype, bits: &mut Vec<u16>, out: &mut [u8]) {
    if dtype == Dtype::F32 {
        for (bytes, value) in out.chunks_exact_mut(4).zip(values) {
            bytes.copy_from_slice(&value.to_le_bytes());
        }
        return;
    }
    bits.clear();
    bits.resize(values.len(), 0);
    match dtype {
        Dtype::F16 => kernels::f32_to_f16(values, bits),
        _ => kernels::f32_to_bf16(values, bits),
    }
    for (bytes, bits) in out.chunks_exact_mut(2).zip(bits.iter()) {
        bytes.copy_from_slice(&bits.to_le_bytes());
    }
}

/// A NaN of a type of 16 bits.
pub(crate) fn nan_of(dtype: Dtype) -> u16 {
    match dtype {
        Dtype::F16 => 0x7e00,
        _ => 0x7fc0,
    }
}

/// Whether all numbers of a type of 16 bits are finite.
pub(crate) fn are_finite(halves: &[u16], dtype: Dtype) -> bool {
    // All bits of the exponent are set in infinity and NaN.
    let exponent = match dtype {
        Dtype::F16 => 0x7c00,
        _ => 0x7f80,
    };
    halves.iter().fold(true, |finite, half| finite & (half & exponent != exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_go_both_ways_through_their_known_bytes() {
        let cases: [(Dtype, &[u8]); 3] = [
            (Dtype::F32, &[0, 0, 0xc0, 0x3f, 0, 0, 0, 0xc0]),
            (Dtype::F16, &[0x00, 0x3e, 0x00, 0xc0]),
            (Dtype::Bf16, &[0xc0, 0x3f, 0x00, 0xc0]),
        ];
        let (mut bits, mut values) = (Vec::new(), Vec::new());
        for (dtype, bytes) in cases {
            widen(bytes, dtype, &mut bits, &mut values);
            assert_eq!(values, [1.5, -2.0]);
            let mut back = vec![0; 2 * dtype.size()];
            narrow(&values, dtype, &mut bits, &mut back);
            assert_eq!(back, bytes);
        }
    }
}
