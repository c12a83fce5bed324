//! Numbers at the end of a message, written in one pass that also finds the largest of them.
//!
//! A copy is bound by memory, so a second pass that looks for NaN and infinity would show in its
//! speed.

use core::mem::MaybeUninit;

use fearless_simd::prelude::*;
use fearless_simd::{f32x8, f32x16, u8x32, u8x64, u32x8, u32x16};
#[cfg(target_arch = "x86_64")]
use {
    super::convert::f16c_patterns,
    core::arch::x86_64::{_MM_FROUND_TO_NEAREST_INT, _mm512_cvtps_ph},
};

use super::cases;
use super::convert::{BF16_MAX, F16_MAX, bf16_pattern, f16_pattern};
use super::room::{Format, Room, Unwritten};

/// Fills room with little-endian binary32 numbers. Returns the bits of the largest absolute value,
/// as [`abs_max_bits`](super::abs_max_bits) does.
///
/// Set `streamed` for messages that caches cannot hold: on x86-64 stores then bypass the caches, if
/// the memory is aligned. That moves 8 bytes per element; usual stores also read the memory that
/// they write, and move 12.
///
/// # Panics
/// If the room is not the size of the numbers.
pub fn f32_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<Binary32>(values, streamed)
}

/// Fills room with little-endian binary16 patterns: rounded to nearest, ties to even, and
/// saturated. Returns the bits of the largest absolute value. Moves 6 bytes per element if
/// `streamed`, as [`f32_fill`] is, otherwise 8.
///
/// # Panics
/// If the room is not the size of the patterns.
pub fn f16_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<Binary16>(values, streamed)
}

/// Fills room with little-endian bfloat16 patterns: rounded to nearest, ties to even, and
/// saturated. Returns the bits of the largest absolute value. Moves 6 bytes per element if
/// `streamed`, as [`f32_fill`] is, otherwise 8.
///
/// # Panics
/// If the room is not the size of the patterns.
pub fn bf16_fill(values: &[f32], room: Room<'_>, streamed: bool) -> u32 {
    room.fill::<Bfloat16>(values, streamed)
}

/// Little-endian binary32.
struct Binary32;

impl Format for Binary32 {
    const SIZE: usize = 4;
    const MOST: u32 = u32::MAX;
    type Bytes = [u8; 64];

    #[inline(always)]
    fn pack<S: Simd>(simd: S, values: &[f32; 16]) -> [u8; 64] {
        f32x16::load_array_ref(simd, values).bitcast::<u8x64<S>>().to_array()
    }

    #[inline(always)]
    fn write<S: Simd>(simd: S, values: &[f32], out: &mut Unwritten) -> u32 {
        let (groups, rest) = values.as_chunks::<16>();
        let (places, last) = out.split_at_mut(64 * groups.len());
        let mut largest = [u32x8::splat(simd, 0); 2];
        // The compiler turns a loop with one store into a call of `memcpy`, which may be
        // [slow](super::copy()), and a second pass for the largest; but not a loop with two.
        for (values, out) in groups.iter().zip(places.as_chunks_mut::<64>().0) {
            let halves = values.as_chunks().0.iter().zip(out.as_chunks_mut().0);
            for ((values, out), largest) in halves.zip(&mut largest) {
                *largest = largest.max(put(simd, values, out));
            }
        }
        largest[0].max(largest[1]).reduce_max().max(Self::plain(rest, last))
    }

    #[inline(always)]
    fn plain(values: &[f32], out: &mut Unwritten) -> u32 {
        one_by_one(values, out, f32::to_le_bytes)
    }
}

/// Writes eight numbers. Returns the bits of their absolute values.
#[inline(always)]
fn put<S: Simd>(simd: S, values: &[f32; 8], out: &mut [MaybeUninit<u8>; 32]) -> u32x8<S> {
    let values = f32x8::load_array_ref(simd, values);
    for (x, out) in values.as_slice().iter().zip(out.as_chunks_mut().0) {
        *out = x.to_le_bytes().map(MaybeUninit::new);
    }
    values.bitcast::<u32x8<S>>() & 0x7fff_ffff
}

/// Little-endian binary16, rounded to nearest, ties to even, and saturated.
struct Binary16;

impl Format for Binary16 {
    const SIZE: usize = 2;
    const MOST: u32 = F16_MAX.to_bits();
    type Bytes = [u8; 32];

    #[inline(always)]
    fn pack<S: Simd>(simd: S, values: &[f32; 16]) -> [u8; 32] {
        #[cfg(target_arch = "x86_64")]
        if let Some(avx512) = simd.level().as_avx512() {
            return f16_sixteen(avx512, values);
        } else if let Some(avx2) = simd.level().as_avx2() {
            return f16_eights(avx2, values);
        }
        let _ = simd;
        let mut bytes = [0; 32];
        for (x, bytes) in values.iter().zip(bytes.as_chunks_mut().0) {
            *bytes = f16_pattern(*x).to_le_bytes();
        }
        bytes
    }

    #[inline(always)]
    fn plain(values: &[f32], out: &mut Unwritten) -> u32 {
        one_by_one(values, out, |x| f16_pattern(x).to_le_bytes())
    }
}

