//! The inner loops of the [zero-run code](crate::zero_run).

use alloc::vec::Vec;

use fearless_simd::prelude::*;

use super::level::Level;
use super::{cases, kernel};
use crate::zero_run::run_bytes::{LONGEST, ZEROS, code};

kernel! {
    /// The number of bytes that coded bytes expand to.
    pub(crate) fn expanded_len(coded: &[u8]) -> usize {
        let mut total = coded.len();
        // A run byte stands for 2 to 14 bytes, so 2^20 of them fit in 32 bits.
        for stretch in coded.chunks(1 << 20) {
            let extra = |&byte: &u8| u32::from(byte.saturating_sub(242));
            total += stretch.iter().map(extra).sum::<u32>() as usize;
        }
        total
    }
}

/// Which of 64 bytes are above a limit, the first one in the lowest bit.
#[inline]
pub(crate) fn above(word: &[u8; 64], limit: u8) -> u64 {
    // Instructions that every processor has: those of a wider set would need a call.
    fearless_simd::dispatch!(Level::baseline(), simd => bits(simd, word, |x| x.simd_gt(limit)))
}

/// Which of 64 bytes `is` selects, the first one in the lowest bit.
#[inline(always)]
fn bits<S: Simd>(simd: S, word: &[u8; 64], is: impl Fn(S::u8s) -> S::mask8s) -> u64 {
    let mut bits = 0;
    for (at, bytes) in word.chunks_exact(S::u8s::LEN).enumerate() {
        bits |= is(S::u8s::from_slice(simd, bytes)).to_bitmask() << (at * S::u8s::LEN);
    }
    bits
}

kernel! {
    /// Appends the code of `bytes`, except for a run at their end. A run of `pending` zeros, up to
    /// [`LONGEST`], precedes them; afterwards `pending` is the unwritten run at their end.
    pub(crate) fn encode_runs(
        simd,
        bytes: &[u8],
        pending: &mut usize,
        out: &mut Vec<u8>,
    ) {
        let (words, rest) = bytes.as_chunks::<64>();
        for word in words {
            let zeros = bits(simd, word, |x| x.simd_eq(ZEROS));
            if has_long_run(zeros) || *pending + zeros.trailing_ones() as usize > LONGEST {
                encode_by_run(word, zeros, pending, out);
            } else {
                for bytes in word.chunks_exact(S::u8s::LEN) {
                    encode_vector(simd, S::u8s::from_slice(simd, bytes), pending, out);
                }
            }
        }
        plain(rest, pending, out);
    } plain {
        for &byte in bytes {
            if *pending > 0 && (byte != ZEROS || *pending == LONGEST) {
                out.push(code(*pending));
                *pending = 0;
            }
            if byte == ZEROS {
                *pending += 1;
            } else {
                out.push(byte);
            }
        }
    }
}

/// Encodes a vector of bytes at once: the byte at the end of each run becomes the run's code, and
/// one compression removes the other bytes of runs. A run at the end stays pending. No run,
/// including the pending zeros, is longer than [`LONGEST`].
#[inline(always)]
fn encode_vector<S: Simd>(simd: S, bytes: S::u8s, pending: &mut usize, out: &mut Vec<u8>) {
    let is_zero = bytes.simd_eq(ZEROS);
    let lengths = run_lengths(simd, is_zero);
    // If the run began with the first byte, the pending run is part of it.
    let first = lengths.simd_eq(S::u8s::from_fn(simd, |at| at as u8 + 1));
    let lengths = first.select(lengths + *pending as u8, lengths);
    let coded = lengths.simd_ge(2).select(lengths + 241, bytes);

    // A byte that stands for zeros is removed if the next one does, too, or may do so.
    let last = S::mask8s::from_bitmask(simd, 1 << (S::u8s::LEN - 1));
    let kept = !(is_zero & (is_zero.rotate_elements_left::<1>() | last));
    // The pending run's byte is written in any case: whether a run ends there is hard to predict.
    let len = out.len() + usize::from(*pending > 0 && !is_zero.test(0));
    out.push(if *pending > 0 { code(*pending) } else { 0 });
    out.truncate(len);
    out.extend_from_slice(coded.compress(kept).as_slice());
    out.truncate(len + kept.to_bitmask().count_ones() as usize);
    *pending = (is_zero.to_bitmask() << (64 - S::u8s::LEN)).leading_ones() as usize;
}

/// For each byte of a mask, the length of the run of such bytes that ends there, up to 16.
#[inline(always)]
fn run_lengths<S: Simd>(simd: S, mask: S::mask8s) -> S::u8s {
    let [zero, one] = [0, 1].map(|x| S::u8s::splat(simd, x));
    let mut lengths = mask.select(one, zero);
    // If the last bytes, one, two, four or eight, are all in the run, adds the count of the bytes
    // before them.
    let longer = |x: S::u8s, full: u8, before: S::u8s| x + x.simd_eq(full).select(before, zero);
    lengths = longer(lengths, 1, lengths.shift_elements_right::<1>(0));
    lengths = longer(lengths, 2, lengths.shift_elements_right::<2>(0));
    lengths = longer(lengths, 4, lengths.shift_elements_right::<4>(0));
    longer(lengths, 8, lengths.shift_elements_right::<8>(0))
}

/// Whether more than [`LONGEST`] bits in a row are set.
fn has_long_run(zeros: u64) -> bool {
    let two = zeros & zeros << 1;
    let four = two & two << 2;
    let eight = four & four << 4;
    eight & eight << 7 != 0
}

/// Encodes a word run by run, which is fast for long runs.
#[inline(always)]
fn encode_by_run(word: &[u8; 64], zeros: u64, pending: &mut usize, out: &mut Vec<u8>) {
    let mut at = 0;
    while at < 64 {
        let rest = zeros >> at;
        let run = (rest.trailing_ones() as usize).min(64 - at);
        *pending += run;
        at += run;
        while *pending > LONGEST {
            out.push(code(LONGEST));
            *pending -= LONGEST;
        }
        if at == 64 {
            break;
        }
        if *pending > 0 {
            out.push(code(*pending));
            *pending = 0;
        }
        let literals = ((zeros >> at).trailing_zeros() as usize).min(64 - at);
        out.extend_from_slice(&word[at..at + literals]);
        at += literals;
    }
}

cases![
    ("encode_runs", coded_runs),
    ("above", |input, output| {
        let bytes = input.bytes();
        let naive = |word: &[u8; 64]| {
            word.iter().rev().fold(0, |bits, &byte| bits << 1 | u64::from(byte > 100))
        };
        let words = bytes.as_chunks().0;
        words.iter().for_each(|word| assert_eq!(above(word, 100), naive(word)));
        words.iter().for_each(|word| output.words(&[above(word, 100)]));
    }),
    ("expanded_len", |input, output| output.wide(decoded_len(&input.bytes()) as f64)),
];

#[cfg(test)]
mod tests {
    use super::above;

    #[test]
    fn bytes_above_the_limit() {
        assert_eq!(above(&[100; 64], 100), 0);
        assert_eq!(above(&[101; 64], 100), u64::MAX);
        let bytes = core::array::from_fn(|at| at as u8 * 4);
        assert_eq!(above(&bytes, 242), 0b111 << 61);
        assert_eq!(above(&core::array::from_fn(|at| 255 * (at == 5) as u8), 254), 1 << 5);
    }
}
