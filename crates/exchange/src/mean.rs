//! Means over all ranks by an all-reduce.
//!
//! A buffer is cut into `n` parts of whole elements. Every rank sends each part to its owner. The
//! owner adds the `n` versions of its part in rank order in `f32`, divides by `n`, rounds once to
//! the element type, and sends the result to all. It rounds the mean, not the sum, so 16-bit values
//! do not overflow. The owner, too, continues with the rounded bytes.

mod arithmetic;
mod in_place;
mod packing;
mod segment;

use std::ops::Range;

use gradwire::{Dtype, Error, ReduceOp};

use self::arithmetic::Arithmetic;
pub(crate) use self::in_place::{ARE_MESSAGES, InPlace, Terms};
use self::packing::{Packing, Way};
use self::segment::{Segment, cut, within};
use crate::report::{timed, worked};
use crate::{ExchangeError, Operation, Phase, Result, StepReport, Transport, elements};

/// The messages and addends of a step, and their means.
pub(crate) struct MeanBuffer {
    /// The bytes of all segments: first this rank's, then their means.
    bytes: Vec<u8>,
    segments: Vec<Segment>,
    /// The number of segments that hold means.
    averaged: usize,
    /// The start of each owner's part, and the end of the last part, in the round in progress.
    cuts: Vec<usize>,
    /// Each rank's version of the part that this rank owns.
    parts: Vec<Vec<u8>>,
    /// A part as it is sent, if it differs from the bytes here.
    packed: Vec<u8>,
    /// The means of one tensor's rounds so far.
    means: Vec<f32>,
    arithmetic: Arithmetic,
}

impl MeanBuffer {
    pub(crate) fn new(ranks: usize) -> Self {
        Self {
            bytes: Vec::new(),
            segments: Vec::new(),
            cuts: Vec::new(),
            parts: vec![Vec::new(); ranks],
            packed: Vec::new(),
            means: Vec::new(),
            averaged: 0,
            arithmetic: Arithmetic::default(),
        }
    }

