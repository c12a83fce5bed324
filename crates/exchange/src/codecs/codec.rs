//! The codec of one tensor, or of a slice of one, at a step.

use gradwire::{Error, Floats, Input, ReduceOp, Round};

use super::Codecs;
use crate::group::Piece;

/// Encodes and decodes the messages of one piece at one step. [`Codecs::begin`] has selected the
/// compressor of the step.
pub(crate) struct Codec<'a> {
    codecs: &'a mut Codecs,
    piece: &'a Piece<'a>,
    step: u64,
}

/// The rank whose messages are decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    /// The rank; with a weight of 0 it sent nothing.
    pub(crate) rank: usize,
    /// The rank in the key of the messages' random draws.
    pub(crate) drawn_as: usize,
    /// The weight of the messages in the mean.
    pub(crate) weight: f32,
    /// Whether messages of other ranks are added too. [`Codec::aggregate`] then ends the sum.
    pub(crate) is_averaged: bool,
}

impl Sender {
    /// One of the ranks whose messages are averaged.
    pub(crate) fn one_of_all(rank: usize, weight: f32) -> Self {
        Self { rank, drawn_as: rank, weight, is_averaged: true }
    }

    /// The only rank that sends messages of a piece; their weight is 1.
    pub(crate) fn alone(rank: usize) -> Self {
        Self { rank, drawn_as: rank, weight: 1.0, is_averaged: false }
    }
}

impl Codecs {
    /// The codec of a tensor, or of a slice of one, at a step.
    pub(crate) fn at<'a>(&'a mut self, piece: &'a Piece<'a>, step: u64) -> Codec<'a> {
        Codec { codecs: self, piece, step }
    }
}

impl Codec<'_> {
    /// Replaces `message` with the message for `input`, and records the elements that it carries.
    pub(crate) fn encode(&mut self, input: Input<'_>, message: &mut Vec<u8>) -> Result<(), Error> {
        message.clear();
        self.append(input, message)
    }

    /// Appends the message for `input` to other bytes, and records the elements that it carries.
    pub(crate) fn append(&mut self, input: Input<'_>, bytes: &mut Vec<u8>) -> Result<(), Error> {
        let Self { codecs, piece, step } = self;
        let start = bytes.len();
        let sent = codecs.encoder.encode(piece.tensor, *step, input, bytes)?;
        codecs.note(piece, sent, bytes.len() - start);
        Ok(())
    }

    /// Replaces `message` with the owner's message for the average of a slice.
    pub(crate) fn encode_average(
        &mut self,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<(), Error> {
        message.clear();
        let second = self.codecs.second.as_mut().expect("tensors were cut");
        second.encode(self.piece.tensor, self.step, Floats::F32(values), message).map(drop)
    }

    /// Replaces `message` with the message of a device form, and records the elements that it
    /// carries.
    pub(crate) fn pack(&mut self, form: &[u8], message: &mut Vec<u8>) -> Result<(), Error> {
        let Self { codecs, piece, step } = self;
        message.clear();
        let sent = codecs.encoder.pack(piece.tensor, *step, form, message)?;
        codecs.note(piece, sent, message.len());
        Ok(())
    }

    /// Appends the device form of a rank's message to `form`.
    pub(crate) fn unpack(
        &mut self,
        rank: usize,
        message: &[u8],
        form: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let Self { codecs, piece, step } = self;
        codecs.decoder.unpack(piece.tensor, *step, rank as u32, message, form)
    }

    /// Adds a message, times the sender's weight, to `out`. Call [`aggregate`](Self::aggregate)
    /// after the last of several messages that are averaged.
    pub(crate) fn add(
        &mut self,
        sender: Sender,
        message: &[u8],
        out: &mut [f32],
    ) -> Result<(), Error> {
        let Self { codecs: Codecs { sums, decoder, .. }, piece: Piece { tensor, .. }, step } = self;
        let (rank, weight) = (sender.drawn_as as u32, sender.weight);
        if !sender.is_averaged {
            return decoder.decode_add(tensor, *step, rank, message, weight, out);
        }
        let sums = sums.get_mut(tensor.name()).expect("the step has begun");
        decoder.accumulate(tensor, (*step, rank), message, weight, sums, out)
    }

    /// Turns the weighted mean of all messages into the input of the optimizer, in place: the mean
    /// itself, or the result of a vote.
    pub(crate) fn aggregate(&mut self, mean: &mut [f32]) -> Result<(), Error> {
        let Self { codecs: Codecs { sums, decoder, .. }, piece: Piece { tensor, .. }, step } = self;
        let sums = sums.get_mut(tensor.name()).expect("the step has begun");
        decoder.finish(tensor, *step, sums, mean)?;
        decoder.compressor_of(tensor.name()).aggregate(mean);
        Ok(())
    }

    /// Replaces `addend` with this rank's addend in a round, given the means of the previous
    /// rounds; `None` after the last round. See
    /// [`Encoder::contribute`](gradwire::Encoder::contribute).
    pub(crate) fn round(
        &mut self,
        round: usize,
        input: Input<'_>,
        means: &[f32],
        addend: &mut Vec<f32>,
    ) -> Result<Option<ReduceOp>, Error> {
        let Self { codecs, piece, step } = self;
        codecs.encoder.contribute(piece.tensor, *step, round, input, means, addend)
    }

    /// Decodes the means of all rounds and adds the result to `out`. This rank's addends took
    /// `bytes`.
    pub(crate) fn conclude(
        &mut self,
        means: &[f32],
        out: &mut [f32],
        bytes: usize,
    ) -> Result<(), Error> {
        let Self { codecs, piece, step } = self;
        let sent = codecs.encoder.conclude(piece.tensor, *step, means, out)?;
        codecs.note(piece, sent, bytes);
        Ok(())
    }

    /// As [`round`](Self::round), for a device: appends the form from which the device computes its
    /// addend. See [`Encoder::device_round`](gradwire::Encoder::device_round).
    pub(crate) fn device_round(
        &mut self,
        round: usize,
        means: &[f32],
        form: &mut Vec<u8>,
    ) -> Result<Option<Round>, Error> {
        let Self { codecs, piece, step } = self;
        codecs.encoder.device_round(piece.tensor, *step, round, means, form)
    }

    /// As [`conclude`](Self::conclude), for a device: appends the form of the result.
    pub(crate) fn device_conclude(
        &mut self,
        means: &[f32],
        form: &mut Vec<u8>,
        bytes: usize,
    ) -> Result<(), Error> {
        let Self { codecs, piece, step } = self;
        let sent = codecs.encoder.device_conclude(piece.tensor, *step, means, form)?;
        codecs.note(piece, sent, bytes);
        Ok(())
    }
}
