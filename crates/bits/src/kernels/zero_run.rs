//! The inner loops of the [zero-run code](crate::zero_run).

use alloc::vec::Vec;

use super::kernel;
#[cfg(all(target_arch = "x86_64", feature = "std"))]
use crate::zero_run::run_bytes::{LONGEST, code};

kernel! {
    /// The number of bytes that coded bytes expand to.
    pub(crate) fn expanded_len(coded: &[u8]) -> usize {
        let mut total = coded.len();
        // A run byte stands for 2 to 14 bytes, so 2^20 of them fit in 32 bits.
        for stretch in coded.chunks(1 << 20) {
            let extra = |&byte: &u8| u32::from(byte.saturating_sub(242));
            total += stretch.iter().map(extra).sum::<u32>() as usize;
        }
        total
    }
}

/// Which of 64 bytes are above a limit, the first one in the lowest bit.
#[inline]
pub(crate) fn above(word: &[u8; 64], limit: u8) -> u64 {
    // Every processor of the architecture has SSE2.
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::*;
        word.as_chunks::<16>().0.iter().rev().fold(0, |bits, quarter| {
            // SAFETY: the array holds the sixteen bytes that are read, and the processor has SSE2.
            let within = unsafe {
                let bytes = _mm_loadu_si128(quarter.as_ptr().cast());
                let limits = _mm_set1_epi8(limit as i8);
                _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_max_epu8(bytes, limits), limits))
            };
            bits << 16 | u64::from(!within as u16)
        })
    }
    #[cfg(not(target_arch = "x86_64"))]
    word.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(byte > limit))
}

