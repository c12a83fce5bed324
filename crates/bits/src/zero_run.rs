//! Zero-run code: run-length code of the byte that stands for five zeros.
//!
//! [Quartic](crate::quartic) bytes are 0 to 242, and 121 stands for five zeros. This code copies
//! bytes, but `k` consecutive bytes 121, 2 ≤ k ≤ 14, become the single byte `243 + (k − 2)`. A
//! longer run is split, from its start, into runs of 14 and a remainder; a remainder of one is the
//! byte 121 itself. A coded sequence is thus at most as long as its input, and at least 1/14 of it.
//!
//! Decoding is total: any sequence of bytes expands to [`decoded_len`] bytes.
//!
//! Source: Lim, Andersen, Kaminsky: "3LC", MLSys 2019, §3.3.

pub(crate) mod run_bytes;

use alloc::vec::Vec;

use crate::kernels;

pub use run_bytes::{LONGEST, ZEROS};
use run_bytes::{RUN, code};

/// The number of coded bytes whose runs [`Decoder::fill`] finds at once.
const WORD: usize = 64;
/// The number of bytes that it writes at once; bytes past a run are overwritten.
const SPLAT: usize = 16;

/// Encodes a sequence that arrives in pieces; runs may cross pieces.
#[derive(Debug, Clone, Default)]
pub struct Encoder {
    /// The length of the current run, not yet written, up to [`LONGEST`].
    pending: usize,
}

impl Encoder {
    /// Appends the code of `bytes`, except for a run at their end. Bytes above 242 have no code:
    /// they would be decoded as runs.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        out.reserve(bytes.len() + 1);
        kernels::encode_runs(bytes, &mut self.pending, out);
    }

    /// Appends the run still pending, if any.
    #[inline]
    pub fn finish(&mut self, out: &mut Vec<u8>) {
        if self.pending > 0 {
            out.push(code(self.pending));
            self.pending = 0;
        }
    }
}

/// Appends the code of `bytes`.
pub fn encode(bytes: &[u8], out: &mut Vec<u8>) {
    let mut encoder = Encoder::default();
    encoder.push(bytes, out);
    encoder.finish(out);
}

/// The length of the code of `bytes`, without encoding.
pub fn len(bytes: &[u8]) -> usize {
    let (mut coded, mut run) = (0, 0usize);
    for &byte in bytes {
        if byte == ZEROS {
            run += 1;
        } else {
            coded += 1 + run.div_ceil(LONGEST);
            run = 0;
        }
    }
    coded + run.div_ceil(LONGEST)
}

/// The number of bytes that `coded` expands to.
pub fn decoded_len(coded: &[u8]) -> usize {
    kernels::expanded_len(coded)
}

/// Expands coded bytes piece by piece.
#[derive(Debug, Clone)]
pub struct Decoder<'a> {
    coded: &'a [u8],
    /// The rest of the last run, not yet written.
    pending: usize,
}

impl<'a> Decoder<'a> {
    /// Starts at the first of the coded bytes.
    pub fn new(coded: &'a [u8]) -> Self {
        Self { coded, pending: 0 }
    }

    /// Whether all bytes have been expanded.
    pub fn is_done(&self) -> bool {
        self.pending == 0 && self.coded.is_empty()
    }

    /// Writes the next bytes to `out`, until it is full or none are left, and returns their number.
    pub fn fill(&mut self, out: &mut [u8]) -> usize {
        let mut at = self.pending.min(out.len());
        out[..at].fill(ZEROS);
        self.pending -= at;
        at += self.fill_freely(&mut out[at..]);
        while at < out.len() {
            let Some((&byte, rest)) = self.coded.split_first() else { break };
            self.coded = rest;
            let (value, run) = expand(byte);
            let fits = run.min(out.len() - at);
            out[at..at + fits].fill(value);
            self.pending = run - fits;
            at += fits;
        }
        at
    }

    /// Expands whole words of coded bytes while there is room to copy whole registers, beyond the
    /// copied bytes. All runs of a word are located before the first is written, so none waits for
    /// the one before.
    fn fill_freely(&mut self, out: &mut [u8]) -> usize {
        let (mut at, mut read) = (0, 0);
        'words: while let Some(coded) = self.coded[read..].first_chunk::<{ WORD + SPLAT }>() {
            let word = coded.first_chunk().expect("the word comes first");
            let (mut runs, mut from) = (kernels::above(word, RUN - 1), 0);
            while from < WORD {
                let Some(place) = out[at..].first_chunk_mut::<{ WORD + 2 * SPLAT }>() else {
                    read += from;
                    break 'words;
                };
                let to = runs.trailing_zeros() as usize;
                // Copies some bytes even if there are none: their presence is hard to predict.
                let mut copied = 0;
                loop {
                    let some = &coded[from + copied..from + copied + SPLAT];
                    place[copied..copied + SPLAT].copy_from_slice(some);
                    copied += SPLAT;
                    if copied >= to - from {
                        break;
                    }
                }
                at += to - from;
                if to < WORD {
                    place[to - from..to - from + SPLAT].fill(ZEROS);
                    at += expand(word[to]).1;
                }
                from = to + 1;
                runs &= runs.wrapping_sub(1);
            }
            read += WORD;
        }
        self.coded = &self.coded[read..];
        at
    }
}

