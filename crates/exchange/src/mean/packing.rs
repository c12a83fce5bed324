//! How the parts of an all-reduce are sent.

use std::ops::Range;

use gradwire_bits::{DecodeError, expect_len};

use super::integers::{Integers, Way};
use super::segment::{Segment, within};

/// How the parts of a round are sent: as their bytes in the buffer, but integers packed.
#[derive(Clone, Copy)]
pub(super) struct Packing<'a> {
    /// The segments of the round.
    pub(super) segments: &'a [Segment],
    pub(super) way: Way,
}

impl Packing<'_> {
    /// Whether messages differ from the bytes in the buffer.
    fn is_packed(self) -> bool {
        self.segments.iter().any(|segment| Integers::of(segment.op, self.way).is_some())
    }

    /// The message of a part of the buffer; `packed` is working memory.
    pub(super) fn pack<'b>(
        self,
        buffer: &'b [u8],
        part: Range<usize>,
        packed: &'b mut Vec<u8>,
    ) -> &'b [u8] {
        if !self.is_packed() {
            return &buffer[part];
        }
        packed.clear();
        for (segment, bytes) in within(self.segments, part) {
            match Integers::of(segment.op, self.way) {
                Some(integers) => integers.pack(&buffer[bytes], packed),
                None => packed.extend_from_slice(&buffer[bytes]),
            }
        }
        packed
    }

    /// Replaces a message by the part's bytes in the buffer; `bytes` is working memory.
    pub(super) fn unpack(
        self,
        part: Range<usize>,
        message: &mut Vec<u8>,
        bytes: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        if !self.is_packed() {
            return expect_len(message, part.len());
        }
        bytes.clear();
        let mut rest = message.as_slice();
        for (segment, range) in within(self.segments, part) {
            if let Some(integers) = Integers::of(segment.op, self.way) {
                integers.unpack(&mut rest, range.len() / 4, bytes)?;
                continue;
            }
            let (own, others) = rest.split_at_checked(range.len()).ok_or(DecodeError::Truncated)?;
            bytes.extend_from_slice(own);
            rest = others;
        }
        expect_len(rest, 0)?;
        std::mem::swap(message, bytes);
        Ok(())
    }
}
