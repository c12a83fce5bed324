//! Appending chosen elements, or their places.

use alloc::vec::Vec;
#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m256, __m256i, _mm256_permutevar8x32_ps};

use fearless_simd::prelude::*;
#[cfg(target_arch = "x86_64")]
use fearless_simd::{f32x8, u32x8};

/// For each byte the places of its ones, in increasing order, and then zeros.
static PLACES: [[u32; 8]; 256] = {
    let mut all = [[0; 8]; 256];
    let mut byte = 0;
    while byte < all.len() {
        let (mut place, mut found) = (0, 0);
        while place < 8 {
            if byte >> place & 1 == 1 {
                all[byte][found] = place;
                found += 1;
            }
            place += 1;
        }
        byte += 1;
    }
    all
};

/// Appends the first `count` elements, at most all. Writes all, whose number is better a constant:
/// then this takes a few instructions and no branch on `count`.
#[inline(always)]
pub(super) fn append_first<T: Copy>(all: &mut Vec<T>, elements: &[T], count: usize) {
    all.extend_from_slice(elements);
    // With the check and the minimum, the compiler knows that the length does not grow.
    let others = elements.len() - count.min(elements.len());
    all.truncate(all.len().checked_sub(others).expect("they were appended"));
}

/// Appends `first`, the same in all lanes, plus the place of each bit that is 1. There are as many
/// bits as lanes.
#[inline(always)]
pub(super) fn append_places<S: Simd>(simd: S, all: &mut Vec<u32>, first: S::u32s, bits: u64) {
    let places = if S::u32s::LEN > 8 {
        let lanes = S::u32s::from_fn(simd, |lane| lane as u32);
        (lanes + first).compress(S::mask32s::from_bitmask(simd, bits))
    } else {
        S::u32s::from_slice(simd, &PLACES[bits as usize][..S::u32s::LEN]) + first
    };
    append_first(all, places.as_slice(), bits.count_ones() as usize);
}

/// Appends the lanes whose bit is 1.
#[inline(always)]
pub(super) fn append_lanes<S: Simd>(simd: S, all: &mut Vec<f32>, lanes: S::f32s, bits: u64) {
    append_first(all, front(simd, lanes, bits).as_slice(), bits.count_ones() as usize);
}

/// The lanes whose bit is 1, and then any.
#[inline(always)]
fn front<S: Simd>(simd: S, lanes: S::f32s, bits: u64) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    if let (8, Some(avx2)) = (S::f32s::LEN, simd.level().as_avx2()) {
        // AVX2: 1.2 to 1.5 times the portable text, which writes zeros behind the lanes.
        let lanes = f32x8::from_slice(avx2, lanes.as_slice());
        let places = u32x8::from_slice(avx2, &PLACES[bits as usize]);
        let front: f32x8<_> = permute(avx2, lanes.into(), places.into()).simd_into(avx2);
        return S::f32s::from_slice(simd, front.as_slice());
    }
    if cfg!(target_arch = "x86_64") && S::f32s::LEN == 4 {
        // SSE2 cannot move lanes to variable places.
        let places = &PLACES[bits as usize];
        return S::f32s::from_fn(simd, |lane| lanes.as_slice()[places[lane] as usize % 4]);
    }
    lanes.compress(S::mask32s::from_bitmask(simd, bits))
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    #[inline(always)]
    fn permute(avx2: Avx2, lanes: __m256, places: __m256i) -> __m256 {
        _mm256_permutevar8x32_ps(lanes, places)
    }
);
