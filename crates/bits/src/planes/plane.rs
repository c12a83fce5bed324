//! The forms of a plane.

use alloc::vec::Vec;

use crate::huffman::{self, STREAMS_BITS, STREAMS_EXTRA, count_bytes};
use crate::reserve::{room, try_room};
use crate::{DecodeError, kernels, tans, try_resize};

/// The values of a byte.
const BYTES: usize = 256;
/// Planes from this length on have four streams of Huffman code.
const STREAMED: usize = 4096;
/// The bytes of a sample, in [`RUNS`] runs.
const SAMPLE: usize = 4096;
const RUNS: usize = 64;
/// How a plane is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Form {
    Raw = 0,
    Constant = 1,
    Huffman = 2,
    Tans = 3,
}

impl Form {
    /// The form in the two lowest bits.
    pub(super) fn of(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::Raw,
            1 => Self::Constant,
            2 => Self::Huffman,
            _ => Self::Tans,
        }
    }
}

/// Codes of planes and their memory.
#[derive(Debug, Default, Clone)]
pub(super) struct PlaneCoder {
    huffman: huffman::Code,
    tans: tans::Code,
    /// The bytes of a plane, for tANS.
    symbols: Vec<u16>,
}

impl PlaneCoder {
    /// Reserves memory to encode planes of up to `len` bytes.
    pub(super) fn reserve(&mut self, len: usize) {
        self.huffman.reserve(BYTES);
        self.tans.reserve(BYTES, len);
        room(&mut self.symbols, len);
    }

    /// Reserves memory to decode planes of up to `len` bytes.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn try_reserve(&mut self, len: usize) -> Result<(), DecodeError> {
        self.huffman.try_reserve(BYTES, STREAMS_BITS)?;
        try_room(&mut self.symbols, len)?;
        self.tans.try_reserve(BYTES)
    }

    /// Appends a plane, which is not empty, in its shortest form.
    pub(super) fn encode(&mut self, plane: &[u8], out: &mut Vec<u8>) -> Form {
        let start = out.len();
        let form = if is_random(plane) { Form::Raw } else { self.encode_bytes(plane, out) };
        // The length of tANS code is an estimate.
        if form != Form::Raw && out.len() - start <= plane.len() {
            return form;
        }
        out.truncate(start);
        out.extend_from_slice(plane);
        Form::Raw
    }

    /// The same, but appends nothing if the form is raw.
    fn encode_bytes(&mut self, plane: &[u8], out: &mut Vec<u8>) -> Form {
        let mut counts = [0; BYTES];
        count_bytes(plane, &mut counts);
        let form = self.fit(&counts, plane.len());
        match form {
            Form::Raw => {}
            Form::Constant => out.push(plane[0]),
            Form::Huffman => {
                self.huffman.write(out);
                if plane.len() < STREAMED {
                    self.huffman.encode(plane, out);
                } else {
                    self.huffman.encode_streams(plane, out);
                }
            }
            Form::Tans => {
                self.tans.write(out);
                self.symbols.resize(plane.len(), 0);
                kernels::widen(plane, &mut self.symbols);
                self.tans.encode(&self.symbols, out);
            }
        }
        form
    }

    /// Fits the codes to the counts of bytes, and returns the form to use.
    fn fit(&mut self, counts: &[u32; BYTES], len: usize) -> Form {
        if counts.iter().filter(|&&count| count > 0).count() == 1 {
            return Form::Constant;
        }
        if looks_random(counts, len) {
            return Form::Raw;
        }
        self.huffman.fit(counts, STREAMS_BITS);
        let streams = if len < STREAMED { 0 } else { STREAMS_EXTRA };
        let bits = self.huffman.packed_bits().next_multiple_of(8) + self.huffman.len_bits(counts);
        let huffman = bits.div_ceil(8) as usize + streams;
        let most_bits = 8 * (huffman - huffman / 16).min(len) as u64;
        // Else Huffman code is close to the entropy.
        let is_skewed = counts.iter().any(|&count| 5 * u64::from(count) >= 2 * len as u64);
        if is_skewed && tans::entropy_bits(counts) < most_bits {
            self.tans.fit(counts);
            if self.tans.estimated_bits(counts) < most_bits {
                return Form::Tans;
            }
        }
        if huffman < len { Form::Huffman } else { Form::Raw }
    }

    /// Fills a plane, which is not empty, from the start of `bytes`, and removes the bytes read.
    ///
    /// # Errors
    /// `Truncated`, `Corrupt`, or `OutOfMemory`.
    pub(super) fn decode(
        &mut self,
        form: Form,
        bytes: &mut &[u8],
        plane: &mut [u8],
    ) -> Result<(), DecodeError> {
        match form {
            Form::Raw => {
                let raw = bytes.split_off(..plane.len()).ok_or(DecodeError::Truncated)?;
                plane.copy_from_slice(raw);
            }
            Form::Constant => plane.fill(*bytes.split_off_first().ok_or(DecodeError::Truncated)?),
            Form::Huffman => {
                let read = self.huffman.read(bytes, BYTES, STREAMS_BITS)?;
                *bytes = &bytes[read..];
                let used = if plane.len() < STREAMED {
                    self.huffman.decode(bytes, plane)?
                } else {
                    self.huffman.decode_streams(bytes, plane)?
                };
                *bytes = &bytes[used..];
            }
            Form::Tans => {
                let read = self.tans.read(bytes, BYTES)?;
                *bytes = &bytes[read..];
                try_resize(&mut self.symbols, plane.len(), 0)?;
                let used = self.tans.decode(bytes, &mut self.symbols)?;
                *bytes = &bytes[used..];
                kernels::narrow(&self.symbols, plane);
            }
        }
        Ok(())
    }
}

/// Whether a long plane looks random.
fn is_random(plane: &[u8]) -> bool {
    if plane.len() < 4 * SAMPLE {
        return false;
    }
    let mut counts = [0; BYTES];
    for run in plane.chunks_exact(plane.len() / RUNS).take(RUNS) {
        run[..SAMPLE / RUNS].iter().for_each(|&byte| counts[usize::from(byte)] += 1);
    }
    looks_random(&counts, SAMPLE)
}

/// Whether bytes are hardly worth a code: the sum of their squared counts is at most 5/4 of that of
/// equally frequent bytes. They have about 7.8 bits each or more. The sum of a sample of random
/// bytes is 1.06 of it.
fn looks_random(counts: &[u32; BYTES], len: usize) -> bool {
    let squares: u128 = counts.iter().map(|&count| u128::from(count).pow(2)).sum();
    4 * BYTES as u128 * squares <= 5 * (len as u128).pow(2)
}
