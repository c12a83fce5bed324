//! All-reduce: messages of linear compressors are averaged on their way, and so are the addends of methods in
//! [rounds](gradwire::MultiRound).
//!
//! The messages of all tensors are concatenated and cut into `n` parts of whole elements. Every rank sends each part to
//! its owner. The owner adds the `n` versions of its part in rank order in `f32`, divides by `n`, rounds once to the
//! message's element type (the mean, not the sum, so that 16 bits do not overflow), and sends the result to all. Two
//! phases; with messages of `b` bytes in all, a rank sends and receives about `2·b·(n − 1)/n` bytes. The owner, too,
//! continues with the rounded bytes.
//!
//! A method in rounds takes two phases per round. A round may ask for the largest values in place of the mean, or for sums of
//! integers, which travel packed. The addends of its first round travel with the messages of the other
//! tensors; the addends of later rounds follow when all means of the previous round are known.
//!
//! Messages and addends come from this process or from a [device](DeviceGroup).

mod device;
mod host;

use std::ops::Range;

use gradwire::{Dtype, Error, ReduceOp};
use gradwire_bits::{DecodeError, expect_len};

use self::device::Device;
use self::host::Host;
use super::table_sums::{Integers, Way};
use super::{Collective, Reduction};
use crate::reducer::DeviceGroup;
use crate::report::{timed, worked};
use crate::{ExchangeError, Operation, Phase, Result, StepReport, Transport, elements};

/// Averages by all-reduce; see the [module](self).
pub(crate) struct AllReduce {
    rounds: Rounds,
    host: host::Buffers,
    device: device::Buffers,
}

/// The messages and addends of a step, and their means.
struct Rounds {
    /// All messages and addends, round by round: first this rank's, then their means.
    buffer: Vec<u8>,
    segments: Vec<Segment>,
    /// The start of each owner's part in the buffer, and the end of the last part, in the round in progress.
    cuts: Vec<usize>,
    /// Each rank's version of the part that this rank owns.
    parts: Vec<Vec<u8>>,
    /// A part as it is sent, where that is not as it is in the buffer.
    packed: Vec<u8>,
    /// The means of one tensor's rounds so far.
    means: Vec<f32>,
    arithmetic: Arithmetic,
}

/// One tensor's message, or addend of a round, in the buffer.
#[derive(Debug, Clone, Copy)]
struct Segment {
    /// The tensor's place in the group.
    tensor: usize,
    start: usize,
    end: usize,
    dtype: Dtype,
    op: ReduceOp,
}

/// Working memory of the mean.
#[derive(Default)]
struct Arithmetic {
    sum: Vec<f32>,
    term: Vec<f32>,
    bits: Vec<u16>,
}

impl AllReduce {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            rounds: Rounds::new(ranks),
            host: host::Buffers::default(),
            device: device::Buffers::default(),
        }
    }
}

impl Collective for AllReduce {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let Self { rounds, host: buffers, .. } = self;
        average(step, rounds, &mut Host { values, buffers })
    }

    fn reduce_device(
        &mut self,
        step: &mut Reduction<'_>,
        device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        let Self { rounds, device: buffers, .. } = self;
        average(step, rounds, &mut Device { device, buffers })
    }
}

/// Where a group is compressed and its mean is decoded.
trait Side {
    /// Adds the messages of all tensors that are not averaged in rounds.
    fn encode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()>;

    /// Adds the addends of a round, for the tensors that have this round.
    fn contribute(
        &mut self,
        step: &mut Reduction<'_>,
        round: usize,
        rounds: &mut Rounds,
    ) -> Result<()>;

