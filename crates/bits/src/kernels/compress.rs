//! Moving the selected bytes of a register to its front, with AVX2.

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

/// The lower eight bytes of `x` whose bit in `mask` is 1, in order, and then byte 0 repeated.
#[target_feature(enable = "avx2")]
#[inline]
pub(super) fn compress_bytes(x: __m128i, mask: u8) -> __m128i {
    _mm_shuffle_epi8(x, _mm_cvtsi64_si128(LANES[usize::from(mask)] as i64))
}
