//! The collectives: how a group of tensors is averaged over all ranks.
//!
//! A collective owns buffers and nothing else. Compressors and their state are in the rank's codecs, by tensor name. So
//! one collective averages any group of tensors, and new groups change no state.

pub mod all_gather;
pub mod all_reduce;
pub mod gather_shards;
pub mod hierarchical;
mod packed;
pub mod reduce_scatter;
mod scatter;
pub mod scatter_reduce;
mod slices;
pub mod sparse;
mod table_sums;

use std::ops::Range;
use std::time::Duration;

use gradwire::{Floats, Input, Tensor};

use crate::codecs::{Codecs, Sender};
use crate::error::refuse;
use crate::reducer::DeviceGroup;
use crate::report::{spent_by, timed};
use crate::{
    Exchange, ExchangeError, GroupConfig, Operation, Phase, Result, StepReport, Transport,
};

/// Averages groups of tensors over all ranks.
pub(crate) trait Collective: Send {
    /// The number of values of a group.
    fn values(&self, group: &Group) -> usize {
        group.elements()
    }

    /// Averages one group of tensors.
    ///
    /// In: `values` holds this rank's gradients of the group's tensors, concatenated. Out: `values` holds their mean
    /// over all ranks, with the same bits on every rank. After an error the content is unspecified.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()>;

    /// Averages one group of tensors that a device compresses.
    fn reduce_device(
        &mut self,
        _step: &mut Reduction<'_>,
        _device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        refuse(
            "a device compresses for all-gather and all-reduce; use one of them, or compress on the host",
        )
    }
}

/// The collective of an exchange without servers. Those that cut tensors give the codecs their slices.
pub(crate) fn of(
    config: &GroupConfig<'_>,
    cut: scatter_reduce::Cut,
    codecs: &mut Codecs,
    rank: usize,
) -> Result<Box<dyn Collective>> {
    Ok(match config.exchange {
        Exchange::AllReduce => Box::new(all_reduce::AllReduce::new(config.workers())),
        Exchange::AllGather => Box::<all_gather::AllGather>::default(),
        Exchange::ScatterReduce => {
            Box::new(scatter_reduce::ScatterReduce::new(config, cut, codecs, rank))
        }
        Exchange::ReduceScatter => Box::new(reduce_scatter::ReduceScatter::new(config, codecs)),
        Exchange::GatherShards => Box::new(gather_shards::GatherShards::new(config, codecs)),
        Exchange::SparseAllReduce => Box::<sparse::SparseAllReduce>::default(),
        Exchange::Hierarchical { node } => Box::new(hierarchical::Hierarchical::new(node)),
        Exchange::ParameterServer { .. } => {
            return refuse(format!("'{}' is no collective", config.exchange));
        }
    })
}

/// Tensors that are averaged together. Their values are concatenated.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The tensors by their places in the model.
    pub(crate) indices: Vec<usize>,
    pub(crate) tensors: Vec<Tensor>,
    /// The range of each tensor in the group's values.
    pub(crate) ranges: Vec<Range<usize>>,
}

impl Group {
    pub(crate) fn new(indices: Vec<usize>, model: &[Tensor]) -> Self {
        let tensors: Vec<Tensor> = indices.iter().map(|&index| model[index].clone()).collect();
        let mut end = 0;
        let range = |tensor: &Tensor| {
            let start = end;
            end += tensor.elements();
            start..end
        };
        let ranges = tensors.iter().map(range).collect();
        Self { indices, tensors, ranges }
    }

    /// Its tensors.
    pub(crate) fn pieces(&self) -> impl Iterator<Item = Piece<'_>> {
        let places = self.indices.iter().zip(&self.tensors).zip(&self.ranges);
        places.map(|((&index, tensor), range)| Piece {
            index,
            tensor,
            offset: 0,
            range: range.clone(),
        })
    }

    /// Elements of all tensors.
    pub(crate) fn elements(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

/// A tensor of a group, or a slice of one.
#[derive(Debug, Clone)]
pub(crate) struct Piece<'a> {
    /// The place of the tensor in the model.
    pub(crate) index: usize,
    /// The tensor, or the slice as a tensor.
    pub(crate) tensor: &'a Tensor,
    /// The first element in the tensor of the model.
    pub(crate) offset: usize,
    /// The elements in the values of the group.
    pub(crate) range: Range<usize>,
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
    pub(crate) report: &'a mut StepReport,
}

