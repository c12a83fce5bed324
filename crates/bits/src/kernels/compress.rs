//! Moving the selected lanes of a register to its front, with AVX2.

use core::arch::x86_64::*;

/// For each mask the indices of its set bits, in increasing order, a byte each. The other bytes are
/// 0 and unused.
const LANES: [u64; 256] = {
    let mut lanes = [0; 256];
    let mut mask = 0;
    while mask < lanes.len() {
        let (mut lane, mut shift) = (0, 0);
        while lane < 8 {
            if mask >> lane & 1 == 1 {
                lanes[mask] |= lane << shift;
                shift += 8;
            }
            lane += 1;
        }
        mask += 1;
    }
    lanes
};

/// The lanes of `x` whose bit in `mask` is 1, in order, and then lane 0 repeated.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn compress(x: __m256i, mask: u8) -> __m256i {
    let lanes = _mm256_cvtepu8_epi32(_mm_cvtsi64_si128(LANES[usize::from(mask)] as i64));
    _mm256_permutevar8x32_epi32(x, lanes)
}
