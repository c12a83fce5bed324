//! Codes of symbols, looked up and joined four at a time.
//!
//! A word is a `u64` with one code or several joined codes. Their bits are at the top of the word,
//! the first bit lowest; their number is in the lowest byte. To append a code to a word, shift the
//! bits of the word right by the length of the code, and add the bits of the code with an "or".

use fearless_simd::prelude::*;

#[cfg(target_arch = "x86_64")]
use fearless_simd::{Avx512, u8x32, u16x32};

use super::{cases, kernel};
use crate::group_writer::{Bits, Buffer};

/// The most symbols that have short codes.
const SYMBOLS: usize = 256;
/// Entries that two registers of AVX-512 hold.
const FEW: usize = 64;
/// The most bits of a short code, so a code with its length takes two bytes.
const MOST_BITS: u32 = 12;

/// Codes of at most 12 bits for symbols of one byte, prepared for [`join_codes`].
#[derive(Debug, Clone)]
pub struct ShortCodes {
    /// By symbol: its code in the upper twelve bits, the first one lowest, and its length in the
    /// lower four.
    entries: [u16; SYMBOLS],
    /// The same by symbol modulo 64, if all symbols with a code are within 64.
    few: Option<[u16; FEW]>,
}

impl Default for ShortCodes {
    /// Codes without any bits.
    fn default() -> Self {
        Self { entries: [0; SYMBOLS], few: None }
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
        let used = |entry: &u16| *entry != 0;
        let first = self.entries.iter().position(used).unwrap_or(0);
        let last = self.entries.iter().rposition(used).unwrap_or(0);
        self.few = (last - first < FEW).then(|| {
            let mut few = [0; FEW];
            (first..=last).for_each(|symbol| few[symbol % FEW] = self.entries[symbol]);
            few
        });
    }
}

/// Writes the joined codes of each four symbols, up to 48 bits; the bits between the codes and the
/// length byte are zero. Only the lower byte of a symbol counts. If all codes are of symbols within
/// 64, a symbol outside may get one of them. Processes the shorter length.
pub fn join_codes(symbols: &[[u16; 4]], codes: &ShortCodes, words: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::level::used().as_avx512() {
        return look_up_and_join(avx512, symbols, codes, words);
    }
    plain_codes(symbols, codes, words);
}

/// [`join_codes`] of symbols of one byte.
pub fn join_byte_codes(symbols: &[[u8; 4]], codes: &ShortCodes, words: &mut [u64]) {
    #[cfg(target_arch = "x86_64")]
    if let Some(avx512) = super::level::used().as_avx512() {
        return look_up_bytes_and_join(avx512, symbols, codes, words);
    }
    plain_codes(symbols, codes, words);
}

fn plain_codes<T: Copy + Into<u16>>(symbols: &[[T; 4]], codes: &ShortCodes, words: &mut [u64]) {
    for (symbols, word) in symbols.iter().zip(words) {
        *word = joined(symbols.map(|symbol| codes.entries[usize::from(symbol.into() as u8)]));
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
        let load = |symbols: &[[u16; 4]; 8]| {
            u16x32::from_slice(avx512, symbols.as_flattened())
        };
        with_tables(avx512, symbols, codes, words, load);
    }
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    /// The same for symbols of one byte.
    fn look_up_bytes_and_join(
        avx512: Avx512,
        symbols: &[[u8; 4]],
        codes: &ShortCodes,
        words: &mut [u64],
    ) {
        let load = |symbols: &[[u8; 4]; 8]| {
            let bytes = u8x32::from_slice(avx512, symbols.as_flattened());
            core::arch::x86_64::_mm512_cvtepu8_epi16(bytes.into()).simd_into(avx512)
        };
        with_tables(avx512, symbols, codes, words, load);
    }
}

/// Looks up codes in tables in registers: in one of 64 entries if the symbols are so few, otherwise
/// in four of them.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn with_tables<T: Copy + Into<u16>>(
    avx512: Avx512,
    symbols: &[[T; 4]],
    codes: &ShortCodes,
    words: &mut [u64],
    load: impl Fn(&[[T; 4]; 8]) -> u16x32<Avx512>,
) {
    let len = symbols.len().min(words.len());
    let (groups, rest) = symbols[..len].as_chunks::<8>();
    let (eights, last) = words[..len].as_chunks_mut::<8>();
    if let Some(few) = &codes.few {
        let table = Entries64::new(avx512, few);
        for (symbols, words) in groups.iter().zip(eights) {
            join_vector(avx512, table.look_up(avx512, load(symbols))).store_slice(words);
        }
    } else {
        let tables: [Entries64; 4] = core::array::from_fn(|at| {
            Entries64::new(avx512, codes.entries[FEW * at..].first_chunk().expect("256 entries"))
        });
        for (symbols, words) in groups.iter().zip(eights) {
            let symbols = load(symbols);
            // Six bits of a symbol choose one of 64 entries, the next two one of four. Without
            // closures, which would not be compiled for AVX-512.
            let [a, b, c, d] = &tables;
            let sixth = (symbols & (1 << 6)).simd_ne(0);
            let low = sixth.select(b.look_up(avx512, symbols), a.look_up(avx512, symbols));
            let high = sixth.select(d.look_up(avx512, symbols), c.look_up(avx512, symbols));
            let entry = (symbols & (1 << 7)).simd_ne(0).select(high, low);
            join_vector(avx512, entry).store_slice(words);
        }
    }
    plain_codes(rest, codes, last);
}

