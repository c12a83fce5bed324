//! Whether the form dense may be shorter than another one, from a sample of the new elements.

use crate::ElementType;

/// Elements of a sample, in lines of 64 bytes.
const SAMPLED: usize = 1024;
const LINE: usize = 64;

/// Whether planes of the elements may have fewer bytes than `code`: the entropy of each plane in a
/// sample, with a margin of a quarter.
pub(super) fn may_be_shorter(element: ElementType, new: &[u8], code: usize) -> bool {
    let width = element.width();
    let lines = (SAMPLED * width / LINE).max(1);
    let distance = new.len().div_ceil(LINE).div_ceil(lines).max(1);
    let (mut counts, mut sampled) = ([[0u32; 256]; 8], 0);
    for (at, stride) in new.chunks(LINE * distance).enumerate() {
        for one in line_of(stride, at).chunks_exact(width) {
            for (counts, byte) in counts[..width].iter_mut().zip(planes(element, one)) {
                counts[usize::from(byte)] += 1;
            }
            sampled += 1;
        }
    }
    let bits: f64 = counts[..width].iter().map(|counts| entropy(counts, sampled)).sum();
    let expected = bits / 8.0 * (new.len() / width) as f64;
    expected < 1.25 * code as f64
}

/// A line of the stride number `at`. Its place in the stride looks random, because successive rows
/// of a matrix may be as long as a stride.
fn line_of(stride: &[u8], at: usize) -> &[u8] {
    let hash = (at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    let line = hash as usize % stride.len().div_ceil(LINE);
    &stride[line * LINE..stride.len().min((line + 1) * LINE)]
}

/// The bytes of an element in the planes of the form dense, which have the sign of floats below the
/// mantissa.
fn planes(element: ElementType, one: &[u8]) -> [u8; 8] {
    let bits = one.iter().rfold(0, |bits, &byte| bits << 8 | u64::from(byte));
    let has_sign = element.exponent_bits() > 0;
    let turned = bits << 1 | bits >> (8 * one.len() - 1);
    if has_sign { turned } else { bits }.to_le_bytes()
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
        assert!(may_be_shorter(ElementType::U16, &new, 1024));
        assert!(!may_be_shorter(ElementType::U16, &new, 800));
        // As integers of one byte: half of them 7, the others alike. 0.5 + 0.5 · 3 bits of 8192.
        assert!(may_be_shorter(ElementType::U8, &new, 2048));
        assert!(!may_be_shorter(ElementType::U8, &new, 1600));
        assert!(may_be_shorter(ElementType::U64, &[0; 4096], 1));
    }

    #[test]
    fn floats_are_counted_as_their_planes_have_them() {
        assert_eq!(planes(ElementType::Bf16, &[0x80, 0xbf])[..2], [0x01, 0x7f]);
        assert_eq!(planes(ElementType::I16, &[0x80, 0xbf])[..2], [0x80, 0xbf]);
        // 0 and 1 in turns: a bit in the upper plane, and in that of integers one in each plane.
        let new: Vec<u8> = (0..4096u16).flat_map(|at| (at % 2 * 0x3f80).to_le_bytes()).collect();
        assert!(may_be_shorter(ElementType::Bf16, &new, 512));
        assert!(!may_be_shorter(ElementType::U16, &new, 512));
    }

    #[test]
    fn rows_as_long_as_a_stride_are_sampled_in_all_columns() {
        // A stride has 8 lines. The first is noise and the others 0, or the other way round.
        let new = |is_noise: fn(usize) -> bool| -> Vec<u8> {
            let byte = |at: usize| ((at as u32).wrapping_mul(0x9e37_79b9) >> 24) as u8;
            (0..1 << 14).map(|at| if is_noise(at / LINE % 8) { byte(at) } else { 0 }).collect()
        };
        assert!(may_be_shorter(ElementType::U16, &new(|line| line == 0), 8000));
        assert!(!may_be_shorter(ElementType::U16, &new(|line| line != 0), 8000));
    }
}
