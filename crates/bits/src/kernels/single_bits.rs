//! Symbols of one bit: symbol i is bit i mod 8 of byte i / 8.

use fearless_simd::{prelude::*, u16x16};

use super::{cases, kernel};

kernel! {
    /// Packs symbols that are 0 or 1. Bits past the end are 0.
    ///
    /// # Panics
    /// If a symbol is above 1, or the length of `bits` is not `symbols.len().div_ceil(8)`.
    pub fn pack_bits(simd, symbols: &[u16], bits: &mut [u8]) {
        assert_eq!(bits.len(), symbols.len().div_ceil(8));
        let (groups, rest) = symbols.as_chunks::<64>();
        let (packed, last) = bits.split_at_mut(8 * groups.len());
        let mut all = S::u16s::splat(simd, 0);
        for (group, word) in groups.iter().zip(packed.as_chunks_mut::<8>().0) {
            let mut set = 0;
            for (at, two) in group.chunks_exact(2 * S::u16s::LEN).enumerate() {
                let (low, high) = two.split_at(S::u16s::LEN);
                let [low, high] = [low, high].map(|some| S::u16s::from_slice(simd, some));
                all |= low | high;
                let ones = low.simd_eq(1).narrow(high.simd_eq(1));
                set |= ones.to_bitmask() << (at * S::u8s::LEN);
            }
            *word = set.to_le_bytes();
        }
        assert!(all.reduce_max() <= 1, "{TOO_LARGE}");
        plain(rest, last);
    } plain {
        for (symbols, packed) in symbols.chunks(8).zip(bits) {
            assert!(symbols.iter().all(|&symbol| symbol <= 1), "{TOO_LARGE}");
            let set = |(at, &symbol): (usize, &u16)| (symbol as u8) << at;
            *packed = symbols.iter().enumerate().map(set).sum();
        }
    }
}

const TOO_LARGE: &str = "a symbol does not fit in one bit";

kernel! {
    /// The reverse of [`pack_bits`].
    ///
    /// # Panics
    /// If the length of `bits` is not `symbols.len().div_ceil(8)`.
    pub fn unpack_bits(simd, bits: &[u8], symbols: &mut [u16]) {
        assert_eq!(bits.len(), symbols.len().div_ceil(8));
        let (groups, rest) = symbols.as_chunks_mut::<16>();
        let (packed, last) = bits.split_at(2 * groups.len());
        let lanes = u16x16::from_fn(simd, |at| 1 << at);
        for (group, word) in groups.iter_mut().zip(packed.as_chunks::<2>().0) {
            let set = (lanes & u16::from_le_bytes(*word)).simd_eq(lanes);
            *group = (set.to_vector() & 1).bitcast::<u16x16<S>>().to_array();
        }
        plain(last, rest);
    } plain {
        for (symbols, &packed) in symbols.chunks_mut(8).zip(bits) {
            for (at, symbol) in symbols.iter_mut().enumerate() {
                *symbol = u16::from(packed >> at & 1);
            }
        }
    }
}

cases![
    ("pack_bits", |input, output| {
        let symbols = input.elements(input.len, |at| (input.word(at) & 1) as u16);
        let mut bits = input.elements(input.len.div_ceil(8), |_| 0);
        pack_bits(&symbols, &mut bits);
        output.bits(bits.iter().copied());
    }),
    ("unpack_bits", |input, output| {
        let bits = input.elements(input.len.div_ceil(8), |at| input.word(at) as u8);
        let mut symbols = input.zeros();
        unpack_bits(&bits, &mut symbols);
        output.bits(symbols.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_by_hand() {
        let symbols = [1, 0, 1, 1, 0, 0, 0, 1, 0, 1];
        let mut bits = [0xff; 2];
        pack_bits(&symbols, &mut bits);
        assert_eq!(bits, [0b1000_1101, 0b10]);
        let mut found = [7; 10];
        unpack_bits(&bits, &mut found);
        assert_eq!(found, symbols);
    }

    #[test]
    #[should_panic(expected = "does not fit")]
    fn a_larger_symbol_is_refused() {
        pack_bits(&[0, 2], &mut [0]);
    }
}
