//! The places of the bits that are 1.

use alloc::vec::Vec;

/// Bits of a word.
const WORD: u32 = 64;

/// Appends `base` plus the index of each bit that is 1, in order. Bit i is bit i mod 8 of byte i
/// / 8. Sums wrap around.
pub fn ones(bits: &[u8], base: u32, positions: &mut Vec<u32>) {
    let (words, rest) = bits.as_chunks();
    let after = base.wrapping_add(WORD.wrapping_mul(words.len() as u32));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::ones(words, base, positions) };
        return ones_scalar(rest, after, positions);
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        // SAFETY: as above.
        unsafe { avx2::ones(words, base, positions) };
        return ones_scalar(rest, after, positions);
    }
    for (word, base) in words.iter().zip((0..).map(|at| base.wrapping_add(WORD.wrapping_mul(at)))) {
        append(u64::from_le_bytes(*word), base, positions);
    }
    ones_scalar(rest, after, positions);
}

fn ones_scalar(bits: &[u8], base: u32, positions: &mut Vec<u32>) {
    for (at, &byte) in (0u32..).zip(bits) {
        append(u64::from(byte), base.wrapping_add(8 * at), positions);
    }
}

/// Appends the places of the ones of a word.
fn append(mut word: u64, base: u32, positions: &mut Vec<u32>) {
    while word != 0 {
        positions.push(base.wrapping_add(word.trailing_zeros()));
        word &= word - 1;
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::WORD;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,popcnt")]
    pub(super) fn ones(words: &[[u8; 8]], base: u32, positions: &mut Vec<u32>) {
        let lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        let mut places = _mm512_add_epi32(lanes, _mm512_set1_epi32(base as i32));
        for word in words {
            positions.reserve(WORD as usize);
            for mask in word.as_chunks::<2>().0 {
                let mask = u16::from_le_bytes(*mask);
                // SAFETY: there is room for the places of a word, and this store begins at most
                // sixteen after the one before. The length grows by the number of ones.
                unsafe {
                    let end = positions.as_mut_ptr().add(positions.len());
                    _mm512_storeu_si512(end.cast(), _mm512_maskz_compress_epi32(mask, places));
                    positions.set_len(positions.len() + mask.count_ones() as usize);
                }
                places = _mm512_add_epi32(places, _mm512_set1_epi32(16));
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::WORD;
    use crate::kernels::compress::compress;
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    /// If ones are rare, words with at most this many are handled bit by bit.
    const FEW: usize = 2;

    #[target_feature(enable = "avx2,popcnt,bmi1")]
    pub(super) fn ones(words: &[[u8; 8]], base: u32, positions: &mut Vec<u32>) {
        // The branch in `sparse` is predicted well only if nearly all words have few ones.
        if words.iter().map(count).sum::<usize>() < words.len() {
            sparse(words, base, positions);
        } else {
            dense(words, base, positions);
        }
    }

    #[inline(always)]
    fn count(word: &[u8; 8]) -> usize {
        u64::from_le_bytes(*word).count_ones() as usize
    }

    #[target_feature(enable = "avx2,popcnt,bmi1")]
    fn sparse(words: &[[u8; 8]], mut base: u32, positions: &mut Vec<u32>) {
        for word in words {
            if count(word) <= FEW {
                positions.reserve(FEW);
                let mut left = u64::from_le_bytes(*word);
                for room in &mut positions.spare_capacity_mut()[..FEW] {
                    // No branch on the word: places that it does not have are written but not
                    // counted.
                    room.write(base.wrapping_add(left.trailing_zeros()));
                    left &= left.wrapping_sub(1);
                }
                // SAFETY: `FEW` places were written, and the word has no more.
                unsafe { positions.set_len(positions.len() + count(word)) };
            } else {
                dense(core::slice::from_ref(word), base, positions);
            }
            base = base.wrapping_add(WORD);
        }
    }

    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    fn dense(words: &[[u8; 8]], base: u32, positions: &mut Vec<u32>) {
        let lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        let mut places = _mm256_add_epi32(lanes, _mm256_set1_epi32(base as i32));
        for word in words {
            positions.reserve(WORD as usize);
            for &mask in word {
                // SAFETY: there is room for the places of a word, and this store begins at most
                // eight behind the one before. The length grows by the number of ones.
                unsafe {
                    let end = positions.as_mut_ptr().add(positions.len());
                    _mm256_storeu_si256(end.cast(), compress(places, mask));
                    positions.set_len(positions.len() + mask.count_ones() as usize);
                }
                places = _mm256_add_epi32(places, _mm256_set1_epi32(8));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_by_hand() {
        let mut bits = [0; 19];
        (bits[0], bits[7], bits[8], bits[17], bits[18]) = (0b101, 0x80, 0xff, 0b10, 0x80);
        let mut positions = alloc::vec![7];
        ones(&bits, 1000, &mut positions);
        let expected = [7, 1000, 1002, 1063].into_iter().chain(1064..1072).chain([1137, 1151]);
        assert!(positions.into_iter().eq(expected));
    }

    #[test]
    fn places_wrap_around() {
        let mut positions = Vec::new();
        ones(&[0x81; 10], u32::MAX - 7, &mut positions);
        assert_eq!(positions[..4], [u32::MAX - 7, u32::MAX, 0, 7]);
        assert_eq!(positions.len(), 20);
    }
}
