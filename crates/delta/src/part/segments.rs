//! Rice code of positions in successive segments, each with its own parameter.
//!
//! The positions increase within a segment. As in [`gradwire_bits::rice`], a gap g with parameter b
//! is g >> b ones, a zero and the lowest b bits of g, so each one skips 2^b positions. A one that
//! skips the rest of a segment leads to the start of the next one. The list ends at the end of the
//! last segment: neither its length nor the number of positions in a segment is transmitted.

use gradwire_bits::{BitReader, BitWriter, DecodeError, rice};

/// The largest parameter: one step skips a whole part.
pub(super) const MAX_PARAMETER: u32 = 20;

/// Positions that are written at once.
const TOGETHER: usize = 256;

/// A segment of a list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Segment {
    /// The number of positions of the segment.
    pub(super) size: u32,
    /// The Rice parameter b, at most [`MAX_PARAMETER`].
    pub(super) parameter: u32,
}

/// Writes a list.
pub(super) struct ListWriter<'a> {
    segments: &'a [Segment],
    /// The segment and the position in it from where the next gap is counted.
    segment: usize,
    next: u32,
}

impl<'a> ListWriter<'a> {
    pub(super) fn new(segments: &'a [Segment]) -> Self {
        Self { segments, segment: 0, next: 0 }
    }

    /// Appends positions of a segment.
    pub(super) fn put(&mut self, writer: &mut BitWriter<'_>, segment: usize, positions: &[u32]) {
        let Some(last) = positions.last() else { return };
        while self.segment < segment {
            self.cross(writer);
        }
        rice::put_all(writer, self.next, positions, self.segments[segment].parameter);
        self.next = last + 1;
    }

    /// As [`put`](Self::put), for positions that come one by one.
    pub(super) fn put_each(
        &mut self,
        writer: &mut BitWriter<'_>,
        segment: usize,
        positions: impl Iterator<Item = u32>,
    ) {
        let (mut some, mut count) = ([0; TOGETHER], 0);
        for position in positions {
            some[count] = position;
            count += 1;
            if count == TOGETHER {
                self.put(writer, segment, &some);
                count = 0;
            }
        }
        self.put(writer, segment, &some[..count]);
    }

    /// Skips the rest of the segment.
    fn cross(&mut self, writer: &mut BitWriter<'_>) {
        let Segment { size, parameter } = self.segments[self.segment];
        let mut ones = (size - self.next).div_ceil(1 << parameter);
        while ones > 0 {
            let some = ones.min(32);
            writer.put((1 << some) - 1, some);
            ones -= some;
        }
        self.segment += 1;
        self.next = 0;
    }

    /// Ends the list.
    pub(super) fn finish(mut self, writer: &mut BitWriter<'_>) {
        while self.segment < self.segments.len() {
            self.cross(writer);
        }
    }
}

/// A position that was read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) segment: usize,
    pub(super) position: u32,
}

/// Reads a list.
pub(super) struct ListReader<'a> {
    segments: &'a [Segment],
    segment: usize,
    next: u32,
}

/// The most ones that are read at once: with them a window has the whole code.
const UNARY: u32 = 32;

impl<'a> ListReader<'a> {
    pub(super) fn new(segments: &'a [Segment]) -> Self {
        Self { segments, segment: 0, next: 0 }
    }

    /// Reads positions of the segment whose position was read last, at first the first one, and
    /// returns their number. Stops early, as [`rice::read_some`] does.
    pub(super) fn read_some(&mut self, reader: &mut BitReader<'_>, positions: &mut [u32]) -> usize {
        let Some(&Segment { size, parameter }) = self.segments.get(self.segment) else { return 0 };
        rice::read_some(reader, parameter, size, &mut self.next, positions)
    }

