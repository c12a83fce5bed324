//! Codes of symbols, looked up and joined four at a time.
//!
//! A word is a `u64` with one code or several joined codes. Their bits are at the top of the word,
//! the first bit lowest; their number is in the lowest byte. To append a code to a word, shift the
//! bits of the word right by the length of the code, and add the bits of the code with an "or".

use super::kernel;
use crate::group_writer::{Bits, Buffer};

/// The most symbols that have short codes.
const SYMBOLS: usize = 256;
/// The most bits of a short code, so a code with its length takes two bytes.
const MOST_BITS: u32 = 12;

/// Codes of at most 12 bits for symbols of one byte, prepared for [`join_codes`].
#[derive(Debug, Clone)]
pub struct ShortCodes {
    /// By symbol: its code in the upper twelve bits, the first one lowest, and its length in the
    /// lower four.
    entries: [u16; SYMBOLS],
}

impl Default for ShortCodes {
    /// Codes without any bits.
    fn default() -> Self {
        Self { entries: [0; SYMBOLS] }
    }
}

impl ShortCodes {
    /// Replaces all codes by the codes in these words, the first for symbol 0. Symbols beyond the
    /// last get codes without bits.
    ///
    /// # Panics
    /// If there are more than 256 words, or a code has more than 12 bits.
    pub fn set(&mut self, words: &[u64]) {
        self.entries = [0; SYMBOLS];
        for (entry, word) in self.entries[..words.len()].iter_mut().zip(words) {
            let length = word & 0xff;
            assert!(length <= u64::from(MOST_BITS), "a code of {length} bits is not short");
            *entry = (word >> 48 | length) as u16;
        }
    }
}

/// Writes the joined codes of each four symbols, up to 48 bits; the bits between the codes and the
/// length byte are zero. Only the lower byte of a symbol counts. Processes the shorter length.
pub fn join_codes(symbols: &[[u16; 4]], codes: &ShortCodes, words: &mut [u64]) {
    let len = symbols.len().min(words.len());
    let (symbols, words) = (&symbols[..len], &mut words[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let ((groups, rest), (eights, last)) = (symbols.as_chunks(), words.as_chunks_mut());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::join_codes(groups, &codes.entries, eights) };
        return join_codes_scalar(rest, codes, last);
    }
    join_codes_scalar(symbols, codes, words);
}

fn join_codes_scalar(symbols: &[[u16; 4]], codes: &ShortCodes, words: &mut [u64]) {
    for (symbols, word) in symbols.iter().zip(words) {
        *word = joined(symbols.map(|symbol| codes.entries[usize::from(symbol as u8)]));
    }
}

/// Joins each four codes of two bytes, as [`join_codes`] does: a code is in the upper twelve bits,
/// the first one lowest, and its length in the lower four. Processes the shorter length.
pub fn join_entries(entries: &[[u16; 4]], words: &mut [u64]) {
    let len = entries.len().min(words.len());
    let (entries, words) = (&entries[..len], &mut words[..len]);
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx512() {
        let ((groups, rest), (eights, last)) = (entries.as_chunks(), words.as_chunks_mut());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx512::join_entries(groups, eights) };
        return join_entries_scalar(rest, last);
    }
    join_entries_scalar(entries, words);
}

fn join_entries_scalar(entries: &[[u16; 4]], words: &mut [u64]) {
    for (&entries, word) in entries.iter().zip(words) {
        *word = joined(entries);
    }
}

/// Four codes of two bytes as a word.
#[inline(always)]
fn joined(entries: [u16; 4]) -> u64 {
    let (mut code, mut width) = (0u64, 0);
    for entry in entries.map(u64::from) {
        code = code >> (entry & 0xf) | entry >> 4 << (64 - MOST_BITS);
        width += entry & 0xf;
    }
    code | width
}

