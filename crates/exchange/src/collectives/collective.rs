//! The trait of all collectives, and one step of one group as they see it.

use std::ops::Range;
use std::time::Duration;

use gradwire::{Floats, Input, Tensor};

use super::packed;
use crate::codecs::{Codecs, Sender};
use crate::device::Values;
use crate::error::refuse;
use crate::group::{Group, Piece};
use crate::report::{spent_by, timed};
use crate::{ExchangeError, Operation, Phase, Result, StepReport, Transport};

/// Averages groups of tensors over all ranks.
pub(crate) trait Collective: Send {
    /// Adds the last tensor of the model, which the codecs have. A collective that cuts tensors
    /// cuts it by itself.
    fn add(&mut self, _tensor: &Tensor, _codecs: &mut Codecs) {}

    /// The number of values of a group.
    fn values(&self, group: &Group) -> usize {
        group.elements()
    }

    /// Calls `see` with the place in the group, and a range of the group's values, of each tensor
    /// or part of one.
    fn each_place(&self, group: &Group, see: &mut dyn FnMut(usize, Range<usize>)) {
        group.ranges.iter().enumerate().for_each(|(at, range)| see(at, range.clone()));
    }

    /// Whether a rank tells in place of its messages that its values are not finite, if
    /// [`Reduction::tells`]; otherwise the caller must know before that all are.
    fn tells_non_finite(&self) -> bool {
        false
    }

    /// Averages one group of tensors.
    ///
    /// In: this rank's gradients of the group's tensors, concatenated, or a device that compresses
    /// them. Out: their mean over all ranks, with the same bits on every rank. After an error, or
    /// if they are not [finite](Reduction::finite), the content is unspecified.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()>;

    /// As [`reduce`](Self::reduce), for values in the group's element type of 16 bits, which are
    /// sent as they are. Only all-reduce has it.
    fn reduce_halves(&mut self, _step: &mut Reduction<'_>, _values: &mut [u16]) -> Result<()> {
        refuse("only all-reduce averages values of 16 bits in place")
    }
}

/// One step of one group.
pub(crate) struct Reduction<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    pub(crate) codecs: &'a mut Codecs,
    pub(crate) group: &'a Group,
    pub(crate) step: u64,
    /// The weight of each rank in the mean; 0 for ranks that do not take part.
    pub(crate) weights: &'a [f32],
    /// Whether all ranks take part with equal weights.
    pub(crate) equal: bool,
    /// For each tensor of the model, the sums of the squares of its gradient's parts.
    pub(crate) squares: Option<&'a [Vec<f32>]>,
    /// Whether this rank tells the others if its values are not finite, instead of failing.
    pub(crate) tells: bool,
    /// Whether the values of all ranks are finite, as far as this rank knows.
    pub(crate) finite: bool,
    /// The caller multiplies the means by this factor, unless the collective
    /// [takes](Self::take_factor) it.
    pub(crate) factor: f32,
    pub(crate) report: &'a mut StepReport,
}