    /// Forgets the step before.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.segments.clear();
        self.averaged = 0;
    }

    /// Whether there is nothing to be averaged.
    pub(crate) fn is_averaged(&self) -> bool {
        self.averaged == self.segments.len()
    }

    /// Makes room for exactly this number of further bytes.
    pub(crate) fn reserve(&mut self, bytes: usize) {
        self.bytes.reserve_exact(bytes);
    }

    /// Adds the message of the tensor at a place of the group, or its addend of a round.
    pub(crate) fn push(&mut self, tensor: usize, dtype: Dtype, op: ReduceOp, bytes: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len();
        self.segments.push(Segment { tensor, start, end, dtype, op });
    }

    /// Adds the message of the tensor at a place of the group, which `append` writes.
    pub(crate) fn push_message(
        &mut self,
        tensor: usize,
        dtype: Dtype,
        append: impl FnOnce(&mut Vec<u8>) -> Result<()>,
    ) -> Result<()> {
        let start = self.bytes.len();
        append(&mut self.bytes)?;
        let end = self.bytes.len();
        self.segments.push(Segment { tensor, start, end, dtype, op: ReduceOp::Mean });
        Ok(())
    }

    /// The mean of a tensor's messages.
    pub(crate) fn message(&self, tensor: usize) -> &[u8] {
        let segment = self.segments.iter().find(|segment| segment.tensor == tensor);
        let segment = segment.expect("every tensor was encoded");
        &self.bytes[segment.start..segment.end]
    }

    /// The length of this rank's addends of a tensor, in bytes.
    pub(crate) fn addend_bytes(&self, tensor: usize) -> usize {
        let own = self.segments.iter().filter(|segment| segment.tensor == tensor);
        own.map(|segment| segment.op.bytes((segment.end - segment.start) / 4)).sum()
    }

    /// The means of a tensor's rounds so far.
    pub(crate) fn means_of(&mut self, tensor: usize) -> &[f32] {
        self.means.clear();
        for segment in self.segments.iter().filter(|segment| segment.tensor == tensor) {
            let before = self.means.len();
            elements::widen_onto(&self.bytes[segment.start..segment.end], &mut self.means);
            if let ReduceOp::TableMean(_) = segment.op {
                let ranks = self.parts.len() as f32;
                self.means[before..].iter_mut().for_each(|sum| *sum /= ranks);
            }
        }
        &self.means
    }

    /// Replaces the segments pushed since the last call with their means over all ranks, or by sums
    /// of integers. Without `weights`, all ranks have equal weights.
    pub(crate) fn average(
        &mut self,
        transport: &mut dyn Transport,
        step: u64,
        weights: &[f32],
        report: &mut StepReport,
    ) -> Result<()> {
        cut(&self.segments[self.averaged..], self.parts.len(), &mut self.cuts);
        timed(&mut report.wire, || self.scatter(transport, step))?;
        worked(&mut report.decompress, || self.reduce_own(transport.rank(), weights));
        timed(&mut report.wire, || self.gather(transport, step))?;
        self.averaged = self.segments.len();
        Ok(())
    }

    /// The bytes of `owner`'s part in the buffer.
    fn part(&self, owner: usize) -> Range<usize> {
        self.cuts[owner]..self.cuts[owner + 1]
    }

    /// Sends every part to its owner, and receives all ranks' versions of this rank's own.
    fn scatter(&mut self, transport: &mut dyn Transport, step: u64) -> Result<()> {
        let operation = Operation::whole(Phase::Scatter, step);
        let rank = transport.rank();
        for to in transport.endpoint().others() {
            let part = self.part(to);
            let packing = Packing { segments: &self.segments[self.averaged..], way: Way::ToOwner };
            transport.send(to, operation, packing.pack(&self.bytes, part, &mut self.packed))?;
        }
        let own = self.part(rank);
        let packing = Packing { segments: &self.segments[self.averaged..], way: Way::ToOwner };
        for (from, part) in self.parts.iter_mut().enumerate() {
            if from == rank {
                part.clear();
                part.extend_from_slice(packing.pack(&self.bytes, own.clone(), &mut self.packed));
            } else {
                transport.recv(from, operation, part)?;
            }
            packing
                .unpack(own.clone(), part, &mut self.packed)
                .map_err(|error| ExchangeError::protocol(from, operation, error.to_string()))?;
        }
        Ok(())
    }

    /// Writes the mean of this rank's own part to the buffer.
    fn reduce_own(&mut self, rank: usize, weights: &[f32]) {
        let part = self.part(rank);
        for (segment, bytes) in within(&self.segments[self.averaged..], part.clone()) {
            let terms =
                self.parts.iter().map(|own| &own[bytes.start - part.start..bytes.end - part.start]);
            self.arithmetic.combine(segment, terms, weights, &mut self.bytes[bytes.clone()]);
        }
    }

    /// Sends the mean of this rank's part to all, and receives the means of the other parts.
    fn gather(&mut self, transport: &mut dyn Transport, step: u64) -> Result<()> {
        let operation = Operation::whole(Phase::Gather, step);
        let rank = transport.rank();
        let own = self.part(rank);
        let way = Way::FromOwner { ranks: self.parts.len() };
        let packing = Packing { segments: &self.segments[self.averaged..], way };
        self.parts[rank].clear();
        self.parts[rank].extend_from_slice(packing.pack(&self.bytes, own, &mut self.packed));
        transport.all_gather_v(operation, &mut self.parts)?;
        for (from, part) in self.parts.iter_mut().enumerate() {
            if from == rank && !packing.is_packed() {
                // It is there already.
                continue;
            }
            let bytes = self.cuts[from]..self.cuts[from + 1];
            packing
                .unpack(bytes.clone(), part, &mut self.packed)
                .map_err(|error| ExchangeError::protocol(from, operation, error.to_string()))?;
            self.bytes[bytes].copy_from_slice(part);
        }
        Ok(())
    }
}

/// Replaces `values`, one flat buffer per tensor, with their exact mean over all ranks: the same
/// bits on every rank.
///
/// # Errors
/// `Codec` for a value that is not finite; the errors of the transport.
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
    let mut buffer = MeanBuffer::new(transport.size());
    values.iter().for_each(|values| elements::narrow_onto(values, &mut buffer.bytes));
    let (end, dtype) = (buffer.bytes.len(), Dtype::F32);
    buffer.segments.push(Segment { tensor: 0, start: 0, end, dtype, op: ReduceOp::Mean });
    buffer.average(transport, step, &[], &mut StepReport::default())?;
    let mut rest = buffer.means_of(0);
    for values in values {
        let (mean, others) = rest.split_at(values.len());
        values.copy_from_slice(mean);
        rest = others;
    }
    Ok(())
}
