//! Segments of the buffer of an all-reduce, and its parts.

use std::ops::Range;

use gradwire::{Dtype, ReduceOp};

/// One tensor's message, or addend of a round, in the buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment {
    /// The tensor's place in the group.
    pub(super) tensor: usize,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) dtype: Dtype,
    pub(super) op: ReduceOp,
}

/// The segments that overlap a part, each with the bytes that it shares with the part.
pub(super) fn within(
    segments: &[Segment],
    part: Range<usize>,
) -> impl Iterator<Item = (Segment, Range<usize>)> {
    let cut = move |segment: &Segment| {
        (*segment, segment.start.max(part.start)..segment.end.min(part.end))
    };
    segments.iter().map(cut).filter(|(_, bytes)| bytes.start < bytes.end)
}

/// Cuts the bytes of `segments` into parts of nearly equal length and of whole elements.
pub(super) fn cut(segments: &[Segment], parts: usize, cuts: &mut Vec<usize>) {
    let first = segments.first().map_or(0, |first| first.start);
    let total = segments.last().map_or(0, |last| last.end);
    let mut at = 0;
    cuts.clear();
    cuts.push(first);
    for part in 1..parts {
        let target = first + ((total - first) as u128 * part as u128 / parts as u128) as usize;
        while at < segments.len() && segments[at].end <= target {
            at += 1;
        }
        cuts.push(
            segments
                .get(at)
                .map_or(total, |segment| target - (target - segment.start) % segment.dtype.size()),
        );
    }
    cuts.push(total);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_between_elements() {
        let segment =
            |start, end, dtype| Segment { tensor: 0, start, end, dtype, op: ReduceOp::Mean };
        let segments =
            [segment(0, 6, Dtype::F16), segment(6, 6, Dtype::F32), segment(6, 26, Dtype::F32)];
        let mut cuts = Vec::new();
        cut(&segments, 1, &mut cuts);
        assert_eq!(cuts, [0, 26]);
        // Targets 6, 13 and 19: element borders of the last segment are 6, 10, 14, 18, 22.
        cut(&segments, 4, &mut cuts);
        assert_eq!(cuts, [0, 6, 10, 18, 26]);
        // A later round with targets 12 and 19; the element borders before them are 10 and 18.
        cut(&segments[2..], 3, &mut cuts);
        assert_eq!(cuts, [6, 10, 18, 26]);
        cut(&[], 3, &mut cuts);
        assert_eq!(cuts, [0, 0, 0, 0]);
    }
}