impl<'a> Reduction<'a> {
    /// Runs `work` and counts its time as encoding.
    pub(super) fn compress<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let mut spent = Duration::ZERO;
        let result = spent_by(self.codecs.threads(), &mut spent, || work(self));
        self.report.compress += spent;
        result
    }

    /// Runs `work` and counts its time as decoding.
    pub(super) fn decompress<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let mut spent = Duration::ZERO;
        let result = spent_by(self.codecs.threads(), &mut spent, || work(self));
        self.report.decompress += spent;
        result
    }

    /// Runs `work` and counts its time as sending and waiting.
    pub(super) fn wire<R>(&mut self, work: impl FnOnce(&mut dyn Transport) -> R) -> R {
        timed(&mut self.report.wire, || work(self.transport))
    }

    /// Takes the factor of the means: the collective multiplies the weights of the messages that it
    /// decodes last by it. Returns 1, and leaves the factor to the caller, if the means are not the
    /// weighted sums of such messages, or if a weight would become 0, which says that a rank sent
    /// no message, or would not be finite.
    pub(super) fn take_factor(&mut self) -> f32 {
        let adds_up = self.group.indices.iter().all(|&index| self.codecs.adds_up(index));
        let is_weight = |weight: f32| weight != 0.0 && weight.is_finite();
        let stays = |rank| self.weights[rank] == 0.0 || is_weight(self.weight(rank, self.factor));
        let takes = adds_up && (0..self.weights.len()).all(stays);
        if takes { std::mem::replace(&mut self.factor, 1.0) } else { 1.0 }
    }

    /// The weight of a rank's messages in the mean, times a factor.
    pub(super) fn weight(&self, rank: usize, factor: f32) -> f32 {
        match self.equal {
            // A quotient is exactly 1 for sums. The product with the rounded weight may not be.
            true => factor / self.weights.len() as f32,
            false => factor * self.weights[rank],
        }
    }

    /// The operation of a message about the whole group.
    pub(super) fn operation(&self, phase: Phase) -> Operation<'static> {
        Operation::whole(phase, self.step)
    }

    /// The operation of a message about a piece.
    pub(super) fn operation_of<'t>(&self, phase: Phase, piece: &Piece<'t>) -> Operation<'t> {
        Operation::tensor(phase, piece.index, piece.tensor.name(), self.step)
    }

    /// The operation of a message about the whole group. It names the group's first tensor, so
    /// ranks notice if they are at different groups.
    pub(super) fn operation_of_group(&self, phase: Phase) -> Operation<'a> {
        let Group { indices, tensors, .. } = self.group;
        match (indices.first(), tensors.first()) {
            (Some(&index), Some(tensor)) => {
                Operation::tensor(phase, index, tensor.name(), self.step)
            }
            _ => self.operation(phase),
        }
    }

    /// Replaces `message` with the message for a piece of `values`.
    pub(super) fn encode(
        &mut self,
        piece: &Piece<'_>,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<()> {
        let input = input(piece, values, self.squares);
        Ok(self.codecs.at(piece, self.step).encode(input, message)?)
    }

    /// Appends the message for a piece of `values` to other bytes.
    pub(super) fn append(
        &mut self,
        piece: &Piece<'_>,
        values: &[f32],
        bytes: &mut Vec<u8>,
    ) -> Result<()> {
        let input = input(piece, values, self.squares);
        Ok(self.codecs.at(piece, self.step).append(input, bytes)?)
    }

    /// Replaces `packed` with the messages for all tensors; `message` is working memory.
    pub(super) fn encode_all(
        &mut self,
        values: &[f32],
        packed: &mut Vec<u8>,
        message: &mut Vec<u8>,
    ) -> Result<()> {
        if self.codecs.share(self.group) {
            packed.clear();
            // Each message stays in its buffer: threads encode into as many buffers again.
            let append = |message: &mut Vec<u8>| packed::append(message, packed);
            return self.encode_pieces(self.group.pieces(), values, message, append);
        }
        // A large message is encoded in the larger buffer and stays there.
        if packed.capacity() > message.capacity() {
            std::mem::swap(packed, message);
        }
        packed.clear();
        let take = |message: &mut Vec<u8>| packed::take(message, packed);
        self.encode_pieces(self.group.pieces(), values, message, take)
    }

    /// Encodes pieces, in parallel if threads share the group's work, and calls `take` with each
    /// message in order; `message` is working memory.
    pub(super) fn encode_pieces<'t>(
        &mut self,
        pieces: impl Iterator<Item = Piece<'t>>,
        values: &[f32],
        message: &mut Vec<u8>,
        mut take: impl FnMut(&mut Vec<u8>),
    ) -> Result<()> {
        if self.codecs.share(self.group) {
            let squares = self.squares;
            let with_input = |piece| {
                let input = input(&piece, values, squares);
                (piece, input)
            };
            let inputs: Vec<_> = pieces.map(with_input).collect();
            return Ok(self.codecs.encode_all(self.step, &inputs, take)?);
        }
        for piece in pieces {
            self.encode(&piece, values, message)?;
            take(message);
        }
        Ok(())
    }

    /// Decodes a rank's messages for pieces, and adds them to `values`. The pieces' places in
    /// `values` are in order.
    pub(super) fn decode_all<'t>(
        &mut self,
        phase: Phase,
        sender: Sender,
        packed: &[u8],
        pieces: impl Iterator<Item = Piece<'t>>,
        values: &mut [f32],
    ) -> Result<()> {
        if self.codecs.share(self.group) {
            let mut messages = Vec::new();
            self.each_message(phase, sender, packed, pieces, |_, piece, message| {
                messages.push((piece, message));
                Ok(())
            })?;
            let added = self.codecs.add_messages(self.step, sender, &messages, values);
            return added
                .map_err(|error| ExchangeError::decoding(sender.rank, phase, self.step, error));
        }
        self.each_message(phase, sender, packed, pieces, |own, piece, message| {
            own.add(phase, sender, &piece, message, values)
        })
    }

    /// Decodes a rank's message for a piece, and adds it to `values`.
    pub(super) fn add(
        &mut self,
        phase: Phase,
        sender: Sender,
        piece: &Piece<'_>,
        message: &[u8],
        values: &mut [f32],
    ) -> Result<()> {
        let out = &mut values[piece.range.clone()];
        let added = self.codecs.at(piece, self.step).add(sender, message, out);
        added.map_err(|error| ExchangeError::decoding(sender.rank, phase, self.step, error))
    }

    /// Calls `take` with each piece and its message from a rank.
    pub(super) fn each_message<'m, 't>(
        &mut self,
        phase: Phase,
        sender: Sender,
        packed: &'m [u8],
        pieces: impl Iterator<Item = Piece<'t>>,
        mut take: impl FnMut(&mut Self, Piece<'t>, &'m [u8]) -> Result<()>,
    ) -> Result<()> {
        let mut read = 0;
        if sender.weight != 0.0 {
            for piece in pieces {
                let operation = self.operation_of(phase, &piece);
                let message = packed::next(sender.rank, packed, &mut read, operation)?;
                take(self, piece, message)?;
            }
        }
        packed::finish(sender.rank, packed, read, self.operation(phase))
    }

    /// Turns the mean of a piece into the input of the optimizer: the mean itself, or the result of
    /// a vote.
    pub(super) fn aggregate(&mut self, piece: &Piece<'_>, means: &mut [f32]) -> Result<()> {
        Ok(self.codecs.at(piece, self.step).aggregate(&mut means[piece.range.clone()])?)
    }
}

/// A piece of `values` as the input of a compressor. `squares` has the squares of each tensor of
/// the model.
fn input<'a>(piece: &Piece<'_>, values: &'a [f32], squares: Option<&'a [Vec<f32>]>) -> Input<'a> {
    let elements = piece.offset..piece.offset + piece.range.len();
    let squares = squares.map(|all| &all[piece.index][elements]);
    Input { gradient: Floats::F32(&values[piece.range.clone()]), squares }
}