/// 64 entries in two registers.
#[cfg(target_arch = "x86_64")]
struct Entries64([u16x32<Avx512>; 2]);

#[cfg(target_arch = "x86_64")]
impl Entries64 {
    #[inline(always)]
    fn new(avx512: Avx512, entries: &[u16; FEW]) -> Self {
        let (low, high) = entries.split_at(FEW / 2);
        Self([low, high].map(|half| u16x32::from_slice(avx512, half)))
    }

    /// The entries that the lowest six bits of each symbol choose.
    #[inline(always)]
    fn look_up(&self, avx512: Avx512, symbols: u16x32<Avx512>) -> u16x32<Avx512> {
        let [low, high] = self.0;
        permuted(avx512, low, symbols, high)
    }
}

#[cfg(target_arch = "x86_64")]
fearless_simd::kernel! {
    #[inline]
    fn permuted(
        avx512: Avx512,
        low: u16x32<Avx512>,
        symbols: u16x32<Avx512>,
        high: u16x32<Avx512>,
    ) -> u16x32<Avx512> {
        use core::arch::x86_64::_mm512_permutex2var_epi16;

        _mm512_permutex2var_epi16(low.into(), symbols.into(), high.into()).simd_into(avx512)
    }
}

kernel! {
    /// Joins each four codes of two bytes, as [`join_codes`] does: a code is in the upper twelve
    /// bits, the first one lowest, and its length in the lower four. Processes the shorter length.
    pub fn join_entries(simd, entries: &[[u16; 4]], words: &mut [u64]) {
        let len = entries.len().min(words.len());
        let (groups, rest) = entries[..len].as_chunks::<8>();
        let (eights, last) = words[..len].as_chunks_mut::<8>();
        let entries = groups.as_flattened().as_flattened().chunks_exact(S::u16s::LEN);
        let words = eights.as_flattened_mut().chunks_exact_mut(S::u64s::LEN);
        for (entries, words) in entries.zip(words) {
            join_vector(simd, S::u16s::from_slice(simd, entries)).store_slice(words);
        }
        plain(rest, last);
    } plain {
        for (&entries, word) in entries.iter().zip(words) {
            *word = joined(entries);
        }
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
    /// Joins each two words that [`join_codes`] wrote. Returns the most bits of a joined word; with
    /// more than 56 it is wrong. Processes the shorter length.
    pub fn join_words(words: &[[u64; 2]], joined: &mut [u64]) -> u64 {
        let mut most = 0;
        for (&[first, second], word) in words.iter().zip(joined) {
            let [before, after] = [first & 0xff, second & 0xff];
            *word = (first ^ before) >> after | (second ^ after) | (before + after);
            most = most.max(before + after);
        }
        most
    }
}

kernel! {
    /// Writes the bits of words, after the bits that did not fill a byte, as far as they fill
    /// bytes; returns the number of bytes. Each word starts where the previous one ends, so each
    /// shift by a length delays all words after it. With BMI2 a shift is one instruction.
    pub(crate) fn pack_words(words: &[u64], bits: &mut Bits, buffer: &mut Buffer) -> usize {
        bits.pack(words.iter().map(|&word| (word, word)), buffer)
    }
}

cases![
    ("join_codes", |input, output| {
        for alphabet in [1, 40, 64, 256] {
            // The upper byte does not count.
            let any = |at| {
                (100 + input.word(at) as u16 % alphabet) & 0xff | input.word(at) as u16 & 0xff00
            };
            let symbols = input.elements(input.len, any);
            let mut words = input.elements(input.len / 4, |_| 0u64);
            join_codes(symbols.as_chunks().0, &short_codes(input, alphabet), &mut words);
            output.words(&words);
        }
    }),
    ("join_byte_codes", |input, output| {
        for alphabet in [1, 40, 64, 256] {
            let symbol = |at| (100 + input.word(at) as u16 % alphabet) as u8;
            let symbols = input.elements(input.len, symbol);
            let mut words = input.elements(input.len / 4, |_| 0u64);
            join_byte_codes(symbols.as_chunks().0, &short_codes(input, alphabet), &mut words);
            output.words(&words);
        }
    }),
    ("join_words", |input, output| {
        let words = input.elements(input.len, |at| {
            let width = u64::from(input.word(at)) % 29;
            u64::from(input.word(at + 1)).checked_shl(64 - width as u32).unwrap_or(0) | width
        });
        let mut joined = input.elements(input.len / 2, |_| 0u64);
        output.words(&[join_words(words.as_chunks().0, &mut joined)]);
        output.words(&joined);
    }),
    ("join_entries", |input, output| {
        let entries = input.elements(input.len, |at| {
            let length = input.word(at) % 13;
            ((input.word(at + 1) << (16 - length)) as u16) & 0xfff0 | length as u16
        });
        let mut words = input.elements(input.len / 4, |_| 0u64);
        join_entries(entries.as_chunks().0, &mut words);
        output.words(&words);
    }),
    ("pack_words", |input, output| {
        let words = input.elements(input.len.min(crate::group_writer::ROOM / 8), |at| {
            let width = u64::from(input.word(at)) % u64::from(crate::group_writer::GROUP_BITS + 1);
            (input.wide(at) >> 15).checked_shl(64 - width as u32).unwrap_or(0) | width
        });
        let mut bytes = vec![7];
        let mut writer = crate::group_writer::GroupWriter::new(&mut bytes);
        let (some, others) = words.split_at(words.len() / 3);
        writer.put_words(some);
        writer.put_words(others);
        writer.finish();
        output.bits(bytes);
    }),
];

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