    /// Decodes the means of all tensors.
    fn decode(&mut self, step: &mut Reduction<'_>, rounds: &mut Rounds) -> Result<()>;
}

fn average(step: &mut Reduction<'_>, rounds: &mut Rounds, side: &mut dyn Side) -> Result<()> {
    let weights = if step.equal { &[][..] } else { step.weights };
    rounds.buffer.clear();
    rounds.segments.clear();
    step.compress(|step| {
        side.encode(step, rounds)?;
        side.contribute(step, 0, rounds)
    })?;
    let mut first = 0;
    for round in 1.. {
        rounds.average(step.transport, step.step, first, weights, step.report)?;
        first = rounds.segments.len();
        step.compress(|step| side.contribute(step, round, rounds))?;
        if rounds.segments.len() == first {
            break;
        }
    }
    step.decompress(|step| side.decode(step, rounds))
}

/// Replaces `values`, one flat buffer per tensor, by their exact mean over all ranks: the same bits on every rank.
///
/// # Errors
/// `Codec` for a value that is not finite; those of the transport.
pub(crate) fn exact_mean(
    transport: &mut dyn Transport,
    step: u64,
    values: &mut [Vec<f32>],
) -> Result<()> {
    for (tensor, values) in values.iter().enumerate() {
        if let Some((index, value)) =
            values.iter().enumerate().find(|(_, value)| !value.is_finite())
        {
            let (tensor, value) = (tensor.to_string(), *value);
            return Err(Error::NonFinite { tensor, index, value }.into());
        }
    }
    let mut all = Rounds::new(transport.size());
    values.iter().for_each(|values| elements::narrow_onto(values, &mut all.buffer));
    let (end, dtype) = (all.buffer.len(), Dtype::F32);
    all.segments.push(Segment { tensor: 0, start: 0, end, dtype, op: ReduceOp::Mean });
    all.average(transport, step, 0, &[], &mut StepReport::default())?;
    all.collect(0);
    let mut rest = all.means.as_slice();
    for values in values {
        let (mean, others) = rest.split_at(values.len());
        values.copy_from_slice(mean);
        rest = others;
    }
    Ok(())
}

impl Rounds {
    fn new(ranks: usize) -> Self {
        Self {
            buffer: Vec::new(),
            segments: Vec::new(),
            cuts: Vec::new(),
            parts: vec![Vec::new(); ranks],
            packed: Vec::new(),
            means: Vec::new(),
            arithmetic: Arithmetic::default(),
        }
    }

    /// Adds a tensor's message, or its addend of a round.
    fn push(&mut self, tensor: usize, dtype: Dtype, op: ReduceOp, bytes: &[u8]) {
        let start = self.buffer.len();
        self.buffer.extend_from_slice(bytes);
        let end = self.buffer.len();
        self.segments.push(Segment { tensor, start, end, dtype, op });
    }

    /// The mean of a tensor's messages.
    fn message(&self, tensor: usize) -> &[u8] {
        let segment = self.segments.iter().find(|segment| segment.tensor == tensor);
        let segment = segment.expect("every tensor was encoded");
        &self.buffer[segment.start..segment.end]
    }

    /// Bytes of this rank's addends of a tensor.
    fn addend_bytes(&self, tensor: usize) -> usize {
        let own = self.segments.iter().filter(|segment| segment.tensor == tensor);
        own.map(|segment| segment.op.bytes((segment.end - segment.start) / 4)).sum()
    }

    /// Leaves the means of a tensor's rounds so far in `self.means`.
    fn collect(&mut self, tensor: usize) {
        self.means.clear();
        for segment in self.segments.iter().filter(|segment| segment.tensor == tensor) {
            let before = self.means.len();
            elements::widen_onto(&self.buffer[segment.start..segment.end], &mut self.means);
            if let ReduceOp::TableMean(_) = segment.op {
                let ranks = self.parts.len() as f32;
                self.means[before..].iter_mut().for_each(|sum| *sum /= ranks);
            }
        }
    }

    /// Replaces the segments from `first` on by their means over all ranks, or sums of integers; without `weights`, all
    /// ranks weigh the same.
    fn average(
        &mut self,
        transport: &mut dyn Transport,
        step: u64,
        first: usize,
        weights: &[f32],
        report: &mut StepReport,
    ) -> Result<()> {
        cut(&self.segments[first..], self.parts.len(), &mut self.cuts);
        timed(&mut report.wire, || self.scatter(transport, step, first))?;
        worked(&mut report.decompress, || self.reduce_own(transport.rank(), first, weights));
        timed(&mut report.wire, || self.gather(transport, step, first))
    }

    /// The bytes of the part of `owner` in the buffer.
    fn part(&self, owner: usize) -> Range<usize> {
        self.cuts[owner]..self.cuts[owner + 1]
    }

    /// Sends every part to its owner, and receives all ranks' versions of this rank's own.
    fn scatter(&mut self, transport: &mut dyn Transport, step: u64, first: usize) -> Result<()> {
        let operation = Operation::whole(Phase::Scatter, step);
        let rank = transport.rank();
        for to in transport.endpoint().others() {
            let part = self.part(to);
            let sent = Sent { segments: &self.segments[first..], way: Way::ToOwner };
            transport.send(to, operation, sent.of(&self.buffer, part, &mut self.packed))?;
        }
        let own = self.part(rank);
        let sent = Sent { segments: &self.segments[first..], way: Way::ToOwner };
        for (from, part) in self.parts.iter_mut().enumerate() {
            if from == rank {
                part.clear();
                part.extend_from_slice(sent.of(&self.buffer, own.clone(), &mut self.packed));
            } else {
                transport.recv(from, operation, part)?;
            }
            sent.read(own.clone(), part, &mut self.packed)
                .map_err(|error| ExchangeError::protocol(from, operation, error.to_string()))?;
        }
        Ok(())
    }