/// Encodes whole words of 64 bytes, if the processor supports this, and returns the number of
/// encoded bytes. A run of `pending` zeros (up to 14) precedes them; afterwards `pending` is the
/// unwritten run at their end.
pub(crate) fn encode_words(digits: &[u8], pending: &mut usize, out: &mut Vec<u8>) -> usize {
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let words = digits.as_chunks::<64>().0;
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::encode(words, pending, out) };
        return 64 * words.len();
    }
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let words = digits.as_chunks::<64>().0;
        // SAFETY: as above.
        unsafe { avx2::encode(words, pending, out) };
        return 64 * words.len();
    }
    let _ = (digits, pending, out);
    0
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    use super::{encode_runs, has_long_run};
    use crate::zero_run::run_bytes::{LONGEST, ZEROS, code};

    /// Encodes a word of 64 bytes at once: The byte at the end of each run becomes the run's code,
    /// and one compression of the register removes the other bytes of runs. A run at the end of the
    /// word stays pending; words with runs longer than [`LONGEST`] are encoded run by run.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,popcnt")]
    pub(super) fn encode(words: &[[u8; 64]], pending: &mut usize, out: &mut Vec<u8>) {
        for word in words {
            // SAFETY: the word holds the 64 bytes that are read.
            let bytes = unsafe { _mm512_loadu_si512(word.as_ptr().cast()) };
            let zeros = _mm512_cmpeq_epi8_mask(bytes, _mm512_set1_epi8(ZEROS as i8));
            // One byte may be flushed before the word, and a whole register is stored.
            out.reserve(1 + 64);
            let leading = zeros.trailing_ones() as usize;
            if has_long_run(zeros) || *pending + leading > LONGEST {
                encode_runs(word, zeros, pending, out);
            } else {
                if leading == 0 && *pending > 0 {
                    out.push(code(*pending));
                    *pending = 0;
                }
                let trailing = zeros.leading_ones();
                let lead = if leading == 0 { 0 } else { (1u64 << leading) - 1 };
                let lengths = _mm512_mask_add_epi8(
                    run_lengths(zeros),
                    lead,
                    run_lengths(zeros),
                    _mm512_set1_epi8(*pending as i8),
                );
                let ends = zeros & !(zeros >> 1) & !(u64::from(trailing > 0) << 63);
                let codes = _mm512_add_epi8(lengths, _mm512_set1_epi8(241u8 as i8));
                let long = _mm512_mask_cmpgt_epu8_mask(ends, lengths, _mm512_set1_epi8(1));
                let coded = _mm512_mask_mov_epi8(bytes, long, codes);
                let keep = !zeros | ends;
                // SAFETY: 64 bytes of capacity are reserved after the length; a whole register is
                // stored there, and the length grows by the bytes that are kept.
                unsafe {
                    let end = out.as_mut_ptr().add(out.len());
                    _mm512_storeu_si512(end.cast(), _mm512_maskz_compress_epi8(keep, coded));
                    out.set_len(out.len() + keep.count_ones() as usize);
                }
                *pending = trailing as usize;
            }
        }
    }

    /// For each set bit, the length of the run of set bits that ends with it, up to 16.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    fn run_lengths(zeros: u64) -> __m512i {
        let index: [u8; 64] = core::array::from_fn(|i| i as u8);
        // SAFETY: the array holds the 64 bytes that are read.
        let index = unsafe { _mm512_loadu_si512(index.as_ptr().cast()) };
        let mut lengths = _mm512_maskz_set1_epi8(zeros, 1);
        // If the last `step` bytes are all in the run, adds the count of the bytes before them.
        for step in [1i8, 2, 4, 8] {
            let full = _mm512_cmpeq_epi8_mask(lengths, _mm512_set1_epi8(step));
            let before = _mm512_sub_epi8(index, _mm512_set1_epi8(step));
            let inside = !0u64 << step;
            let earlier = _mm512_maskz_permutexvar_epi8(inside, before, lengths);
            lengths = _mm512_mask_add_epi8(lengths, full, lengths, earlier);
        }
        lengths
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use alloc::vec::Vec;
    use core::arch::x86_64::*;

    use super::super::compress::compress_bytes;
    use super::{encode_runs, has_long_run};
    use crate::zero_run::run_bytes::{LONGEST, ZEROS, code};

    /// The most bytes written for a word: its own and the run before it. A run that ends a quarter
    /// is written with the next quarter, so each quarter begins at most one byte after its own
    /// place.
    const ROOM: usize = 64 + 1;

    /// Encodes a word of 64 bytes by its quarters. A run at the end of the word stays pending;
    /// words with runs longer than [`LONGEST`] are encoded run by run.
    #[target_feature(enable = "avx2,popcnt")]
    pub(super) fn encode(words: &[[u8; 64]], pending: &mut usize, out: &mut Vec<u8>) {
        for word in words {
            let zeros = zeros(word);
            let leading = zeros.trailing_ones() as usize;
            if has_long_run(zeros) || *pending + leading > LONGEST {
                encode_runs(word, zeros, pending, out);
                continue;
            }
            out.reserve(ROOM);
            let mut len = out.len();
            for (quarter, bytes) in word.as_chunks::<16>().0.iter().enumerate() {
                let zeros = (zeros >> (16 * quarter)) as u16;
                // SAFETY: room for 17 bytes is left for each quarter.
                len += unsafe { encode_quarter(bytes, zeros, pending, out.as_mut_ptr().add(len)) };
            }
            // SAFETY: this number of bytes has been written.
            unsafe { out.set_len(len) };
        }
    }

    /// Encodes sixteen bytes as the AVX-512 version does a word, and returns the number of bytes
    /// written. No run, including the pending zeros, is longer than [`LONGEST`].
    ///
    /// # Safety
    /// There is room for 17 bytes at `out`.
    #[target_feature(enable = "avx2,popcnt")]
    #[inline]
    unsafe fn encode_quarter(
        bytes: &[u8; 16],
        zeros: u16,
        pending: &mut usize,
        out: *mut u8,
    ) -> usize {
        // SAFETY: the array holds the sixteen bytes that are read.
        let bytes = unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) };
        let is_zero = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(ZEROS as i8));
        let lengths = run_lengths(is_zero);
        let places = _mm_setr_epi8(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16);
        // If the run began with the first byte, the pending run is part of it.
        let first = _mm_cmpeq_epi8(lengths, places);
        let lengths = _mm_add_epi8(lengths, _mm_and_si128(first, _mm_set1_epi8(*pending as i8)));
        let long = _mm_cmpgt_epi8(lengths, _mm_set1_epi8(1));
        let codes = _mm_add_epi8(lengths, _mm_set1_epi8(241u8 as i8));
        let coded = _mm_blendv_epi8(bytes, codes, long);

        let flushes = *pending > 0 && zeros & 1 == 0;
        let kept = !zeros | (zeros & !(zeros >> 1) & 0x7fff);
        let [low, high] = kept.to_le_bytes();
        let mut len = usize::from(flushes);
        // SAFETY: one byte and two registers of eight bytes are written, the last after at most
        // nine bytes.
        unsafe {
            out.write(if *pending > 0 { code(*pending) } else { 0 });
            _mm_storel_epi64(out.add(len).cast(), compress_bytes(coded, low));
            len += low.count_ones() as usize;
            let coded = _mm_srli_si128::<8>(coded);
            _mm_storel_epi64(out.add(len).cast(), compress_bytes(coded, high));
            len += high.count_ones() as usize;
        }
        *pending = zeros.leading_ones() as usize;
        len
    }

    /// For each byte of all ones, the length of the run of such bytes that ends there.
    #[target_feature(enable = "avx2")]
    #[inline]
    fn run_lengths(set: __m128i) -> __m128i {
        let lengths = _mm_and_si128(set, _mm_set1_epi8(1));
        // If the last bytes, one, two, four or eight, are all in the run, adds the count of the
        // bytes before them.
        let lengths = lengthened(lengths, 1, _mm_slli_si128::<1>(lengths));
        let lengths = lengthened(lengths, 2, _mm_slli_si128::<2>(lengths));
        let lengths = lengthened(lengths, 4, _mm_slli_si128::<4>(lengths));
        lengthened(lengths, 8, _mm_slli_si128::<8>(lengths))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn lengthened(lengths: __m128i, full: i8, earlier: __m128i) -> __m128i {
        let full = _mm_cmpeq_epi8(lengths, _mm_set1_epi8(full));
        _mm_add_epi8(lengths, _mm_and_si128(full, earlier))
    }

    /// Which bytes of a word are [`ZEROS`].
    #[target_feature(enable = "avx2")]
    #[inline]
    fn zeros(word: &[u8; 64]) -> u64 {
        let zero = _mm256_set1_epi8(ZEROS as i8);
        let (halves, _) = word.as_chunks::<32>();
        halves.iter().rev().fold(0, |zeros, half| {
            // SAFETY: the array holds the 32 bytes that are read.
            let bytes = unsafe { _mm256_loadu_si256(half.as_ptr().cast()) };
            let mask = _mm256_movemask_epi8(_mm256_cmpeq_epi8(bytes, zero)) as u32;
            zeros << 32 | u64::from(mask)
        })
    }
}

