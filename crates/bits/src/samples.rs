//! Symbols for tests of codes.

use alloc::vec;
use alloc::vec::Vec;

/// Symbols below `alphabet`; the larger the skew, the fewer of them are frequent.
pub(crate) fn symbols(len: usize, alphabet: usize, skew: u32) -> Vec<u16> {
    let mut state = 7u64;
    let symbol = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let uniform = (state >> 40) as f64 / (1u64 << 24) as f64;
        let power = (0..skew).fold(uniform, |power, _| power * uniform);
        (power * alphabet as f64) as u16
    };
    (0..len).map(symbol).collect()
}

/// The occurrences of each symbol of an alphabet.
pub(crate) fn counts_of(symbols: &[u16], alphabet: usize) -> Vec<u32> {
    let mut counts = vec![0; alphabet];
    symbols.iter().for_each(|&symbol| counts[usize::from(symbol)] += 1);
    counts
}

/// The entropy of order 0 of symbols with these counts, in bytes.
pub(crate) fn entropy(counts: &[u32]) -> f64 {
    let total: f64 = counts.iter().map(|&count| f64::from(count)).sum();
    let used = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count));
    used.map(|count| count * (total / count).log2()).sum::<f64>() / 8.0
}
