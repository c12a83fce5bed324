//! Random words for rounding; groups of elements share the lower bits.

use fearless_simd::prelude::*;
use fearless_simd::u8x16;

use super::{cases, kernel};

/// The number of elements that share the lower bits of their words.
pub const SHARING: usize = 16;

kernel! {
    /// Writes words: the upper 8 bits are the element's own byte, the next 16 are shared by its
    /// group of [`SHARING`] elements, and the lowest 8 are 0. Processes the shortest length.
    pub fn spread(simd, own: &[u8], shared: &[u16], out: &mut [u32]) {
        let len = out.len().min(own.len());
        let (groups, rest) = out[..len].as_chunks_mut::<SHARING>();
        let (bytes, last) = own[..len].as_chunks::<SHARING>();
        for ((words, bytes), &low) in groups.iter_mut().zip(bytes).zip(shared) {
            // The compiler does not vectorise a plain loop over the bytes for AVX2.
            let (a, b) = u8x16::from_slice(simd, bytes).widen();
            let (a, b) = simd.combine_u16x8(a, b).widen();
            let own = simd.combine_u32x8(a, b) << 24;
            (own | u32::from(low) << 8).store_slice(words);
        }
        let shared = shared.get(groups.len()..).unwrap_or_default();
        plain(last, shared, rest);
    } plain {
        for ((out, own), &low) in out.chunks_mut(SHARING).zip(own.chunks(SHARING)).zip(shared) {
            for (out, &byte) in out.iter_mut().zip(own) {
                *out = u32::from(byte) << 24 | u32::from(low) << 8;
            }
        }
    }
}

cases![("spread", |input, output| {
    let (own, shared) = (input.bytes(), input.symbols());
    let mut out = input.draws();
    spread(&own, &shared, &mut out);
    output.bits(out.iter().copied());
}),];

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
