//! Symbols of one bit: symbol i is bit i mod 8 of byte i / 8.

/// Packs symbols that are 0 or 1. Bits past the end are 0.
///
/// # Panics
/// If a symbol is above 1, or the length of `bits` is not `symbols.len().div_ceil(8)`.
pub fn pack_bits(symbols: &[u16], bits: &mut [u8]) {
    assert_eq!(bits.len(), symbols.len().div_ceil(8));
    let all = symbols.iter().fold(0, |all, symbol| all | symbol);
    assert!(all <= 1, "a symbol does not fit in one bit");
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = symbols.as_chunks();
        let (packed, last) = bits.split_at_mut(4 * groups.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx2::pack(groups, packed.as_chunks_mut().0) };
        return pack_bits_scalar(rest, last);
    }
    pack_bits_scalar(symbols, bits);
}

fn pack_bits_scalar(symbols: &[u16], bits: &mut [u8]) {
    for (symbols, packed) in symbols.chunks(8).zip(bits) {
        let set = |(at, &symbol): (usize, &u16)| (symbol as u8) << at;
        *packed = symbols.iter().enumerate().map(set).fold(0, |byte, bit| byte | bit);
    }
}

/// The reverse of [`pack_bits`].
///
/// # Panics
/// If the length of `bits` is not `symbols.len().div_ceil(8)`.
pub fn unpack_bits(bits: &[u8], symbols: &mut [u16]) {
    assert_eq!(bits.len(), symbols.len().div_ceil(8));
    #[cfg(all(target_arch = "x86_64", feature = "std"))]
    if super::level::has_avx2() {
        let (groups, rest) = symbols.as_chunks_mut();
        let (packed, last) = bits.split_at(2 * groups.len());
        // SAFETY: the processor has the features the function is compiled for.
        unsafe { avx2::unpack(packed.as_chunks().0, groups) };
        return unpack_bits_scalar(last, rest);
    }
    unpack_bits_scalar(bits, symbols);
}

fn unpack_bits_scalar(bits: &[u8], symbols: &mut [u16]) {
    for (symbols, &packed) in symbols.chunks_mut(8).zip(bits) {
        for (at, symbol) in symbols.iter_mut().enumerate() {
            *symbol = u16::from(packed >> at & 1);
        }
    }
}

#[cfg(all(target_arch = "x86_64", feature = "std"))]
mod avx2 {
    use core::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub(super) fn pack(groups: &[[u16; 32]], bits: &mut [[u8; 4]]) {
        for (group, bits) in groups.iter().zip(bits) {
            // SAFETY: the array holds the 32 symbols that are read.
            let [low, high] =
                unsafe { [0, 16].map(|at| _mm256_loadu_si256(group.as_ptr().add(at).cast())) };
            // Packing works on each half of a register; the quarters are put in order afterwards.
            let packed = _mm256_packus_epi16(low, high);
            let bytes = _mm256_permute4x64_epi64::<0b11_01_10_00>(packed);
            // The lowest bit of each byte becomes the highest, for the mask.
            let mask = _mm256_movemask_epi8(_mm256_slli_epi16::<7>(bytes));
            *bits = mask.to_le_bytes();
        }
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn unpack(bits: &[[u8; 2]], groups: &mut [[u16; 16]]) {
        let lanes: [i16; 16] = core::array::from_fn(|at| 1 << at);
        // SAFETY: the array holds the sixteen numbers that are read.
        let lanes = unsafe { _mm256_loadu_si256(lanes.as_ptr().cast()) };
        for (bits, group) in bits.iter().zip(groups) {
            let bits = _mm256_set1_epi16(i16::from_le_bytes(*bits));
            let set = _mm256_cmpeq_epi16(_mm256_and_si256(bits, lanes), lanes);
            // SAFETY: the array holds the sixteen symbols that are written.
            unsafe {
                let symbols = _mm256_srli_epi16::<15>(set);
                _mm256_storeu_si256(group.as_mut_ptr().cast(), symbols);
            }
        }
    }
}

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
