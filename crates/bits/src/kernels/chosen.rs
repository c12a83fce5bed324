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

/// Whether a lane of one of four masks is true.
#[inline(always)]
pub(super) fn any_of_four<S: Simd>([a, b, c, d]: [S::mask32s; 4]) -> bool {
    if cfg!(target_arch = "aarch64") {
        // Not of their union: LLVM would compare the largest of four numbers, which FMAXNM does not
        // find beside a signalling NaN.
        return a.to_bitmask() | b.to_bitmask() | c.to_bitmask() | d.to_bitmask() != 0;
    }
    ((a | b) | (c | d)).any_true()
}

/// Appends the first elements of each of `parts` arrays of `len` elements; `part` gives an array
/// and their number. Writes all elements, without a branch on the number.
///
/// # Panics
/// If there is no capacity for all elements. To reserve it here would be slow: loops that may call
/// something keep few vectors in registers.
#[inline(always)]
pub(super) fn append_first<T: Copy, A: AsRef<[T]>>(
    all: &mut Vec<T>,
    parts: usize,
    len: usize,
    mut part: impl FnMut(usize) -> (A, u32),
) {
    let mut end = all.len();
    assert!(all.capacity() - end >= parts.saturating_mul(len), "there is capacity");
    let start = all.as_mut_ptr();
    for i in 0..parts {
        let (elements, count) = part(i);
        let elements = &elements.as_ref()[..len];
        // SAFETY: there is capacity for all parts, and each begins at most `len` after the one
        // before.
        unsafe { start.add(end).copy_from_nonoverlapping(elements.as_ptr(), len) };
        end += len.min(count as usize);
    }
    // SAFETY: there is capacity, and the elements up to here were written.
    unsafe { all.set_len(end) };
}

/// Appends the places of bits that are 1, if the first bit has the place `first` in every lane.
/// Each of the parts has a bit for each lane; those behind are ignored.
#[inline(always)]
pub(super) fn append_places<S: Simd>(
    simd: S,
    all: &mut Vec<u32>,
    mut first: S::u32s,
    parts: usize,
    bits: impl Fn(usize) -> u64,
) {
    let lanes = S::u32s::from_fn(simd, |lane| lane as u32);
    append_first(
        all,
        parts,
        S::u32s::LEN,
        #[inline(always)]
        |part| {
            let bits = bits(part) & ((1 << S::u32s::LEN) - 1);
            let places = if S::u32s::LEN > 8 {
                (lanes + first).compress(S::mask32s::from_bitmask(simd, bits))
            } else {
                S::u32s::from_slice(simd, &PLACES[bits as usize][..S::u32s::LEN]) + first
            };
            first += S::u32s::LEN as u32;
            (<S::u32s as SimdBase<S>>::Array::from(places), bits.count_ones())
        },
    );
}

/// Appends the elements of a group of `parts` vectors for which `chosen` gives true.
#[inline(always)]
pub(super) fn append_lanes<S: Simd>(
    simd: S,
    all: &mut Vec<f32>,
    group: &[f32],
    parts: usize,
    mut chosen: impl FnMut(usize, S::f32s) -> S::mask32s,
) {
    append_first(
        all,
        parts,
        S::f32s::LEN,
        #[inline(always)]
        |part| {
            let lanes = S::f32s::from_slice(simd, &group[S::f32s::LEN * part..][..S::f32s::LEN]);
            let chosen = chosen(part, lanes);
            let count = chosen.to_bitmask().count_ones();
            (<S::f32s as SimdBase<S>>::Array::from(front(simd, lanes, chosen)), count)
        },
    );
}

/// The lanes whose mask is true, and then any.
#[inline(always)]
fn front<S: Simd>(simd: S, lanes: S::f32s, chosen: S::mask32s) -> S::f32s {
    #[cfg(target_arch = "x86_64")]
    if let (8, Some(avx2)) = (S::f32s::LEN, simd.level().as_avx2()) {
        // AVX2: 1.2 to 1.5 times the portable text, which writes zeros behind the lanes.
        let lanes = f32x8::from_slice(avx2, lanes.as_slice());
        let places = u32x8::from_slice(avx2, &PLACES[chosen.to_bitmask() as usize]);
        let front: f32x8<_> = permute(avx2, lanes.into(), places.into()).simd_into(avx2);
        return S::f32s::from_slice(simd, front.as_slice());
    }
    if cfg!(target_arch = "x86_64") && S::f32s::LEN == 4 {
        // SSE2 cannot move lanes to variable places.
        let places = &PLACES[chosen.to_bitmask() as usize];
        return S::f32s::from_fn(simd, |lane| lanes.as_slice()[places[lane] as usize % 4]);
    }
    lanes.compress(chosen)
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel!(
    #[inline(always)]
    fn permute(avx2: Avx2, lanes: __m256, places: __m256i) -> __m256 {
        _mm256_permutevar8x32_ps(lanes, places)
    }
);