/// Whether more than [`LONGEST`] bits in a row are set.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn has_long_run(zeros: u64) -> bool {
    let two = zeros & zeros << 1;
    let four = two & two << 2;
    let eight = four & four << 4;
    eight & eight << 7 != 0
}

/// Encodes a word run by run, which is fast for long runs.
#[cfg(all(target_arch = "x86_64", feature = "std"))]
fn encode_runs(word: &[u8; 64], zeros: u64, pending: &mut usize, out: &mut Vec<u8>) {
    let mut at = 0;
    while at < 64 {
        let rest = zeros >> at;
        let run = (rest.trailing_ones() as usize).min(64 - at);
        *pending += run;
        at += run;
        while *pending > LONGEST {
            out.push(code(LONGEST));
            *pending -= LONGEST;
        }
        if at == 64 {
            break;
        }
        if *pending > 0 {
            out.push(code(*pending));
            *pending = 0;
        }
        let literals = ((zeros >> at).trailing_zeros() as usize).min(64 - at);
        out.extend_from_slice(&word[at..at + literals]);
        at += literals;
    }
}

#[cfg(test)]
mod tests {
    use super::above;

    #[test]
    fn bytes_above_the_limit() {
        assert_eq!(above(&[100; 64], 100), 0);
        assert_eq!(above(&[101; 64], 100), u64::MAX);
        let bytes = core::array::from_fn(|at| at as u8 * 4);
        assert_eq!(above(&bytes, 242), 0b111 << 61);
        assert_eq!(above(&core::array::from_fn(|at| 255 * (at == 5) as u8), 254), 1 << 5);
    }
}
