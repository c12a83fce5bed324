//! The common part of the ternary compressors: quartic packing, block by block.
//!
//! Quartic packing cuts a tensor into five contiguous fifths and packs one trit of each into a byte
//! (see [`gradwire_bits::quartic`]). Encoding processes one block of each fifth at a time, so
//! digits, gradient and residual stay in the first-level cache. Decoding takes longer pieces,
//! because it reads and writes `out` only once.

use std::ops::Range;

use gradwire_bits::{DecodeError, kernels, zero_run};

use crate::device::dense::copy;
use crate::parts::PART as PART_ELEMENTS;
use crate::wire::fields;
use crate::{BLOCK, Helpers, Source, Workspace};

/// The quartic byte of five trits 0.
const ZEROS: u8 = 121;
/// The byte of five trits +1, the largest quartic byte. If runs are coded, larger bytes stand for
/// them.
const LARGEST_DIGIT: u8 = 242;

/// The most bytes of a thread's part, and of a decoded piece: the longer the stretches that are
/// written in turn in the five fifths, the better the processor prefetches.
const PART: usize = PART_ELEMENTS.div_ceil(5).next_multiple_of(BLOCK);

/// The division of a tensor into five parts of equal length; the last may be shorter.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fifths {
    elements: usize,
    /// The length of a part, and the number of bytes before any run is coded.
    pub(super) len: usize,
}

impl Fifths {
    pub(super) fn new(elements: usize) -> Self {
        Self { elements, len: elements.div_ceil(5) }
    }

    /// The elements of a fifth that bytes `start .. start + len` hold.
    fn range(&self, fifth: usize, start: usize, len: usize) -> Range<usize> {
        let first = fifth * self.len + start;
        first.min(self.elements)..(first + len).min(self.elements)
    }

    /// Quantizes the tensor and appends the bytes, with or without zero-run code. `quantize`
    /// receives the offset of a piece, the piece, and the digits, and appends a trit to each digit.
    pub(super) fn encode(
        &self,
        source: &mut Source<'_>,
        code_runs: bool,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
        quantize: impl Fn(usize, &mut [f32], &mut [u8], &mut Workspace) + Sync,
    ) {
        // Runs cross the borders of parts.
        let mut runs = code_runs.then(zero_run::Encoder::default);
        let mut put = |digits: &[u8]| match &mut runs {
            Some(runs) => runs.push(digits, message),
            None => message.extend_from_slice(digits),
        };
        let parts = workspace.helpers.parts_of_lanes(self.elements, self.len, 1);
        if parts.is_one() {
            self.fill_blocks(source, 0..self.len, workspace, &quantize, put);
        } else {
            let fill = |source: &mut Source<'_>, places, bytes: &mut Vec<u8>, own: &mut _| {
                bytes.clear();
                self.fill_blocks(source, places, own, &quantize, |digits| {
                    bytes.extend_from_slice(digits);
                });
            };
            source.each_in_order(parts, workspace, |places| places, fill, |bytes| put(bytes));
        }
        if let Some(mut runs) = runs {
            runs.finish(message);
        }
    }

    /// Passes the bytes at these places, without zero-run code, to `put`, a block at a time.
    fn fill_blocks(
        &self,
        source: &mut Source<'_>,
        places: Range<usize>,
        workspace: &mut Workspace,
        quantize: &impl Fn(usize, &mut [f32], &mut [u8], &mut Workspace),
        mut put: impl FnMut(&[u8]),
    ) {
        let mut digits = [0; BLOCK];
        for (start, len) in pieces(places, BLOCK) {
            let digits = &mut digits[..len];
            self.fill(source, start, workspace, digits, quantize);
            put(digits);
        }
    }

    /// Writes the bytes of a block without zero-run code.
    fn fill(
        &self,
        source: &mut Source<'_>,
        start: usize,
        workspace: &mut Workspace,
        digits: &mut [u8],
        quantize: &impl Fn(usize, &mut [f32], &mut [u8], &mut Workspace),
    ) {
        digits.fill(0);
        for fifth in 0..5 {
            let range = self.range(fifth, start, digits.len());
            let (real, padding) = digits.split_at_mut(range.len());
            source.take(range.start, range.len(), |piece| {
                quantize(range.start, piece, real, workspace);
            });
            // Zero trits follow the end of the tensor and extend runs of zeros.
            padding.iter_mut().for_each(|digit| *digit = 3 * *digit + 1);
        }
    }

    /// Adds `scale` times the trits of these bytes, with or without zero-run code. The helpers
    /// share the work, except the expansion of runs.
    pub(super) fn decode_add(
        &self,
        mut bytes: &[u8],
        coded_runs: bool,
        scale: f32,
        helpers: &mut Helpers,
        out: &mut [f32],
    ) -> Result<(), DecodeError> {
        self.check(bytes, coded_runs)?;
        if scale == 0.0 {
            return Ok(());
        }
        let mut runs = zero_run::Decoder::new(bytes);
        let mut fill = |digits: &mut [u8]| match coded_runs {
            true => drop(runs.fill(digits)),
            false => {
                digits.copy_from_slice(bytes.split_off(..digits.len()).expect("it was checked"))
            }
        };
        let parts = helpers.parts_of_lanes(self.elements, self.len, 1);
        if parts.is_one() {
            let mut add = |digits: &mut [u8]| {
                for (start, len) in pieces(0..self.len, digits.len()) {
                    let digits = &mut digits[..len];
                    fill(digits);
                    for fifth in 0..5 {
                        let range = self.range(fifth, start, len);
                        kernels::ternary_add(&digits[..range.len()], fifth, scale, &mut out[range]);
                    }
                }
            };
            // Zeroing a long piece takes longer than a small tensor.
            if self.len <= BLOCK {
                add(&mut [0; BLOCK])
            } else {
                add(&mut [0; PART])
            }
            return Ok(());
        }
        let lanes = out.chunks_mut(self.len).map(|lane| lane.chunks_mut(parts.len()));
        let mut lanes: Vec<_> = lanes.collect();
        let jobs = parts.places().map(|places| {
            let (mut digits, len) = ([0; PART], places.len());
            fill(&mut digits[..len]);
            let lanes: Vec<_> =
                lanes.iter_mut().map(|lane| lane.next().unwrap_or_default()).collect();
            (digits, lanes)
        });
        helpers.share(jobs, |(digits, lanes)| {
            for (fifth, out) in lanes.into_iter().enumerate() {
                kernels::ternary_add(&digits[..out.len()], fifth, scale, out);
            }
        });
        Ok(())
    }

    /// Appends quartic bytes, with or without zero-run code.
    pub(super) fn pack(
        &self,
        bytes: &[u8],
        code_runs: bool,
        message: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        self.check_plain(bytes)?;
        if !code_runs {
            return copy(bytes, message);
        }
        let mut runs = zero_run::Encoder::default();
        runs.push(bytes, message);
        runs.finish(message);
        Ok(())
    }

    /// Checks bytes with or without zero-run code, and appends them without.
    pub(super) fn unpack(
        &self,
        bytes: &[u8],
        coded_runs: bool,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        self.check(bytes, coded_runs)?;
        if !coded_runs {
            return copy(bytes, form);
        }
        let start = form.len();
        form.try_reserve(self.len)?;
        form.resize(start + self.len, 0);
        zero_run::Decoder::new(bytes).fill(&mut form[start..]);
        Ok(())
    }

    /// Checks bytes with or without zero-run code.
    fn check(&self, bytes: &[u8], coded_runs: bool) -> Result<(), DecodeError> {
        if coded_runs { self.check_runs(bytes) } else { self.check_plain(bytes) }
    }

    /// Checks bytes without coded runs.
    fn check_plain(&self, bytes: &[u8]) -> Result<(), DecodeError> {
        fields::expect_len(bytes, self.len)?;
        if kernels::max_byte(bytes) > LARGEST_DIGIT {
            return Err(DecodeError::Corrupt("a quartic byte is above 242"));
        }
        self.check_padding(bytes)
    }

    /// Checks bytes with coded runs.
    fn check_runs(&self, coded: &[u8]) -> Result<(), DecodeError> {
        match zero_run::decoded_len(coded) {
            len if len < self.len => Err(DecodeError::Truncated),
            len if len > self.len => Err(DecodeError::Trailing { extra: len - self.len }),
            _ => self.check_padding(coded),
        }
    }

    /// Checks that the places past the end of the tensor hold zero trits. There are at most four,
    /// so they are in the last four bytes.
    fn check_padding(&self, coded: &[u8]) -> Result<(), DecodeError> {
        let last = last_bytes(coded);
        let is_zero = |place: usize| {
            let (part, column) = (place / self.len, place % self.len);
            let byte = last[last.len() - (self.len - column)];
            byte / 3u8.pow(4 - part as u32) % 3 == 1
        };
        if (self.elements..5 * self.len).all(is_zero) {
            Ok(())
        } else {
            Err(DecodeError::Corrupt("padding is not zero"))
        }
    }
}