    /// Reads a position; `None` at the end of the list. Each position takes at least one bit.
    ///
    /// # Errors
    /// A position past the end of its segment, and bytes that end too early.
    #[inline(always)]
    pub(super) fn read(
        &mut self,
        reader: &mut BitReader<'_>,
    ) -> Result<Option<Listed>, DecodeError> {
        loop {
            let Some(&Segment { size, parameter }) = self.segments.get(self.segment) else {
                return Ok(None);
            };
            if self.next >= size {
                (self.segment, self.next) = (self.segment + 1, 0);
                continue;
            }
            let window = reader.peek();
            let ones = window.trailing_ones().min(UNARY);
            let start = u64::from(self.next) + (u64::from(ones) << parameter);
            if start < size.into() && ones < UNARY {
                let rest = window >> (ones + 1);
                let position = start as u32 + (rest & ((1 << parameter) - 1)) as u32;
                reader.skip(ones + 1 + parameter);
                reader.check()?;
                if position >= size {
                    return Err(DecodeError::Corrupt("a position lies past its segment"));
                }
                self.next = position + 1;
                return Ok(Some(Listed { segment: self.segment, position }));
            }
            let ones = ones.min((size - self.next).div_ceil(1 << parameter));
            reader.skip(ones);
            reader.check()?;
            self.next =
                (u64::from(self.next) + (u64::from(ones) << parameter)).min(size.into()) as u32;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(segments: &[Segment], positions: &[(usize, u32)]) -> Vec<u8> {
        let mut out = vec![];
        let mut writer = BitWriter::new(&mut out);
        let mut list = ListWriter::new(segments);
        for segment in positions.chunk_by(|one, next| one.0 == next.0) {
            list.put_each(&mut writer, segment[0].0, segment.iter().map(|place| place.1));
        }
        list.finish(&mut writer);
        writer.finish();
        out
    }

    fn decoded(segments: &[Segment], bytes: &[u8]) -> Result<Vec<(usize, u32)>, DecodeError> {
        let (mut reader, mut list) = (BitReader::new(bytes), ListReader::new(segments));
        let mut positions = vec![];
        let mut room = [0; 7];
        loop {
            let count = list.read_some(&mut reader, &mut room);
            positions.extend(room[..count].iter().map(|&position| (list.segment, position)));
            let Some(place) = list.read(&mut reader)? else { break };
            positions.push((place.segment, place.position));
        }
        gradwire_bits::expect_len(bytes, reader.finish()?)?;
        Ok(positions)
    }

    #[test]
    fn bits_by_hand() {
        let segments =
            [(10, 2), (0, 3), (5, 0), (3, 1)].map(|(size, parameter)| Segment { size, parameter });
        // Gap 1: 0, then 01. From 2: gap 7 = 4 + 3: 1, 0, then 11. The first segment ends. In the
        // third: gap 1: 1, 0; the rest of 3: 111. In the fourth: gap 2: 1, 0, then 0; it ends.
        let positions = [(0, 1), (0, 9), (2, 1), (3, 2)];
        let bits = [0, 1, 0, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0];
        let expected = bits.iter().rev().fold(0u16, |all, bit| all << 1 | bit);
        let bytes = code(&segments, &positions);
        assert_eq!(bytes, expected.to_le_bytes());
        assert_eq!(decoded(&segments, &bytes), Ok(positions.to_vec()));
        // One at a time, the rest of a segment of 10 is 3 steps of 4.
        assert_eq!(code(&segments[..1], &[]), [0b111]);
        assert_eq!(decoded(&segments[..1], &[0b111]), Ok(vec![]));
        assert_eq!(decoded(&segments[..1], &[]), Err(DecodeError::Truncated));
        // 8 + 2 is past the end.
        let past = DecodeError::Corrupt("a position lies past its segment");
        assert_eq!(decoded(&segments[..1], &[0b1_0011, 0]), Err(past));
    }

    #[test]
    fn lists_return() {
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for case in 0..400 {
            let segments: Vec<Segment> = (0..random(9))
                .map(|_| Segment {
                    size: random(1 << (case % 13)) as u32,
                    parameter: random(12) as u32,
                })
                .collect();
            let rate = 1 + random(40);
            let mut positions = vec![];
            for (at, segment) in segments.iter().enumerate() {
                positions.extend((0..segment.size).filter(|_| random(rate) == 0).map(|x| (at, x)));
            }

            let bytes = code(&segments, &positions);
            assert_eq!(decoded(&segments, &bytes), Ok(positions.clone()));
            for end in 0..bytes.len() {
                assert!(decoded(&segments, &bytes[..end]).is_err());
            }
        }
    }
}
