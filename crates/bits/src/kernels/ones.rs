//! The places of the bits that are 1.

use alloc::vec::Vec;
use core::slice;

use fearless_simd::prelude::*;

use super::chosen::{append_first, append_places};
use super::{cases, kernel};

/// Words with at most this many ones are handled one by one if ones are rare.
const FEW: usize = 2;

kernel! {
    /// Appends `base` plus the index of each bit that is 1, in order. Bit i is bit i mod 8 of byte
    /// i / 8. Sums wrap around.
    pub fn ones(simd, bits: &[u8], base: u32, positions: &mut Vec<u32>) {
        if S::u32s::LEN == 4 {
            // Vectors of four lanes are slower, unless most bits are 1.
            return plain(bits, base, positions);
        }
        let (words, rest) = bits.as_chunks::<8>();
        let all = words.iter().map(count).sum::<usize>();
        positions.reserve(all + 64);
        // The branch on a word is predicted well only if nearly all words have few ones.
        if all >= words.len() {
            dense(simd, words, base, positions);
        } else {
            sparse(simd, words, base, positions);
        }
        plain(rest, base.wrapping_add(64u32.wrapping_mul(words.len() as u32)), positions);
    } plain {
        let (words, rest) = bits.as_chunks::<8>();
        let mut first = base;
        for word in words {
            append(u64::from_le_bytes(*word), first, positions);
            first = first.wrapping_add(64);
        }
        for &byte in rest {
            append(byte.into(), first, positions);
            first = first.wrapping_add(8);
        }
    }
}

#[inline(always)]
fn count(word: &[u8; 8]) -> usize {
    u64::from_le_bytes(*word).count_ones() as usize
}

#[inline(always)]
fn sparse<S: Simd>(simd: S, words: &[[u8; 8]], mut first: u32, positions: &mut Vec<u32>) {
    for word in words {
        if count(word) <= FEW {
            let ones = u64::from_le_bytes(*word);
            let two = [ones, ones & ones.wrapping_sub(1)].map(u64::trailing_zeros);
            let two = two.map(|place| first.wrapping_add(place));
            append_first(positions, 1, FEW, |_| (two, ones.count_ones()));
        } else {
            dense(simd, slice::from_ref(word), first, positions);
        }
        first = first.wrapping_add(64);
    }
}

#[inline(always)]
fn dense<S: Simd>(simd: S, words: &[[u8; 8]], first: u32, positions: &mut Vec<u32>) {
    let lanes = S::u32s::LEN;
    let mut first = S::u32s::splat(simd, first);
    for word in words {
        let ones = u64::from_le_bytes(*word);
        append_places(simd, positions, first, 64 / lanes, |part| ones >> (lanes * part));
        first += 64;
    }
}

/// Appends the places of the ones of a word.
fn append(mut word: u64, first: u32, positions: &mut Vec<u32>) {
    while word != 0 {
        positions.push(first.wrapping_add(word.trailing_zeros()));
        word &= word - 1;
    }
}

cases![("ones", |input, output| {
    let mut positions = Vec::new();
    for dense in [0, !0] {
        let bits =
            input.elements(input.len, |at| (input.word(at) & input.word(3 * at) ^ dense) as u8);
        ones(&bits, u32::MAX - 99, &mut positions);
    }
    let few = |word: u32| match word % 400 {
        0 => 0xff,
        1..8 => 1 << (word >> 29),
        _ => 0,
    };
    let bits = input.elements(input.len, |at| few(input.word(at)));
    ones(&bits, u32::MAX - 99, &mut positions);
    output.bits(positions);
}),];

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