// The instructions for binary16 are 3.6 times as fast as the plain loop.

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    #[inline(always)]
    fn f16_sixteen(avx512: Avx512, values: &[f32; 16]) -> [u8; 32] {
        let values = f32x16::load_array_ref(avx512, values).into();
        let patterns = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(values);
        u8x32::simd_from(avx512, patterns).to_array()
    }
);

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    #[inline(always)]
    fn f16_eights(avx2: Avx2, values: &[f32; 16]) -> [u8; 32] {
        let (low, high) = f32x16::load_array_ref(avx2, values).split();
        let patterns = f16c_patterns(avx2, low).combine(f16c_patterns(avx2, high));
        patterns.bitcast::<u8x32<_>>().to_array()
    }
);

/// Little-endian bfloat16, rounded to nearest, ties to even, and saturated.
struct Bfloat16;

impl Format for Bfloat16 {
    const SIZE: usize = 2;
    const MOST: u32 = BF16_MAX << 16;
    type Bytes = [u8; 32];

    #[inline(always)]
    fn pack<S: Simd>(simd: S, values: &[f32; 16]) -> [u8; 32] {
        let bits: u32x16<S> = f32x16::load_array_ref(simd, values).bitcast();
        // Rounding does not carry into the sign.
        let (low, high) = ((bits + 0x7fff + (bits >> 16 & 1)) >> 16).split();
        low.relaxed_narrow(high).bitcast::<u8x32<S>>().to_array()
    }

    #[inline(always)]
    fn plain(values: &[f32], out: &mut Unwritten) -> u32 {
        one_by_one(values, out, |x| bf16_pattern(x).to_le_bytes())
    }
}

/// Writes `SIZE` bytes of each number. Returns the bits of the largest absolute value.
#[inline(always)]
fn one_by_one<const SIZE: usize>(
    values: &[f32],
    out: &mut Unwritten,
    bytes: impl Fn(f32) -> [u8; SIZE],
) -> u32 {
    let mut largest = 0;
    for (x, out) in values.iter().zip(out.as_chunks_mut().0) {
        *out = bytes(*x).map(MaybeUninit::new);
        largest = largest.max(x.to_bits() & 0x7fff_ffff);
    }
    largest
}

cases![
    ("f32_fill", |input, output| fills(f32_fill, 4, input, output)),
    ("f16_fill", |input, output| fills(f16_fill, 2, input, output)),
    ("bf16_fill", |input, output| fills(bf16_fill, 2, input, output)),
];

#[cfg(test)]
mod tests {
    use alloc::{vec, vec::Vec};

    use super::*;

    type Append = fn(&[f32], &mut Vec<u8>, bool) -> u32;

    const APPEND: [Append; 3] = [
        |values, message, streamed| {
            append(values, 4, message, |room| f32_fill(values, room, streamed))
        },
        |values, message, streamed| {
            append(values, 2, message, |room| f16_fill(values, room, streamed))
        },
        |values, message, streamed| {
            append(values, 2, message, |room| bf16_fill(values, room, streamed))
        },
    ];

    fn append(
        values: &[f32],
        size: usize,
        message: &mut Vec<u8>,
        fill: impl FnOnce(Room<'_>) -> u32,
    ) -> u32 {
        Room::at_end(message, size * values.len(), fill)
    }

    #[test]
    fn messages_by_hand() {
        // 1 and −2 in each format, behind a byte that stays.
        let binary32 = &[7, 0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0];
        let binary16 = &[7, 0x00, 0x3c, 0x00, 0xc0];
        let bfloat16 = &[7, 0x80, 0x3f, 0x00, 0xc0];
        let messages: [&[u8]; 3] = [binary32, binary16, bfloat16];
        for (append, expected) in APPEND.into_iter().zip(messages) {
            let mut message = vec![7];
            assert_eq!(append(&[1.0, -2.0], &mut message, false), 2f32.to_bits());
            assert_eq!(append(&[], &mut message, true), 0);
            assert_eq!(message, expected);
        }
    }

    #[test]
    fn what_is_not_finite_is_seen_anywhere() {
        for (append, streamed) in APPEND.into_iter().flat_map(|one| [(one, false), (one, true)]) {
            for at in 0..40 {
                for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
                    let mut values = [1.0; 40];
                    values[at] = bad;
                    let largest = append(&values, &mut Vec::with_capacity(160), streamed);
                    assert!(largest >= f32::INFINITY.to_bits(), "{at}");
                }
            }
            let largest = append(&[f32::MAX, f32::MIN], &mut Vec::new(), streamed);
            assert_eq!(largest, f32::MAX.to_bits());
        }
    }

    #[test]
    fn large_numbers_saturate() {
        // The second is the least number that bfloat16 would round to infinity, the third the
        // largest binary32.
        for large in [f32::from_bits(0x7f7f_7fff), f32::from_bits(0x7f7f_8000), f32::MAX] {
            for value in [large, -large] {
                let mut message = Vec::with_capacity(64);
                assert_eq!(APPEND[2](&[value; 32], &mut message, true), large.to_bits());
                let largest = [0x7f, 0x7f | (value.to_bits() >> 24) as u8 & 0x80];
                assert_eq!(message, largest.repeat(32), "{value}");
            }
        }
    }
}
