//! How the parts of an all-reduce are sent. A part is sent as its bytes in the buffer, but integers
//! of a [table](gradwire::ReduceOp::TableMean) are packed: indices on the way to a part's owner,
//! sums on the way back. The buffer holds them as `f32`, as in other rounds; sums up to 2^24 are
//! exact.

use std::ops::Range;

use gradwire::ReduceOp;
use gradwire_bits::{DecodeError, expect_len, fixed};

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
    pub(super) fn is_packed(self) -> bool {
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

    /// Replaces a message with the part's bytes in the buffer; `bytes` is working memory.
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

/// Numbers that are packed at a time. They fill whole bytes.
const CHUNK: usize = 1024;

/// Which way a part goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To its owner, with the elements of one rank.
    ToOwner,
    /// From its owner, with the result of `ranks` ranks.
    FromOwner {
        /// The number of ranks.
        ranks: usize,
    },
}

/// The integers that are sent instead of `f32`, if an operation has them.
#[derive(Debug, Clone, Copy)]
struct Integers {
    table: &'static [u8],
    way: Way,
}

impl Integers {
    /// `None` for operations whose elements are `f32` both ways.
    fn of(op: ReduceOp, way: Way) -> Option<Self> {
        match op {
            ReduceOp::TableMean(table) => Some(Self { table, way }),
            ReduceOp::Mean | ReduceOp::Max => None,
        }
    }

    /// The largest number.
    fn largest(self) -> u32 {
        match self.way {
            Way::ToOwner => self.table.len() as u32 - 1,
            Way::FromOwner { ranks } => {
                ranks as u32 * u32::from(self.table.iter().copied().max().unwrap_or(0))
            }
        }
    }

    fn width(self) -> u32 {
        self.largest().checked_ilog2().map_or(0, |log| log + 1)
    }

    /// Appends the numbers of elements, which are little-endian `f32`.
    fn pack(self, elements: &[u8], packed: &mut Vec<u8>) {
        let mut numbers = [0; CHUNK];
        for chunk in elements.as_chunks().0.chunks(CHUNK) {
            let numbers = &mut numbers[..chunk.len()];
            numbers.iter_mut().zip(chunk).for_each(|(to, x)| *to = f32::from_le_bytes(*x) as u32);
            fixed::pack(numbers, self.width(), packed);
        }
    }

    /// Appends elements as little-endian `f32`: the integers that indices stand for, or sums.
    fn unpack(
        self,
        packed: &mut &[u8],
        count: usize,
        elements: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        let len = fixed::len(count, self.width());
        let (own, rest) = packed.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        *packed = rest;
        let value = |number: u32| match self.way {
            Way::ToOwner => f32::from(self.table[number as usize]),
            Way::FromOwner { .. } => number as f32,
        };
        let mut numbers = [0; CHUNK];
        for (at, own) in own.chunks(fixed::len(CHUNK, self.width())).enumerate() {
            let numbers = &mut numbers[..CHUNK.min(count - at * CHUNK)];
            fixed::unpack(own, self.width(), numbers)?;
            if numbers.iter().any(|&number| number > self.largest()) {
                return Err(DecodeError::Corrupt("a sum is larger than all ranks' together"));
            }
            elements.extend(numbers.iter().flat_map(|&number| value(number).to_le_bytes()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: ReduceOp = ReduceOp::TableMean(&[0, 10, 20, 30]);

    fn bytes(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|x| x.to_le_bytes()).collect()
    }

    #[test]
    fn indices_and_sums_by_hand() {
        let up = Integers::of(TABLE, Way::ToOwner).unwrap();
        let (mut packed, mut elements) = (Vec::new(), Vec::new());
        up.pack(&bytes(&[1.0, 3.0, 0.0, 2.0, 1.0]), &mut packed);
        assert_eq!(packed, [0b10_00_11_01, 0b01]);
        up.unpack(&mut &packed[..], 5, &mut elements).unwrap();
        assert_eq!(elements, bytes(&[10.0, 30.0, 0.0, 20.0, 10.0]));
        // Sums of three ranks are up to 90, which takes seven bits.
        let down = Integers::of(TABLE, Way::FromOwner { ranks: 3 }).unwrap();
        let (mut packed, mut elements) = (Vec::new(), Vec::new());
        down.pack(&bytes(&[90.0, 1.0]), &mut packed);
        assert_eq!(packed, [0b1101_1010, 0]);
        let mut rest = &packed[..];
        down.unpack(&mut rest, 2, &mut elements).unwrap();
        assert_eq!((elements, rest), (bytes(&[90.0, 1.0]), &[][..]));
        assert!(Integers::of(ReduceOp::Max, Way::ToOwner).is_none());
    }

    #[test]
    fn sums_that_no_ranks_make_are_refused() {
        let down = Integers::of(TABLE, Way::FromOwner { ranks: 3 }).unwrap();
        let refused = |mut packed: &[u8]| down.unpack(&mut packed, 1, &mut Vec::new()).unwrap_err();
        assert!(matches!(refused(&[91]), DecodeError::Corrupt(_)));
        assert_eq!(refused(&[]), DecodeError::Truncated);
    }
}
