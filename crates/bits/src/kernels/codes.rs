//! Codes of symbols, looked up and joined four at a time.
//!
//! A word is a `u64` with one code or several joined codes. Their bits are at the top of the word,
//! the first bit lowest; their number is in the lowest byte. To append a code to a word, shift the
//! bits of the word right by the length of the code, and add the bits of the code with an "or".

use fearless_simd::prelude::*;

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
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::level::used().as_avx512() {
        return look_up_and_join(avx512, symbols, codes, words);
    }
    plain_codes(symbols, codes, words);
}

fn plain_codes(symbols: &[[u16; 4]], codes: &ShortCodes, words: &mut [u64]) {
    for (symbols, word) in symbols.iter().zip(words) {
        *word = joined(symbols.map(|symbol| codes.entries[usize::from(symbol as u8)]));
    }
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    /// [`join_codes`] with tables in registers. AVX-512: 4 times the speed of the portable text.
    fn look_up_and_join(
        avx512: Avx512,
        symbols: &[[u16; 4]],
        codes: &ShortCodes,
        words: &mut [u64],
    ) {
        use core::arch::x86_64::_mm512_permutex2var_epi16;
        use fearless_simd::u16x32;

        let len = symbols.len().min(words.len());
        let (groups, rest) = symbols[..len].as_chunks::<8>();
        let (eights, last) = words[..len].as_chunks_mut::<8>();
        let tables: [u16x32<_>; 8] =
            core::array::from_fn(|at| u16x32::from_slice(avx512, &codes.entries[32 * at..][..32]));
        for (symbols, words) in groups.iter().zip(eights) {
            let symbols = u16x32::from_slice(avx512, symbols.as_flattened());
            // Six bits of a symbol choose one of 64 entries, the next two one of four.
            let entries: [u16x32<_>; 4] = core::array::from_fn(|at| {
                let [low, high] = [tables[2 * at], tables[2 * at + 1]].map(Into::into);
                _mm512_permutex2var_epi16(low, symbols.into(), high).simd_into(avx512)
            });
            let sixth = (symbols & (1 << 6)).simd_ne(0);
            let [low, high] = [[0, 1], [2, 3]].map(|[a, b]| sixth.select(entries[b], entries[a]));
            let entry = (symbols & (1 << 7)).simd_ne(0).select(high, low);
            join_vector(avx512, entry).store_slice(words);
        }
        plain_codes(rest, codes, last);
    }
}

kernel! {
    /// Joins each four codes of two bytes, as [`join_codes`] does: a code is in the upper twelve
    /// bits, the first one lowest, and its length in the lower four. Processes the shorter length.
    pub fn join_entries / plain_entries(simd, entries: &[[u16; 4]], words: &mut [u64]) {
        let len = entries.len().min(words.len());
        let (groups, rest) = entries[..len].as_chunks::<8>();
        let (eights, last) = words[..len].as_chunks_mut::<8>();
        let entries = groups.as_flattened().as_flattened().chunks_exact(S::u16s::LEN);
        let words = eights.as_flattened_mut().chunks_exact_mut(S::u64s::LEN);
        for (entries, words) in entries.zip(words) {
            join_vector(simd, S::u16s::from_slice(simd, entries)).store_slice(words);
        }
        plain_entries(rest, last);
    }
}

fn plain_entries(entries: &[[u16; 4]], words: &mut [u64]) {
    for (&entries, word) in entries.iter().zip(words) {
        *word = joined(entries);
    }
}

/// Joins each four codes of a vector.
#[inline(always)]
fn join_vector<S: Simd>(_: S, entry: S::u16s) -> S::u64s {
    let length = entry & 0xf;
    let (code, length): (S::u32s, S::u32s) = ((entry ^ length).bitcast(), length.bitcast());
    // Moves the first of two codes to the upper half of 32 bits, and places the second, already
    // there, behind it.
    let behind = length >> 16;
    let pair: S::u64s = ((code << 16) >> behind | code & (0xffff << 16)).bitcast();
    // The same with two pairs. The lengths of the first pairs are still in the upper half of the
    // widths.
    let width: S::u64s = ((behind + length) & 0xff).bitcast();
    let behind = width >> 32;
    let four = (pair << 32) >> behind | pair & (0xffff_ffff << 32);
    four | ((behind + width) & 0xff)
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
