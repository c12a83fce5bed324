//! All-reduce: messages of linear compressors are averaged on their way.
//!
//! The messages of all tensors, one behind the other, are cut in `n` parts of whole elements. Every
//! rank sends each part to its owner; the owner adds in rank order in `f32`, divides by `n` and
//! rounds once to the message's element type (the mean and not the sum, so that 16 bits do not
//! overflow), and sends the result to all. Two phases; with messages of `b` bytes in all, a rank
//! sends and receives about `2·b·(n − 1)/n` bytes. The owner too goes on with the rounded bytes.

use gradwire::{Element, State, Tensor};

use crate::codec::{Carried, Phases, Receiver, Sender, raw_tensors};
use crate::exchange::{timed, worked};
use crate::{
    Average, ExchangeError, Operation, Phase, Round, Setup, Shares, StepReport, Transport, elements,
};

/// Averages by all-reduce; see the [module](self).
pub struct AllReduce {
    raw: Vec<bool>,
    sender: Sender,
    receiver: Receiver,
    /// All messages of a step: this rank's, then their means.
    buffer: Vec<u8>,
    segments: Vec<Segment>,
    /// Where the part of each owner starts in the buffer, and the end.
    cuts: Vec<usize>,
    /// Of each rank, its part that this rank owns.
    parts: Vec<Vec<u8>>,
    message: Vec<u8>,
    mean: Vec<f32>,
    arithmetic: Arithmetic,
    shares: Shares,
    /// Of each rank, its part in the mean; empty for the plain one.
    weights: Vec<f32>,
    carried: Carried,
}

/// One tensor's message in the buffer.
#[derive(Debug, Clone, Copy)]
struct Segment {
    start: usize,
    end: usize,
    element: Element,
}

/// Working memory of the mean.
#[derive(Default)]
struct Arithmetic {
    sum: Vec<f32>,
    term: Vec<f32>,
    bits: Vec<u16>,
}

impl Average for AllReduce {
    fn new(setup: &Setup<'_>, rank: usize) -> Self {
        let phases = Phases::of_pushes(setup.policy);
        Self {
            raw: raw_tensors(setup.policy, setup.tensors),
            sender: Sender::new(phases.clone(), setup, rank),
            receiver: Receiver::new(phases, setup.seed),
            buffer: Vec::new(),
            segments: Vec::new(),
            cuts: Vec::new(),
            parts: vec![Vec::new(); setup.workers],
            message: Vec::new(),
            mean: Vec::new(),
            arithmetic: Arithmetic::default(),
            shares: setup.shares.clone(),
            weights: Vec::new(),
            carried: Carried::new(setup.tensors.len()),
        }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        report: &mut StepReport,
        mean: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExchangeError> {
        if !self.shares.plain() {
            self.shares.of_round(round.step, &mut self.weights);
        }
        worked(&mut report.compress, || self.encode(round))?;
        cut(&self.segments, self.parts.len(), &mut self.cuts);
        timed(&mut report.wire, || self.scatter(transport, round.step))?;
        worked(&mut report.decompress, || self.reduce(transport.rank()));
        timed(&mut report.wire, || self.gather(transport, round.step))?;
        for index in 0..round.tensors.len() {
            worked(&mut report.decompress, || self.decode(round, index))?;
            mean(index, &self.mean);
        }
        Ok(())
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.carried.of(index)
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.carried.bytes(index)
    }

    fn residual(&self, tensor: &Tensor, _: usize, show: &mut dyn FnMut(&[f32])) {
        self.sender.residual(tensor).into_iter().for_each(show);
    }

    fn save(&self, state: &mut State) {
        self.sender.save("push/", state);
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        Ok(self.sender.restore("push/", state)?)
    }
}

impl AllReduce {
    fn encode(&mut self, round: Round<'_>) -> Result<(), ExchangeError> {
        self.buffer.clear();
        self.segments.clear();
        self.carried.clear();
        for (index, tensor) in round.tensors.iter().enumerate() {
            let raw = self.raw[index];
            let gradient = &round.gradients[index];
            self.sender.encode(tensor, raw, round.step, gradient, &mut self.message)?;
            self.carried.note(index, 0, &self.sender, &self.message);
            let start = self.buffer.len();
            self.buffer.extend_from_slice(&self.message);
            let element = self.receiver.linear(raw).expect("the setup refuses other compressors");
            self.segments.push(Segment { start, end: self.buffer.len(), element });
        }
        Ok(())
    }

