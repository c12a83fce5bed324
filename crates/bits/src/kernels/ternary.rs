//! Ternary quantization, accumulated as base-3 digits.
//!
//! Five calls build the bytes of the [quartic code](crate::quartic): each call multiplies the bytes
//! by three and adds the digits `1 + q` of one fifth of the tensor.

use fearless_simd::prelude::*;
#[cfg(target_arch = "x86_64")]
use {
    core::arch::x86_64::*,
    fearless_simd::{f32x4, f32x8, f32x16, u8x16},
};

use super::{cases, kernel};

kernel! {
    /// Quantizes `values` to `q` = +1 above `scale / 2`, −1 below `−scale / 2`, otherwise 0 (a tie
    /// becomes 0, as with rounding to even). Leaves `value − q·scale` in `values`, and appends the
    /// base-3 digit `1 + q` to each byte of `digits`. The scale is not negative.
    ///
    /// # Panics
    /// If the lengths differ.
    pub fn ternary_residual(
        simd,
        values: &mut [f32],
        scale: f32,
        digits: &mut [u8],
    ) {
        assert_eq!(values.len(), digits.len());
        let (groups, rest) = values.as_chunks_mut::<64>();
        let (bytes, last) = digits.as_chunks_mut::<64>();
        let [high, low] = [scale * 0.5, scale * -0.5].map(|x| S::f32s::splat(simd, x));
        let [positive, negative] =
            [scale, -scale].map(|x| S::i32s::splat(simd, x.to_bits() as i32));
        for (group, bytes) in groups.iter_mut().zip(bytes) {
            append_all(simd, bytes, #[inline(always)] |at| {
                let lanes = &mut group[at..at + S::f32s::LEN];
                let x = S::f32s::from_slice(simd, lanes);
                let (above, below) = (x.simd_gt(high), x.simd_lt(low));
                let left = if masks_are_bits::<S>() {
                    above.select(x - scale, below.select(x + scale, x))
                } else {
                    // Zero is subtracted from the others, not added, so −0 stays −0.
                    let sent = below.to_vector() & negative;
                    let sent = if cfg!(target_arch = "aarch64") {
                        above.select(positive, sent)
                    } else {
                        above.to_vector() & positive | sent
                    };
                    x - sent.bitcast::<S::f32s>()
                };
                left.store_slice(lanes);
                (above, below)
            });
        }
        plain(rest, scale, last);
    } plain {
        let half = scale * 0.5;
        for (x, digit) in values.iter_mut().zip(digits) {
            let (above, below) = (*x > half, *x < -half);
            if above {
                *x -= scale;
            } else if below {
                *x += scale;
            }
            append(digit, above, below);
        }
    }
}

kernel! {
    /// Quantizes stochastically: q = sign(value) with probability |value| / scale (1 beyond the
    /// scale), otherwise 0. Appends the base-3 digit `1 + q` to each byte of `digits`. Element i is
    /// compared with the upper 24 bits of `random[i]` as a fraction, times the scale; this product
    /// is rounded to a multiple of 2⁻¹⁴⁹ below 2⁻¹²⁶. The scale is not negative. Processes the
    /// shortest length.
    pub fn stochastic_ternary(
        simd,
        values: &[f32],
        scale: f32,
        random: &[u32],
        digits: &mut [u8],
    ) {
        let len = values.len().min(random.len()).min(digits.len());
        let (groups, rest) = values[..len].as_chunks::<64>();
        let (draws, words) = random[..len].as_chunks::<64>();
        let (bytes, last) = digits[..len].as_chunks_mut::<64>();
        for ((group, draws), bytes) in groups.iter().zip(draws).zip(bytes) {
            append_all(simd, bytes, #[inline(always)] |at| {
                let x = S::f32s::from_slice(simd, &group[at..at + S::f32s::LEN]);
                let words = S::u32s::from_slice(simd, &draws[at..at + S::f32s::LEN]) >> 8;
                let chance: S::f32s = words.bitcast::<S::i32s>().to_float();
                let threshold = chance * FRACTION * scale;
                (x.simd_gt(threshold), x.simd_lt(-threshold))
            });
        }
        plain(rest, scale, words, last);
    } plain {
        for ((x, word), digit) in values.iter().zip(random).zip(digits) {
            let threshold = (word >> 8) as i32 as f32 * FRACTION * scale;
            append(digit, *x > threshold, *x < -threshold);
        }
    }
}