/// The byte that a coded byte stands for, and the number of repetitions.
#[inline]
fn expand(byte: u8) -> (u8, usize) {
    if byte >= RUN { (ZEROS, usize::from(byte - RUN) + 2) } else { (byte, 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use proptest::prelude::*;

    fn coded(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(bytes, &mut out);
        out
    }

    fn expanded(coded: &[u8], piece: usize) -> Vec<u8> {
        let mut decoder = Decoder::new(coded);
        let (mut all, mut buffer) = (Vec::new(), vec![0; piece]);
        while !decoder.is_done() {
            let n = decoder.fill(&mut buffer);
            all.extend_from_slice(&buffer[..n]);
        }
        assert_eq!(decoder.fill(&mut buffer), 0);
        all
    }

    /// The code by its definition, one run at a time, each as long as possible.
    fn naive(mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while let Some(&first) = bytes.first() {
            let run = bytes.iter().take(14).take_while(|&&byte| byte == 121).count();
            out.push(if run < 2 { first } else { 243 + (run as u8 - 2) });
            bytes = &bytes[run.max(1)..];
        }
        out
    }

    #[test]
    fn runs_by_hand() {
        assert_eq!(coded(&[]), []);
        assert_eq!(coded(&[121]), [121]);
        for k in 2..=14 {
            assert_eq!(coded(&vec![121; k]), [243 + (k as u8 - 2)]);
        }
        assert_eq!(coded(&[121; 15]), [255, 121]);
        assert_eq!(coded(&[121; 16]), [255, 243]);
        assert_eq!(coded(&[121; 280]), [255; 20]);
        assert_eq!(coded(&[0, 121, 242, 121, 121, 7]), [0, 121, 242, 243, 7]);
    }

    fn check_every_run_at_every_offset() {
        for (run, before) in (0..160).flat_map(|run| (0..70).map(move |before| (run, before))) {
            let mut bytes = vec![5; before];
            bytes.resize(before + run, 121);
            bytes.extend_from_slice(&[9; 70]);
            assert_eq!(coded(&bytes), naive(&bytes), "run of {run} after {before}");
        }
    }

    #[test]
    fn every_run_length_at_every_offset_in_a_word() {
        check_every_run_at_every_offset();
    }

    #[test]
    fn every_run_length_at_every_offset_with_fewer_instructions() {
        use crate::kernels::testing::{InstructionSet, limited};
        for set in [InstructionSet::Plain, InstructionSet::Baseline, InstructionSet::Avx2] {
            limited(set, check_every_run_at_every_offset);
        }
    }

    #[test]
    fn any_bytes_expand() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded_len(&all), 243 + (2..=14).sum::<usize>());
        let by_byte = |&byte: &u8| match byte {
            0..243 => vec![byte],
            _ => vec![121; usize::from(byte) - 241],
        };
        let expected: Vec<u8> = all.iter().flat_map(by_byte).collect();
        for piece in [1, 3, 14, 16, 17, 64, 97, 100, 160, 1000] {
            assert_eq!(expanded(&all, piece), expected);
        }
        assert_eq!(expanded(&[255, 121], 4), [121; 15]);
    }

    /// Bytes like those of quantized gradients: `sparsity` out of 8 are zeros.
    fn digits() -> impl Strategy<Value = Vec<u8>> {
        (0u8..=8).prop_flat_map(|sparsity| {
            let digit = (0u8..8, 0u8..243)
                .prop_map(move |(chance, byte)| if chance < sparsity { ZEROS } else { byte });
            proptest::collection::vec(digit, 0..600)
        })
    }

    proptest! {
        #[test]
        fn codes_equal_the_naive_ones_and_round_trip(bytes in digits(), piece in 1usize..200) {
            let code = coded(&bytes);
            prop_assert_eq!(&code, &naive(&bytes));
            prop_assert_eq!(code.len(), len(&bytes));
            prop_assert_eq!(decoded_len(&code), bytes.len());
            prop_assert_eq!(expanded(&code, piece), &bytes[..]);
            let (mut pieces, mut encoder) = (Vec::new(), Encoder::default());
            for part in bytes.chunks(piece) {
                encoder.push(part, &mut pieces);
            }
            encoder.finish(&mut pieces);
            prop_assert_eq!(pieces, code);
        }
    }
}
