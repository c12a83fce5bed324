//! Hashing of numbers to bins.

use super::vectorised;

vectorised! {
    /// Writes the bin, below `bins`, of each key: a pseudo-random function of key and seed. Processes the
    /// shorter length. In wrapping 32-bit arithmetic x = (key ⊕ seed) · 0x9e3779b1,
    /// x ← (x ⊕ (x >> 15)) · 0x85ebca77, x ← x ⊕ (x >> 13); the bin is (x >> 16) · bins >> 16.
    ///
    /// # Panics
    /// If `bins` is 0.
    pub fn hashed / hashed_scalar(keys: &[u32], seed: u32, bins: u16, out: &mut [u16]) {
        assert!(bins > 0, "the number of bins is 0");
        for (out, key) in out.iter_mut().zip(keys) {
            let x = (key ^ seed).wrapping_mul(0x9e37_79b1);
            let x = (x ^ (x >> 15)).wrapping_mul(0x85eb_ca77);
            let x = x ^ (x >> 13);
            *out = (((x >> 16) * u32::from(bins)) >> 16) as u16;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    #[test]
    fn hashes_by_hand() {
        // Key and seed 0 stay 0. For key 1: 0x9e3779b1 ⊕ 0x13c6e = 0x9e3645df; times 0x85ebca77, mod
        // 2^32, is 0x5d1170a9; ⊕ 0x2e88b = 0x5d139822, of which 0x5d13 = 23827, · 820 >> 16 = 298.
        let mut out = [7; 2];
        hashed(&[0, 1], 0, 820, &mut out);
        assert_eq!(out, [0, 298]);
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