/// The pieces of these bytes, as start and length, of at most `most` bytes.
fn pieces(bytes: Range<usize>, most: usize) -> impl Iterator<Item = (usize, usize)> {
    bytes.clone().step_by(most).map(move |start| (start, most.min(bytes.end - start)))
}

/// The last four bytes of expanded run-coded bytes, preceded by zero trits if there are fewer.
fn last_bytes(coded: &[u8]) -> [u8; 4] {
    let mut last = [ZEROS; 4];
    let bytes = coded.iter().rev().flat_map(|&byte| match byte {
        0..=LARGEST_DIGIT => std::iter::repeat_n(byte, 1),
        run => std::iter::repeat_n(ZEROS, usize::from(run) - 241),
    });
    for (slot, byte) in last.iter_mut().rev().zip(bytes) {
        *slot = byte;
    }
    last
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_cover_every_element_once_in_order() {
        for elements in 0..60 {
            let fifths = Fifths::new(elements);
            let all: Vec<usize> =
                (0..5).flat_map(|part| fifths.range(part, 0, fifths.len)).collect();
            assert_eq!(all, (0..elements).collect::<Vec<_>>());
        }
    }

    #[test]
    fn last_bytes_look_into_runs() {
        assert_eq!(last_bytes(&[7, 243, 9]), [7, 121, 121, 9]);
        assert_eq!(last_bytes(&[1, 2, 255]), [121; 4]);
        assert_eq!(last_bytes(&[5, 6]), [121, 121, 5, 6]);
    }

    #[test]
    fn padding_is_found_in_every_part() {
        // Six elements: two bytes; places 6 to 9 are part 3 and part 4 of both.
        let fifths = Fifths::new(6);
        assert_eq!(fifths.check_plain(&[121, 121]), Ok(()));
        assert_eq!(fifths.check_plain(&[121 + 81, 121 - 9]), Ok(()));
        for wrong in [[122, 121], [121, 120], [124, 121], [121, 118]] {
            assert!(fifths.check_plain(&wrong).is_err(), "{wrong:?}");
            assert!(fifths.check_runs(&wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(fifths.check_runs(&[243]), Ok(()));
        assert_eq!(Fifths::new(0).check_plain(&[]), Ok(()));
    }
}
