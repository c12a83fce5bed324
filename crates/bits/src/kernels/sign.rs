//! Sign bits: the sign of element i is bit i mod 8 of byte i / 8.
//!
//! A step packs 64 signs into a word, however long the vectors are.

use fearless_simd::{mask8x64, prelude::*};

use super::{cases, kernel};

kernel! {
    /// Packs the signs of `values`: 1 for values at or above zero. Bits past the end are 0.
    ///
    /// # Panics
    /// If the length of `bits` is not `values.len().div_ceil(8)`.
    pub fn signs(simd, values: &[f32], bits: &mut [u8]) {
        assert_eq!(bits.len(), values.len().div_ceil(8));
        let (groups, rest) = values.as_chunks::<64>();
        let (packed, last) = bits.split_at_mut(8 * groups.len());
        for (group, bytes) in groups.iter().zip(packed.as_chunks_mut::<8>().0) {
            pack(simd, bytes, #[inline(always)] |at| {
                S::f32s::from_slice(simd, &group[at..at + S::f32s::LEN]).simd_ge(0.0)
            });
        }
        plain(rest, last);
    } plain {
        for (values, packed) in values.chunks(8).zip(bits) {
            let bit = |(i, &x): (usize, &f32)| u8::from(x >= 0.0) << i;
            *packed = values.iter().enumerate().map(bit).sum();
        }
    }
}

/// Packs 64 bits. `ones` says which of a vector of elements have a 1, from an index on.
#[inline(always)]
fn pack<S: Simd>(simd: S, bytes: &mut [u8; 8], mut ones: impl FnMut(usize) -> S::mask32s) {
    let len = S::f32s::LEN;
    if len < 8 {
        // NEON packs a mask of bytes faster than sixteen masks of four lanes.
        let mut lanes = [0; 64];
        for (at, lanes) in lanes.chunks_exact_mut(4 * len).enumerate() {
            let at = 4 * len * at;
            let (a, b) = (ones(at), ones(at + len));
            let (c, d) = (ones(at + 2 * len), ones(at + 3 * len));
            a.narrow(b).narrow(c.narrow(d)).to_vector().store_slice(lanes);
        }
        *bytes = mask8x64::from_slice(simd, &lanes).to_bitmask().to_le_bytes();
    } else {
        // Whole bytes are written at once, which is faster than joining them in a word.
        for (at, bytes) in bytes.chunks_exact_mut(len / 8).enumerate() {
            bytes.copy_from_slice(&ones(len * at).to_bitmask().to_le_bytes()[..len / 8]);
        }
    }
}

kernel! {
    /// Packs the sign bits of `values`: 1 for values below zero and for −0. Bits past the end are
    /// 0.
    ///
    /// # Panics
    /// If the length of `bits` is not `values.len().div_ceil(8)`.
    pub fn sign_bits(simd, values: &[f32], bits: &mut [u8]) {
        assert_eq!(bits.len(), values.len().div_ceil(8));
        let (groups, rest) = values.as_chunks::<64>();
        let (packed, last) = bits.split_at_mut(8 * groups.len());
        for (group, bytes) in groups.iter().zip(packed.as_chunks_mut::<8>().0) {
            pack(simd, bytes, #[inline(always)] |at| {
                let x = S::f32s::from_slice(simd, &group[at..at + S::f32s::LEN]);
                x.bitcast::<S::i32s>().simd_lt(0)
            });
        }
        plain(rest, last);
    } plain {
        for (values, packed) in values.chunks(8).zip(bits) {
            let bit = |(i, x): (usize, &f32)| u8::from(x.is_sign_negative()) << i;
            *packed = values.iter().enumerate().map(bit).sum();
        }
    }
}