impl<'a> Reduction<'a> {
    /// Runs `work` and counts its time as encoding.
    fn compress<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let mut spent = Duration::ZERO;
        let result = spent_by(self.codecs.threads(), &mut spent, || work(self));
        self.report.compress += spent;
        result
    }

    /// Runs `work` and counts its time as decoding.
    fn decompress<R>(&mut self, work: impl FnOnce(&mut Self) -> R) -> R {
        let mut spent = Duration::ZERO;
        let result = spent_by(self.codecs.threads(), &mut spent, || work(self));
        self.report.decompress += spent;
        result
    }

    /// Runs `work` and counts its time as sending and waiting.
    fn wire<R>(&mut self, work: impl FnOnce(&mut dyn Transport) -> R) -> R {
        timed(&mut self.report.wire, || work(self.transport))
    }

    /// The operation of a message about the whole group.
    fn operation(&self, phase: Phase) -> Operation<'static> {
        Operation::whole(phase, self.step)
    }

    /// The operation of a message about the whole group that names its first tensor, by which ranks notice that they are at different
    /// groups.
    fn operation_of_group(&self, phase: Phase) -> Operation<'a> {
        let Group { indices, tensors, .. } = self.group;
        match (indices.first(), tensors.first()) {
            (Some(&index), Some(tensor)) => {
                Operation::tensor(phase, index, tensor.name(), self.step)
            }
            _ => self.operation(phase),
        }
    }

    /// Replaces `message` by the message for tensor `at` of the group.
    fn encode(&mut self, at: usize, values: &[f32], message: &mut Vec<u8>) -> Result<()> {
        let Self { codecs, group, step, squares, .. } = self;
        let index = group.indices[at];
        let gradient = Floats::F32(&values[group.ranges[at].clone()]);
        let input = Input { gradient, squares: squares.map(|all| &all[index][..]) };
        Ok(codecs.encode(index, 0, &group.tensors[at], *step, input, message)?)
    }

    /// Replaces `packed` by the messages for all tensors; `message` is working memory.
    fn encode_all(
        &mut self,
        values: &[f32],
        packed: &mut Vec<u8>,
        message: &mut Vec<u8>,
    ) -> Result<()> {
        if self.codecs.share(self.group) {
            packed.clear();
            let append = |message: &[u8]| packed::append(message, packed);
            return self.encode_pieces(self.group.pieces(), values, message, append);
        }
        // A large message is encoded in the larger buffer and stays there.
        if packed.capacity() > message.capacity() {
            std::mem::swap(packed, message);
        }
        packed.clear();
        for at in 0..self.group.tensors.len() {
            self.encode(at, values, message)?;
            packed::take(message, packed);
        }
        Ok(())
    }

    /// Encodes pieces, side by side if threads share the work for the group, and calls `take` with each message in order;
    /// `message` is working memory.
    fn encode_pieces<'t>(
        &mut self,
        pieces: impl Iterator<Item = Piece<'t>>,
        values: &[f32],
        message: &mut Vec<u8>,
        mut take: impl FnMut(&[u8]),
    ) -> Result<()> {
        let squares = self.squares;
        let inputs = pieces.map(|piece| {
            let gradient = Floats::F32(&values[piece.range.clone()]);
            let elements = piece.offset..piece.offset + piece.range.len();
            let squares = squares.map(|all| &all[piece.index][elements]);
            (piece, Input { gradient, squares })
        });
        if self.codecs.share(self.group) {
            let inputs: Vec<_> = inputs.collect();
            return Ok(self.codecs.encode_all(self.step, &inputs, take)?);
        }
        for (piece, input) in inputs {
            let Piece { index, offset, tensor, .. } = piece;
            self.codecs.encode(index, offset, tensor, self.step, input, message)?;
            take(message);
        }
        Ok(())
    }

    /// Decodes the messages of a rank for pieces, whose places in `values` are in order, and adds them there.
    fn decode_all<'t>(
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
            let (tensor, out) = (piece.tensor, &mut values[piece.range]);
            let added = own.codecs.add_message(tensor, own.step, sender, message, out);
            added.map_err(|error| ExchangeError::decoding(sender.rank, phase, own.step, error))
        })
    }

    /// Calls `take` with each piece and its message from a rank.
    fn each_message<'m, 't>(
        &mut self,
        phase: Phase,
        sender: Sender,
        packed: &'m [u8],
        pieces: impl Iterator<Item = Piece<'t>>,
        mut take: impl FnMut(&mut Self, Piece<'t>, &'m [u8]) -> Result<()>,
    ) -> Result<()> {
        let (step, mut read) = (self.step, 0);
        if sender.weight != 0.0 {
            for piece in pieces {
                let operation = Operation::tensor(phase, piece.index, piece.tensor.name(), step);
                let message = packed::next(sender.rank, packed, &mut read, operation)?;
                take(self, piece, message)?;
            }
        }
        packed::finish(sender.rank, packed, read, Operation::whole(phase, step))
    }

    /// Turns the means of all tensors into the input of the optimizer: the mean itself, or the result of a vote.
    fn aggregate(&mut self, means: &mut [f32]) -> Result<()> {
        for (tensor, range) in self.group.tensors.iter().zip(&self.group.ranges) {
            self.codecs.aggregate(tensor, self.step, &mut means[range.clone()])?;
        }
        Ok(())
    }
}

/// Refuses a message that does not have `expected` bytes.
fn expect_length(
    from: usize,
    operation: Operation<'_>,
    message: &[u8],
    expected: usize,
) -> Result<()> {
    if message.len() == expected {
        return Ok(());
    }
    let what = format!("{} bytes in place of {expected}", message.len());
    Err(ExchangeError::protocol(from, operation, what))
}
