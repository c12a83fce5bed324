//! Whether the form dense may be shorter than another one, from a sample of the new elements.

/// Elements of a sample, in lines of 64 bytes.
const SAMPLED: usize = 1024;
const LINE: usize = 64;

/// Whether planes of the elements of `width` bytes may have fewer bytes than `code`: the entropy of
/// each byte in a sample, with a quarter in hand.
pub(super) fn may_be_shorter(width: usize, new: &[u8], code: usize) -> bool {
    let lines = (SAMPLED * width / LINE).max(1);
    let distance = new.len().div_ceil(LINE).div_ceil(lines).max(1);
    let (mut counts, mut sampled) = ([[0u32; 256]; 8], 0);
    for line in new.chunks(LINE).step_by(distance) {
        for (at, &byte) in line.iter().enumerate() {
            counts[at % width][usize::from(byte)] += 1;
        }
        sampled += line.len() / width;
    }
    let bits: f64 = counts[..width].iter().map(|counts| entropy(counts, sampled)).sum();
    let expected = bits / 8.0 * (new.len() / width) as f64;
    expected < 1.25 * code as f64
}

/// The bits that a byte takes, if bytes occur as often as in a sample.
fn entropy(counts: &[u32; 256], sampled: usize) -> f64 {
    let all = sampled as f64;
    let counts = counts.iter().filter(|&&count| count > 0).map(|&count| f64::from(count));
    counts.map(|count| count / all * (all / count).log2()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entropies_by_hand() {
        // Lower bytes 0 to 3 alike, upper bytes constant: two bits an element, 1024 bytes.
        let new: Vec<u8> = (0..4096).flat_map(|at| [at as u8 % 4, 7]).collect();
        assert!(may_be_shorter(2, &new, 1024));
        assert!(!may_be_shorter(2, &new, 800));
        // As integers of one byte: half of them 7, the others alike. 0.5 + 0.5 · 3 bits of 8192.
        assert!(may_be_shorter(1, &new, 2048));
        assert!(!may_be_shorter(1, &new, 1600));
        assert!(may_be_shorter(8, &[0; 4096], 1));
    }
}