kernel! {
    /// Packs the signs of `values` (1 for values at or above zero) and leaves `value − positive` or
    /// `value − negative` in `values`, according to the sign. Bits past the end are 0.
    ///
    /// # Panics
    /// If the length of `bits` is not `values.len().div_ceil(8)`.
    pub fn sign_residual(
        simd,
        values: &mut [f32],
        negative: f32,
        positive: f32,
        bits: &mut [u8],
    ) {
        assert_eq!(bits.len(), values.len().div_ceil(8));
        let (groups, rest) = values.as_chunks_mut::<64>();
        let (packed, last) = bits.split_at_mut(8 * groups.len());
        let levels = [negative, positive].map(|x| S::f32s::splat(simd, x));
        for (group, bytes) in groups.iter_mut().zip(packed.as_chunks_mut::<8>().0) {
            if S::f32s::LEN < 8 {
                pack(simd, bytes, #[inline(always)] |at| {
                    subtract(simd, &mut group[at..at + S::f32s::LEN], levels)
                });
                continue;
            }
            // All bits first: 1.2 times as fast as their stores among those of values.
            pack(simd, bytes, #[inline(always)] |at| {
                S::f32s::from_slice(simd, &group[at..at + S::f32s::LEN]).simd_ge(0.0)
            });
            for lanes in group.chunks_exact_mut(S::f32s::LEN) {
                subtract(simd, lanes, levels);
            }
        }
        plain(rest, negative, positive, last);
    } plain {
        for (values, packed) in values.chunks_mut(8).zip(bits) {
            let mut byte = 0;
            for (i, x) in values.iter_mut().enumerate() {
                let above = *x >= 0.0;
                byte |= u8::from(above) << i;
                *x -= if above { positive } else { negative };
            }
            *packed = byte;
        }
    }
}

/// Subtracts the level of its sign from each lane, and returns the signs.
#[inline(always)]
fn subtract<S: Simd>(simd: S, lanes: &mut [f32], [below, above]: [S::f32s; 2]) -> S::mask32s {
    let x = S::f32s::from_slice(simd, lanes);
    let sign = x.simd_ge(0.0);
    (x - sign.select(above, below)).store_slice(lanes);
    sign
}

kernel! {
    /// Adds `positive` to the elements of `out` whose bit is 1, and `negative` to the others.
    ///
    /// # Panics
    /// If the length of `bits` is not `out.len().div_ceil(8)`.
    pub fn sign_add(
        simd,
        bits: &[u8],
        negative: f32,
        positive: f32,
        out: &mut [f32],
    ) {
        assert_eq!(bits.len(), out.len().div_ceil(8));
        let (groups, rest) = out.as_chunks_mut::<64>();
        let (packed, last) = bits.split_at(8 * groups.len());
        let [below, above] = [negative, positive].map(|x| S::f32s::splat(simd, x));
        for (group, word) in groups.iter_mut().zip(packed.as_chunks::<8>().0) {
            let signs = u64::from_le_bytes(*word);
            for (at, lanes) in group.chunks_exact_mut(S::f32s::LEN).enumerate() {
                let sign = S::mask32s::from_bitmask(simd, signs >> (at * S::f32s::LEN));
                let level: S::f32s = sign.select(above, below);
                (S::f32s::from_slice(simd, lanes) + level).store_slice(lanes);
            }
        }
        plain(last, negative, positive, rest);
    } plain {
        for (out, &byte) in out.chunks_mut(8).zip(bits) {
            for (i, out) in out.iter_mut().enumerate() {
                *out += if byte & 1 << i != 0 { positive } else { negative };
            }
        }
    }
}

cases![
    ("sign_bits", |input, output| {
        let mut bits = input.elements(input.len.div_ceil(8), |_| 9);
        sign_bits(&input.floats(), &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("sign_add", |input, output| {
        let bits = input.elements(input.len.div_ceil(8), |at| input.word(at) as u8);
        let mut out = input.more();
        sign_add(&bits, input.x, input.y, &mut out);
        output.computed(&out);
    }),
    ("signs", |input, output| {
        let mut bits = input.elements(input.len.div_ceil(8), |_| 0xaa);
        signs(&input.floats(), &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("sign_residual", |input, output| {
        let (mut values, mut bits) =
            (input.floats(), input.elements(input.len.div_ceil(8), |_| 0xaa));
        sign_residual(&mut values, input.x, input.y, &mut bits);
        output.computed(&values);
        output.bits(bits.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_by_hand() {
        let mut values = [1.0, -1.0, 0.0, -0.0, 3.0, -2.0, -2.0, 1.0, -5.0];
        let mut bits = [0xff; 2];
        signs(&values, &mut bits);
        assert_eq!(bits, [0b1001_1101, 0]);
        sign_bits(&values, &mut bits);
        assert_eq!(bits, [0b0110_1010, 1]);
        sign_residual(&mut values, -2.0, 1.0, &mut bits);
        assert_eq!(bits, [0b1001_1101, 0]);
        assert_eq!(values, [0.0, 1.0, -1.0, -1.0, 2.0, 0.0, 0.0, 0.0, -3.0]);
        let mut out = [10.0; 9];
        sign_add(&bits, -2.0, 1.0, &mut out);
        assert_eq!(out, [11.0, 8.0, 11.0, 11.0, 11.0, 8.0, 8.0, 11.0, 8.0]);
    }
}