/// 2⁻²⁴.
const FRACTION: f32 = 1.0 / 16_777_216.0;

#[inline(always)]
fn append(digits: &mut u8, above: bool, below: bool) {
    *digits =
        digits.wrapping_mul(3).wrapping_add(1 + u8::from(above)).wrapping_sub(u8::from(below));
}

/// Whether masks have a bit for each element, as in AVX-512. Otherwise they are vectors, which
/// arithmetic uses faster than a selection does.
#[inline(always)]
fn masks_are_bits<S: Simd>() -> bool {
    size_of::<S::mask8s>() < size_of::<S::u8s>()
}

/// Appends base-3 digits to bytes: 2 for elements above, 0 for those below, and 1 for the others.
/// `compared` says which of a vector of elements are above and below, from an index on.
#[inline(always)]
fn append_all<S: Simd>(
    simd: S,
    bytes: &mut [u8; 64],
    mut compared: impl FnMut(usize) -> (S::mask32s, S::mask32s),
) {
    for (at, bytes) in bytes.chunks_exact_mut(S::u8s::LEN).enumerate() {
        let (at, len) = (at * S::u8s::LEN, S::f32s::LEN);
        let (a, b) = (compared(at), compared(at + len));
        let (c, d) = (compared(at + 2 * len), compared(at + 3 * len));
        let trits = if masks_are_bits::<S>() {
            let above = a.0.narrow(b.0).narrow(c.0.narrow(d.0));
            let below = a.1.narrow(b.1).narrow(c.1.narrow(d.1));
            below.to_vector() - above.to_vector()
        } else {
            let (a, b) = (a.1.to_vector() - a.0.to_vector(), b.1.to_vector() - b.0.to_vector());
            let (c, d) = (c.1.to_vector() - c.0.to_vector(), d.1.to_vector() - d.0.to_vector());
            a.relaxed_narrow(b).relaxed_narrow(c.relaxed_narrow(d))
        };
        let x = S::u8s::from_slice(simd, bytes);
        (x + x + (x + 1) + trits.bitcast::<S::u8s>()).store_slice(bytes);
    }
}

/// Adds `scale·(digit − 1)` to `out`, where digit is the base-3 digit with weight 3^(4 − part) of
/// each byte: the values of fifth `part` of the tensor. Processes the shorter length.
///
/// # Panics
/// If `part` is above 4.
pub fn ternary_add(digits: &[u8], part: usize, scale: f32, out: &mut [f32]) {
    let powers = [81, 27, 9, 3, 1];
    assert!(part < powers.len(), "a quartic byte has parts 0 to 4, not {part}");
    let reciprocal = reciprocal(powers[part]);
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::level::used().as_avx512() {
        return look_up_sixteen(avx512, digits, reciprocal, scale, out);
    } else if let Some(avx2) = super::level::used().as_avx2() {
        return look_up_eight(avx2, digits, reciprocal, scale, out);
    }
    add_digit(digits, reciprocal, scale, out);
}

/// The byte times this number is the fraction digit / (3·power) in 16 bits, rounded up by less than
/// its least step 1/243; three times the fraction is the digit. 16-bit multiplications are faster
/// than a division.
fn reciprocal(power: u16) -> u16 {
    (1u32 << 16).div_ceil(3 * u32::from(power)) as u16
}