kernel! {
    /// Writes the bits of words, after the bits that did not fill a byte, as far as they fill
    /// bytes; returns the number of bytes. Each word starts where the previous one ends, so each
    /// shift by a length delays all words after it. With BMI2 a shift is one instruction.
    pub(crate) fn pack_words(words: &[u64], bits: &mut Bits, buffer: &mut Buffer) -> usize {
        bits.pack(words.iter().map(|&word| (word, word)), buffer)
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx512 {
    use core::arch::x86_64::*;

    use super::SYMBOLS;

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn join_codes(
        symbols: &[[[u16; 4]; 8]],
        entries: &[u16; SYMBOLS],
        words: &mut [[u64; 8]],
    ) {
        // SAFETY: the array holds eight times 32 entries.
        let [t0, t1, t2, t3, t4, t5, t6, t7] = core::array::from_fn(|at| unsafe {
            _mm512_loadu_si512(entries.as_ptr().add(32 * at).cast())
        });
        for (symbols, words) in symbols.iter().zip(words) {
            // SAFETY: the array holds the 32 symbols that are read.
            let s = unsafe { _mm512_loadu_si512(symbols.as_ptr().cast()) };
            // Six bits of a symbol choose one of 64 entries, the next two one of four.
            let sixth = _mm512_test_epi16_mask(s, _mm512_set1_epi16(1 << 6));
            let seventh = _mm512_test_epi16_mask(s, _mm512_set1_epi16(1 << 7));
            let low = _mm512_mask_blend_epi16(
                sixth,
                _mm512_permutex2var_epi16(t0, s, t1),
                _mm512_permutex2var_epi16(t2, s, t3),
            );
            let high = _mm512_mask_blend_epi16(
                sixth,
                _mm512_permutex2var_epi16(t4, s, t5),
                _mm512_permutex2var_epi16(t6, s, t7),
            );
            let entry = _mm512_mask_blend_epi16(seventh, low, high);
            // SAFETY: the array holds the eight words that are written.
            unsafe { _mm512_storeu_si512(words.as_mut_ptr().cast(), joined(entry)) };
        }
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    pub(super) fn join_entries(entries: &[[[u16; 4]; 8]], words: &mut [[u64; 8]]) {
        for (entries, words) in entries.iter().zip(words) {
            // SAFETY: the arrays hold the 32 entries that are read and the eight words that are
            // written.
            unsafe {
                let entry = _mm512_loadu_si512(entries.as_ptr().cast());
                _mm512_storeu_si512(words.as_mut_ptr().cast(), joined(entry));
            }
        }
    }

    /// Each four of 32 codes as a word.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
    #[inline]
    fn joined(entry: __m512i) -> __m512i {
        let length = _mm512_and_si512(entry, _mm512_set1_epi16(0xf));
        let code = _mm512_xor_si512(entry, length);
        // Moves the first of two codes to the upper half of 32 bits, and places the second, already
        // there, behind it.
        let (behind, first) = (_mm512_srli_epi32::<16>(length), _mm512_slli_epi32::<16>(code));
        let second = _mm512_and_si512(code, _mm512_set1_epi32(0xffff << 16));
        let pair = _mm512_or_si512(_mm512_srlv_epi32(first, behind), second);
        let width = _mm512_add_epi32(behind, length);
        // The same with two pairs. The lengths of the first pairs are still in the upper half of
        // the widths.
        let width = _mm512_and_si512(width, _mm512_set1_epi32(0xff));
        let (behind, first) = (_mm512_srli_epi64::<32>(width), _mm512_slli_epi64::<32>(pair));
        let second = _mm512_and_si512(pair, _mm512_set1_epi64(!0 << 32));
        let codes = _mm512_or_si512(_mm512_srlv_epi64(first, behind), second);
        let width = _mm512_and_si512(_mm512_add_epi64(behind, width), _mm512_set1_epi64(0xff));
        _mm512_or_si512(codes, width)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn four_codes_by_hand() {
        // 0, 10 and 110000000101, from the first bit on.
        let word = |code: u64, length: u32| code << (64 - length) | u64::from(length);
        let long = 0b1010_0000_0011;
        let mut codes = ShortCodes::default();
        codes.set(&[word(0b0, 1), word(0b01, 2), word(long, 12)]);
        // Symbol 0x100 has the code of 0, and 9 has none. Eight groups are processed together.
        let three = [[0, 1, 2, 1], [2, 2, 2, 2], [0, 9, 0x100, 1]];
        let symbols: Vec<[u16; 4]> = three.into_iter().cycle().take(13).collect();
        let mut words = [7; 13];
        join_codes(&symbols, &codes, &mut words);
        let all = long | long << 12 | long << 24 | long << 36;
        let mixed = 0b01 << 15 | long << 3 | 0b01 << 1;
        let expected = [word(mixed, 17), word(all, 48), word(0b0100, 4)];
        assert!(words.iter().eq(expected.iter().cycle().take(13)), "{words:x?}");
    }

    #[test]
    #[should_panic(expected = "13 bits")]
    fn long_codes_are_refused() {
        ShortCodes::default().set(&[13]);
    }
}