    /// Sends every part to its owner, and receives all ranks' versions of this rank's own.
    fn scatter(&mut self, transport: &mut dyn Transport, step: u64) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Scatter, step);
        let (rank, size) = (transport.rank(), transport.size());
        for to in (rank + 1..size).chain(0..rank) {
            let part = &self.buffer[self.cuts[to]..self.cuts[to + 1]];
            transport.send(to, operation, part)?;
        }
        let own = &self.buffer[self.cuts[rank]..self.cuts[rank + 1]];
        for (from, part) in self.parts.iter_mut().enumerate() {
            if from == rank {
                part.clear();
                part.extend_from_slice(own);
            } else {
                transport.recv(from, operation, part)?;
                expect_length(from, operation, part, own.len())?;
            }
        }
        Ok(())
    }

    /// Leaves the mean of this rank's own part in the buffer.
    fn reduce(&mut self, rank: usize) {
        let (first, last) = (self.cuts[rank], self.cuts[rank + 1]);
        for segment in &self.segments {
            let (start, end) = (segment.start.max(first), segment.end.min(last));
            if start < end {
                let terms = self.parts.iter().map(|part| &part[start - first..end - first]);
                let out = &mut self.buffer[start..end];
                self.arithmetic.mean(terms, &self.weights, segment.element, out);
            }
        }
    }

    /// Sends the mean of this rank's own part to all, and receives the others'.
    fn gather(&mut self, transport: &mut dyn Transport, step: u64) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Gather, step);
        let rank = transport.rank();
        self.parts[rank].clear();
        self.parts[rank].extend_from_slice(&self.buffer[self.cuts[rank]..self.cuts[rank + 1]]);
        transport.all_gather_v(operation, &mut self.parts)?;
        for (from, part) in self.parts.iter().enumerate() {
            let out = &mut self.buffer[self.cuts[from]..self.cuts[from + 1]];
            expect_length(from, operation, part, out.len())?;
            out.copy_from_slice(part);
        }
        Ok(())
    }

    /// Leaves the mean of one tensor in `self.mean`.
    fn decode(&mut self, round: Round<'_>, index: usize) -> Result<(), ExchangeError> {
        let tensor = &round.tensors[index];
        let segment = self.segments[index];
        let message = &self.buffer[segment.start..segment.end];
        self.mean.clear();
        self.mean.resize(tensor.elements(), 0.0);
        // A mean has no one sender; a linear message does not depend on it.
        let from = (round.step, 0);
        let raw = self.raw[index];
        Ok(self.receiver.decode_add(tensor, raw, from, message, 1.0, &mut self.mean)?)
    }
}

impl Arithmetic {
    /// The mean of `terms`, added in their order; the plain one where no weights are given.
    fn mean<'a>(
        &mut self,
        terms: impl ExactSizeIterator<Item = &'a [u8]>,
        weights: &[f32],
        element: Element,
        out: &mut [u8],
    ) {
        let count = terms.len() as f32;
        for (at, term) in terms.enumerate() {
            let into = if at == 0 { &mut self.sum } else { &mut self.term };
            elements::widen(term, element, &mut self.bits, into);
            if let Some(weight) = weights.get(at) {
                into.iter_mut().for_each(|term| *term *= weight);
            }
            if at > 0 {
                for (sum, term) in self.sum.iter_mut().zip(&self.term) {
                    *sum += term;
                }
            }
        }
        if weights.is_empty() {
            self.sum.iter_mut().for_each(|sum| *sum /= count);
        }
        elements::narrow(&self.sum, element, &mut self.bits, out);
    }
}

fn expect_length(
    from: usize,
    operation: Operation<'_>,
    part: &[u8],
    expected: usize,
) -> Result<(), ExchangeError> {
    if part.len() == expected {
        return Ok(());
    }
    Err(ExchangeError::Protocol {
        peer: from,
        operation: operation.to_string(),
        what: format!("{} bytes where {expected} belong", part.len()),
    })
}

/// Cuts the buffer behind `segments` in parts of nearly equal length and of whole elements.
fn cut(segments: &[Segment], parts: usize, cuts: &mut Vec<usize>) {
    let total = segments.last().map_or(0, |last| last.end);
    let mut at = 0;
    cuts.clear();
    cuts.push(0);
    for part in 1..parts {
        let target = (total as u128 * part as u128 / parts as u128) as usize;
        while at < segments.len() && segments[at].end <= target {
            at += 1;
        }
        cuts.push(segments.get(at).map_or(total, |segment| {
            target - (target - segment.start) % elements::size(segment.element)
        }));
    }
    cuts.push(total);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_end_between_elements() {
        let segment = |start, end, element| Segment { start, end, element };
        let segments = [
            segment(0, 6, Element::F16),
            segment(6, 6, Element::F32),
            segment(6, 26, Element::F32),
        ];
        let mut cuts = Vec::new();
        cut(&segments, 1, &mut cuts);
        assert_eq!(cuts, [0, 26]);
        // Targets 6, 13 and 19: element borders of the last segment are 6, 10, 14, 18, 22.
        cut(&segments, 4, &mut cuts);
        assert_eq!(cuts, [0, 6, 10, 18, 26]);
        cut(&[], 3, &mut cuts);
        assert_eq!(cuts, [0, 0, 0, 0]);
    }

    #[test]
    fn sixteen_bit_means_do_not_overflow_and_round_once() {
        let bytes = |bits: &[u16]| bits.iter().flat_map(|b| b.to_le_bytes()).collect::<Vec<_>>();
        // 65504 twice; 1 and 1 + 2^-10, whose mean ties to the even 1.
        let terms = [bytes(&[0x7bff, 0x3c00]), bytes(&[0x7bff, 0x3c01])];
        let mut out = [0; 4];
        Arithmetic::default().mean(terms.iter().map(Vec::as_slice), &[], Element::F16, &mut out);
        assert_eq!(out, *bytes(&[0x7bff, 0x3c00]));
    }
}