    /// Writes the mean of this rank's own part to the buffer, for the segments from `first` on.
    fn reduce_own(&mut self, rank: usize, first: usize, weights: &[f32]) {
        let part = self.part(rank);
        for (segment, bytes) in within(&self.segments[first..], part.clone()) {
            let terms =
                self.parts.iter().map(|own| &own[bytes.start - part.start..bytes.end - part.start]);
            self.arithmetic.combine(segment, terms, weights, &mut self.buffer[bytes.clone()]);
        }
    }

    /// Sends the mean of this rank's part to all, and receives the means of the other parts.
    fn gather(&mut self, transport: &mut dyn Transport, step: u64, first: usize) -> Result<()> {
        let operation = Operation::whole(Phase::Gather, step);
        let rank = transport.rank();
        let own = self.part(rank);
        let way = Way::FromOwner { ranks: self.parts.len() };
        let sent = Sent { segments: &self.segments[first..], way };
        self.parts[rank].clear();
        self.parts[rank].extend_from_slice(sent.of(&self.buffer, own, &mut self.packed));
        transport.all_gather_v(operation, &mut self.parts)?;
        for (from, part) in self.parts.iter_mut().enumerate() {
            let bytes = self.cuts[from]..self.cuts[from + 1];
            sent.read(bytes.clone(), part, &mut self.packed)
                .map_err(|error| ExchangeError::protocol(from, operation, error.to_string()))?;
            self.buffer[bytes].copy_from_slice(part);
        }
        Ok(())
    }
}

/// What is sent of a part.
#[derive(Clone, Copy)]
struct Sent<'a> {
    /// The segments of the round.
    segments: &'a [Segment],
    way: Way,
}

impl Sent<'_> {
    /// Whether it differs from the bytes in the buffer.
    fn is_packed(self) -> bool {
        self.segments.iter().any(|segment| Integers::of(segment.op, self.way).is_some())
    }

    /// The message of a part of the buffer; `packed` is working memory.
    fn of<'b>(self, buffer: &'b [u8], part: Range<usize>, packed: &'b mut Vec<u8>) -> &'b [u8] {
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
    fn read(
        self,
        part: Range<usize>,
        message: &mut Vec<u8>,
        bytes: &mut Vec<u8>,
    ) -> std::result::Result<(), DecodeError> {
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

/// The segments of which a part has something, and which bytes these are.
fn within(
    segments: &[Segment],
    part: Range<usize>,
) -> impl Iterator<Item = (Segment, Range<usize>)> {
    let cut = move |segment: &Segment| {
        (*segment, segment.start.max(part.start)..segment.end.min(part.end))
    };
    segments.iter().map(cut).filter(|(_, bytes)| bytes.start < bytes.end)
}

impl Arithmetic {
    /// Combines the terms of a segment, in their order; without `weights`, all weigh the same.
    fn combine<'a>(
        &mut self,
        segment: Segment,
        terms: impl ExactSizeIterator<Item = &'a [u8]>,
        weights: &[f32],
        out: &mut [u8],
    ) {
        let Segment { dtype, op, .. } = segment;
        let count = terms.len() as f32;
        for (at, term) in terms.enumerate() {
            let into = if at == 0 { &mut self.sum } else { &mut self.term };
            elements::widen(term, dtype, &mut self.bits, into);
            if let (ReduceOp::Mean, Some(weight)) = (op, weights.get(at)) {
                into.iter_mut().for_each(|term| *term *= weight);
            }
            if at > 0 {
                let pairs = self.sum.iter_mut().zip(&self.term);
                match op {
                    ReduceOp::Max => pairs.for_each(|(sum, term)| *sum = sum.max(*term)),
                    _ => pairs.for_each(|(sum, term)| *sum += term),
                }
            }
        }
        if op == ReduceOp::Mean && weights.is_empty() {
            self.sum.iter_mut().for_each(|sum| *sum /= count);
        }
        elements::narrow(&self.sum, dtype, &mut self.bits, out);
    }
}

/// Cuts the bytes of `segments` into parts of nearly equal length and of whole elements.
fn cut(segments: &[Segment], parts: usize, cuts: &mut Vec<usize>) {
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

    #[test]
    fn sixteen_bit_means_do_not_overflow_and_round_once() {
        let bytes = |bits: &[u16]| bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>();
        // 65504 twice; 1 and 1 + 2^-10, whose mean ties to the even 1.
        let terms = [bytes(&[0x7bff, 0x3c00]), bytes(&[0x7bff, 0x3c01])];
        let mut out = [0; 4];
        let (dtype, op) = (Dtype::F16, ReduceOp::Mean);
        let segment = Segment { tensor: 0, start: 0, end: 4, dtype, op };
        Arithmetic::default().combine(segment, terms.iter().map(Vec::as_slice), &[], &mut out);
        assert_eq!(out, *bytes(&[0x7bff, 0x3c00]));
    }
}
