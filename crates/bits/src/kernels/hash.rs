//! Hashing of numbers to bins, and to columns of a sketch.

use super::{cases, kernel};

kernel! {
    /// Writes the bin, below `bins`, of each key: a pseudo-random function of key and seed.
    /// Processes the shorter length. In wrapping 32-bit arithmetic x = (key ⊕ seed) · 0x9e3779b1, x
    /// ← (x ⊕ (x >> 15)) · 0x85ebca77, x ← x ⊕ (x >> 13); the bin is (x >> 16) · bins >> 16.
    ///
    /// # Panics
    /// If `bins` is 0.
    pub fn hashed(keys: &[u32], seed: u32, bins: u16, out: &mut [u16]) {
        assert!(bins > 0, "the number of bins is 0");
        for (out, key) in out.iter_mut().zip(keys) {
            let x = (key ^ seed).wrapping_mul(0x9e37_79b1);
            let x = (x ^ (x >> 15)).wrapping_mul(0x85eb_ca77);
            let x = x ^ (x >> 13);
            *out = (((x >> 16) * u32::from(bins)) >> 16) as u16;
        }
    }
}

kernel! {
    /// Writes a column, below `columns`, and a sign, 0 or the sign bit of a float, for each of
    /// successive elements. With h the upper half of the element's 64-bit hash, the column is h ·
    /// columns >> 32, and the sign is the lowest bit of h. The first element has the hash `hash`;
    /// it grows by `factor` from one element to the next, wrapping. Processes the shorter length.
    pub fn columns_and_signs(
        hash: u64,
        factor: u64,
        columns: u32,
        places: &mut [u32],
        signs: &mut [u32],
    ) {
        let mut hash = hash;
        for (place, sign) in places.iter_mut().zip(signs) {
            let upper = hash >> 32;
            *place = ((upper * u64::from(columns)) >> 32) as u32;
            *sign = (upper as u32) << 31;
            hash = hash.wrapping_add(factor);
        }
    }
}

cases![
    ("hashed", |input, output| {
        let mut out = input.zeros();
        hashed(&input.draws(), input.x.to_bits(), (input.y.to_bits() as u16).max(1), &mut out);
        output.bits(out.iter().copied());
    }),
    ("columns_and_signs", |input, output| {
        let columns = input.word(4).max(1);
        let (mut places, mut signs) = (input.zeros(), input.zeros());
        columns_and_signs(input.wide(0), input.wide(2), columns, &mut places, &mut signs);
        output.bits(places.iter().copied());
        output.bits(signs.iter().copied());
    }),
];

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn hashes_by_hand() {
        // Key and seed 0 stay 0. For key 1: 0x9e3779b1 ⊕ 0x13c6e = 0x9e3645df; times 0x85ebca77,
        // mod 2^32, is 0x5d1170a9; ⊕ 0x2e88b = 0x5d139822; its upper half 0x5d13 = 23827, · 820 >>
        // 16 = 298.
        let mut out = [7; 2];
        hashed(&[0, 1], 0, 820, &mut out);
        assert_eq!(out, [0, 298]);
    }

    #[test]
    fn columns_by_hand() {
        // Upper halves 2^31, 2^31 + 3 · 2^29 + 1, which is odd, and, wrapped, 2^30 + 2.
        let (mut places, mut signs) = ([9; 3], [9; 3]);
        columns_and_signs(1 << 63, 0x6000_0001 << 32, 8, &mut places, &mut signs);
        assert_eq!((places, signs), ([4, 7, 2], [0, 1 << 31, 0]));
    }

    #[test]
    fn keys_spread_evenly_and_independently_of_seeds() {
        // Every third key; 64 bins with a thousand keys each, with a standard deviation of 31.
        let keys: Vec<u32> = (0..64_000).map(|key| 3 * key).collect();
        let (mut first, mut second) = (vec![0; keys.len()], vec![0; keys.len()]);
        hashed(&keys, 0, 64, &mut first);
        hashed(&keys, 0x9e37_79b9, 64, &mut second);
        let mut counts = [0i32; 64];
        first.iter().for_each(|&bin| counts[usize::from(bin)] += 1);
        assert!(counts.iter().all(|count| (count - 1000).abs() < 190), "{counts:?}");
        // One key in 64 has the same bin for both seeds: a thousand.
        let same = first.iter().zip(&second).filter(|(a, b)| a == b).count() as i32;
        assert!((same - 1000).abs() < 190, "{same}");
    }

    #[test]
    fn every_bin_is_below_their_number() {
        let keys: Vec<u32> = (0..4096u32).map(|i| i.wrapping_mul(2_654_435_761)).collect();
        for bins in [1, 2, 820, u16::MAX] {
            let mut out = vec![u16::MAX; keys.len()];
            hashed(&keys, 77, bins, &mut out);
            assert!(out.iter().all(|&bin| bin < bins));
        }
    }
}