kernel! {
    /// The loop of [`ternary_add`].
    fn add_digit(
        simd,
        digits: &[u8],
        reciprocal: u16,
        scale: f32,
        out: &mut [f32],
    ) {
        let len = digits.len().min(out.len());
        let whole = len / S::u8s::LEN * S::u8s::LEN;
        let (digits, last) = digits[..len].split_at(whole);
        let (out, rest) = out[..len].split_at_mut(whole);
        // The upper half of 2^23, which a lower half of 16 bits is added to.
        let power = S::u16s::splat(simd, 0x4b00);
        let one_more = S::f32s::splat(simd, 8_388_609.0);
        for (digits, out) in digits.chunks_exact(S::u8s::LEN).zip(out.chunks_exact_mut(S::u8s::LEN)) {
            let (low, high) = S::u8s::from_slice(simd, digits).widen();
            let (first, second) = out.split_at_mut(S::u16s::LEN);
            for (bytes, out) in [(low, first), (high, second)] {
                // The fraction minus a half, because signed numbers are faster to compare.
                let fraction = (bytes * reciprocal + 0x8000).bitcast::<S::i16s>();
                let (one, two) = (fraction.simd_gt(-0x2aab), fraction.simd_gt(0x2aaa));
                // 2 minus the digit.
                let rest = (one.to_vector() + two.to_vector() + 2).bitcast::<S::u16s>();
                let (first, second) = out.split_at_mut(S::f32s::LEN);
                for (rest, out) in [(rest.zip_low(power), first), (rest.zip_high(power), second)] {
                    let trit = one_more - rest.bitcast::<S::f32s>();
                    (S::f32s::from_slice(simd, out) + trit * scale).store_slice(out);
                }
            }
        }
        plain(last, reciprocal, scale, rest);
    } plain {
        for (&digit, out) in digits.iter().zip(out) {
            let fraction = u16::from(digit).wrapping_mul(reciprocal);
            let trit = ((u32::from(fraction) * 3) >> 16) as i16 - 1;
            *out += scale * f32::from(trit);
        }
    }
}

// The three values in a register, and a byte in each 32-bit lane, whose upper half stays 0. In the
// first-level cache this is 1.5 times as fast as the portable text (AVX-512), or 1.4 times (AVX2).

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    fn look_up_sixteen(
        avx512: Avx512,
        digits: &[u8],
        reciprocal: u16,
        scale: f32,
        out: &mut [f32],
    ) {
        let len = digits.len().min(out.len());
        let (groups, rest) = digits[..len].as_chunks::<16>();
        let (sixteens, last) = out[..len].as_chunks_mut::<16>();
        let values = f32x16::block_splat(f32x4::from_slice(avx512, &values(scale))).into();
        let reciprocals = _mm512_set1_epi32(i32::from(reciprocal));
        for (digits, out) in groups.iter().zip(sixteens) {
            let bytes = _mm512_cvtepu8_epi32(u8x16::load_array_ref(avx512, digits).into());
            let fraction = _mm512_mullo_epi16(bytes, reciprocals);
            let digit = _mm512_mulhi_epu16(fraction, _mm512_set1_epi32(3));
            let value: f32x16<_> = _mm512_permutexvar_ps(digit, values).simd_into(avx512);
            (f32x16::load_array_ref(avx512, out) + value).store_array(out);
        }
        add_digit(rest, reciprocal, scale, last);
    }
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    fn look_up_eight(
        avx2: Avx2,
        digits: &[u8],
        reciprocal: u16,
        scale: f32,
        out: &mut [f32],
    ) {
        let len = digits.len().min(out.len());
        let (groups, rest) = digits[..len].as_chunks::<8>();
        let (eights, last) = out[..len].as_chunks_mut::<8>();
        let values = f32x8::block_splat(f32x4::from_slice(avx2, &values(scale))).into();
        let reciprocals = _mm256_set1_epi32(i32::from(reciprocal));
        for (digits, out) in groups.iter().zip(eights) {
            let bytes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(i64::from_le_bytes(*digits)));
            let fraction = _mm256_mullo_epi16(bytes, reciprocals);
            let digit = _mm256_mulhi_epu16(fraction, _mm256_set1_epi32(3));
            let value: f32x8<_> = _mm256_permutevar8x32_ps(values, digit).simd_into(avx2);
            (f32x8::load_array_ref(avx2, out) + value).store_array(out);
        }
        add_digit(rest, reciprocal, scale, last);
    }
}

