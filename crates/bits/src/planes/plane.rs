//! The forms of a plane.

use alloc::vec::Vec;

use crate::huffman::{self, STREAMS_BITS, STREAMS_EXTRA};
use crate::{DecodeError, tans, try_resize};

/// The values of a byte.
const BYTES: usize = 256;
/// Planes from this length on have four streams of Huffman code.
const STREAMED: usize = 4096;
/// The bytes of a sample, in [`RUNS`] runs.
const SAMPLE: usize = 4096;
const RUNS: usize = 64;
/// A plane is raw if its sample has more bits: 39 of 40. A sample of random bytes has 0.05 bits a
/// byte less than eight.
const RANDOM: u64 = (8 * SAMPLE / 40 * 39) as u64;
/// The bytes before the code itself: the least byte and the size of the alphabet.
const ALPHABET: usize = 2;

const TOO_LARGE: DecodeError = DecodeError::Corrupt("an alphabet of bytes ends above 255");

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
    /// Bytes less the least one.
    symbols: Vec<u16>,
}

impl PlaneCoder {
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
        count(plane, &mut counts);
        let least = counts.iter().position(|&count| count > 0).unwrap_or(0);
        let largest = counts.iter().rposition(|&count| count > 0).unwrap_or(0);
        if least == largest {
            out.push(least as u8);
            return Form::Constant;
        }
        let form = self.fit(&counts[least..=largest], plane.len());
        if form == Form::Raw {
            return form;
        }
        out.extend_from_slice(&[least as u8, (largest - least) as u8]);
        self.symbols.clear();
        self.symbols.extend(plane.iter().map(|&byte| u16::from(byte) - least as u16));
        if form == Form::Tans {
            self.tans.write(out);
            self.tans.encode(&self.symbols, out);
        } else {
            self.huffman.write(out);
            if plane.len() < STREAMED {
                self.huffman.encode(&self.symbols, out);
            } else {
                self.huffman.encode_streams(&self.symbols, out);
            }
        }
        form
    }

    /// Fits the codes to the counts of an alphabet of two or more bytes, and returns the form to
    /// use.
    fn fit(&mut self, counts: &[u32], len: usize) -> Form {
        self.huffman.fit(counts, STREAMS_BITS);
        let streams = if len < STREAMED { 0 } else { STREAMS_EXTRA };
        let bits = self.huffman.packed_bits().next_multiple_of(8) + self.huffman.len_bits(counts);
        let huffman = (bits.div_ceil(8) as usize) + streams + ALPHABET;
        let worthwhile =
            |tans: u64| (tans / 8) as usize + ALPHABET < (huffman - huffman / 16).min(len);
        if worthwhile(tans::entropy_bits(counts)) {
            self.tans.fit(counts);
            // The estimate may be too low by a bit a stream.
            if worthwhile(self.tans.estimated_bits(counts) + 32) {
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
            Form::Huffman | Form::Tans => self.decode_symbols(form, bytes, plane)?,
        }
        Ok(())
    }

    fn decode_symbols(
        &mut self,
        form: Form,
        bytes: &mut &[u8],
        plane: &mut [u8],
    ) -> Result<(), DecodeError> {
        let &[least, more] = bytes.split_off(..ALPHABET).ok_or(DecodeError::Truncated)? else {
            return Err(DecodeError::Truncated);
        };
        least.checked_add(more).ok_or(TOO_LARGE)?;
        let alphabet = usize::from(more) + 1;
        try_resize(&mut self.symbols, plane.len(), 0)?;
        let symbols = &mut self.symbols[..plane.len()];
        let used = if form == Form::Tans {
            let used = self.tans.read(bytes, alphabet)?;
            used + self.tans.decode(&bytes[used..], symbols)?
        } else {
            let used = self.huffman.read(bytes, alphabet, STREAMS_BITS)?;
            used + if plane.len() < STREAMED {
                self.huffman.decode(&bytes[used..], symbols)?
            } else {
                self.huffman.decode_streams(&bytes[used..], symbols)?
            }
        };
        *bytes = &bytes[used..];
        for (byte, symbol) in plane.iter_mut().zip(symbols) {
            *byte = least + *symbol as u8;
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
        count(&run[..SAMPLE / RUNS], &mut counts);
    }
    tans::entropy_bits(&counts) > RANDOM
}

/// Adds the occurrences of each byte to its count.
fn count(bytes: &[u8], counts: &mut [u32; BYTES]) {
    bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
}
