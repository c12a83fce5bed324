//! Random words for rounding; groups of elements share the lower bits.

/// The number of elements that share the lower bits of their words.
pub const SHARING: usize = 16;

/// Writes words: the upper 8 bits are the element's own byte, the next 16 are shared by its group
/// of [`SHARING`] elements, and the lowest 8 are 0. Processes the shortest length.
pub fn spread(own: &[u8], shared: &[u16], out: &mut [u32]) {
    let len = out.len().min(own.len());
    let (groups, rest) = out[..len].as_chunks_mut::<SHARING>();
    let (bytes, last) = own[..len].as_chunks::<SHARING>();
    spread_groups(bytes, shared, groups);
    if let Some(&low) = shared.get(groups.len()) {
        spread_group(last, low, rest);
    }
}

fn spread_groups(own: &[[u8; SHARING]], shared: &[u16], out: &mut [[u32; SHARING]]) {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        // SAFETY: the processor has the features the function is compiled for.
        return unsafe { avx512::spread(own, shared, out) };
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        // SAFETY: as above.
        return unsafe { avx2::spread(own, shared, out) };
    }
    for ((words, bytes), &low) in out.iter_mut().zip(own).zip(shared) {
        spread_group(bytes, low, words);
    }
}

/// The words of a group, or of a part of one.
fn spread_group(bytes: &[u8], low: u16, words: &mut [u32]) {
    for (word, &byte) in words.iter_mut().zip(bytes) {
        *word = u32::from(byte) << 24 | u32::from(low) << 8;
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use super::SHARING;
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn spread(own: &[[u8; SHARING]], shared: &[u16], out: &mut [[u32; SHARING]]) {
        for ((words, bytes), &low) in out.iter_mut().zip(own).zip(shared) {
            let low = _mm512_set1_epi32(i32::from(low) << 8);
            // SAFETY: the arrays hold the sixteen bytes that are read and the sixteen words that
            // are written.
            unsafe {
                let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(bytes.as_ptr().cast()));
                let spread = _mm512_or_si512(_mm512_slli_epi32::<24>(bytes), low);
                _mm512_storeu_si512(words.as_mut_ptr().cast(), spread);
            }
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use super::SHARING;
    use core::arch::x86_64::*;

    // The compiler does not vectorise the scalar loop above.
    #[target_feature(enable = "avx2")]
    pub(super) fn spread(own: &[[u8; SHARING]], shared: &[u16], out: &mut [[u32; SHARING]]) {
        for ((words, bytes), &low) in out.iter_mut().zip(own).zip(shared) {
            let low = _mm256_set1_epi32(i32::from(low) << 8);
            let half =
                |bytes| _mm256_or_si256(_mm256_slli_epi32::<24>(_mm256_cvtepu8_epi32(bytes)), low);
            // SAFETY: the arrays hold the sixteen bytes that are read and the sixteen words that
            // are written.
            unsafe {
                let bytes = _mm_loadu_si128(bytes.as_ptr().cast());
                let words = words.as_mut_ptr().cast::<__m256i>();
                _mm256_storeu_si256(words, half(bytes));
                _mm256_storeu_si256(words.add(1), half(_mm_srli_si128::<8>(bytes)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_by_hand() {
        let mut own = [0; 18];
        (own[0], own[1], own[16]) = (0xff, 1, 0x80);
        let mut words = [9; 18];
        spread(&own, &[0x1234, 0xabcd], &mut words);
        assert_eq!(words[..3], [0xff12_3400, 0x0112_3400, 0x0012_3400]);
        assert_eq!(words[15..], [0x0012_3400, 0x80ab_cd00, 0x00ab_cd00]);
    }
}