/// The values of the digits 0, 1 and 2, and one more.
#[cfg(target_arch = "x86_64")]
fn values(scale: f32) -> [f32; 4] {
    [-1.0, 0.0, 1.0, 1.0].map(|trit| scale * trit)
}

cases![
    ("stochastic_ternary", |input, output| {
        let mut digits = input.bytes();
        stochastic_ternary(&input.floats(), input.x.abs(), &input.draws(), &mut digits);
        output.bits(digits.iter().copied());
    }),
    ("ternary_add", |input, output| {
        for part in 0..5 {
            let mut out = input.more();
            ternary_add(&input.bytes(), part, input.x, &mut out);
            output.computed(&out);
        }
    }),
    ("ternary_residual", |input, output| {
        let (mut values, mut digits) = (input.floats(), input.bytes());
        ternary_residual(&mut values, input.x.abs(), &mut digits);
        output.computed(&values);
        output.bits(digits.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::samples::{same, sweep};
    use alloc::vec::Vec;

    #[test]
    fn trits_by_hand() {
        let mut values = [0.5, 0.500_001, -0.5, -0.75, 1.0, 0.0, -0.0];
        let mut digits = [0, 1, 2, 3, 80, 40, 10];
        ternary_residual(&mut values, 1.0, &mut digits);
        // 3·digit + 1 + q with q = 0, 1, 0, −1, 1, 0, 0.
        assert_eq!(digits, [1, 5, 7, 9, 242, 121, 31]);
        assert_eq!(values[2..6], [-0.5, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn the_smallest_scale_distinguishes_zero() {
        let tiny = f32::from_bits(1);
        let mut values = [tiny, -tiny, 0.0];
        let mut digits = [0; 3];
        ternary_residual(&mut values, tiny, &mut digits);
        assert_eq!(digits, [2, 0, 1]);
        assert_eq!(values, [0.0; 3]);
    }

    #[test]
    fn each_part_finds_its_digit() {
        // 193 = 2·81 + 1·27 + 0·9 + 1·3 + 1.
        let trits: Vec<f32> = (0..5)
            .map(|part| {
                let mut out = [100.0];
                ternary_add(&[193], part, 8.0, &mut out);
                out[0] - 100.0
            })
            .collect();
        assert_eq!(trits, [8.0, 0.0, -8.0, 0.0, 0.0]);
    }

    #[test]
    fn chance_decides_by_the_upper_24_bits() {
        let words = [0, 1 << 31, (1 << 31) - 1, u32::MAX, 0, 0];
        let values = [0.25, 0.5, 0.5, -1.0, 0.0, -0.1];
        let mut digits = [0; 6];
        stochastic_ternary(&values, 1.0, &words, &mut digits);
        assert_eq!(digits, [2, 1, 2, 0, 1, 0]);
    }

    #[test]
    fn sums_are_those_of_a_division() {
        sweep(|x| {
            let digits: Vec<u8> = (0..x.len()).map(|i| (i * 37) as u8).collect();
            for part in 0..5 {
                let (mut out, mut expected) = (x.to_vec(), x.to_vec());
                for (out, &digit) in expected.iter_mut().zip(&digits) {
                    let trit = i32::from(digit) / 3i32.pow(4 - part as u32) % 3 - 1;
                    *out += 0.3 * trit as f32;
                }
                ternary_add(&digits, part, 0.3, &mut out);
                assert!(same(&out, &expected));
            }
        });
    }
}
