//! The collectives: how a group of tensors is averaged over all ranks.
//!
//! A collective owns buffers and nothing else. What it encodes with, and what that keeps from step to step, is in the
//! rank's codecs; so one collective serves any groups of tensors, and forming other groups moves no state.

pub mod all_gather;
pub mod all_reduce;
pub mod hierarchical;
mod packed;
pub mod scatter_reduce;
pub mod sparse;

use std::ops::Range;

use gradwire::{Floats, Input, Tensor};

use crate::codecs::Codecs;
use crate::{Exchange, ExchangeError, GroupConfig, Operation, Phase, StepReport, Transport};

/// Averages groups of tensors over all ranks.
pub(crate) trait Collective: Send {
    /// Replaces `values`, this rank's gradients of the group's tensors one behind the other, by their mean over all
    /// ranks: the same bits on every rank. After an error the values are of no use.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32])
    -> Result<(), ExchangeError>;
}

/// The collective of an exchange without servers, and slices for the codecs where it cuts tensors.
pub(crate) fn of(
    config: &GroupConfig<'_>,
    cut: scatter_reduce::Cut,
    codecs: &mut Codecs,
    rank: usize,
) -> Result<Box<dyn Collective>, ExchangeError> {
    Ok(match config.exchange {
        Exchange::AllReduce => Box::new(all_reduce::AllReduce::new(config.workers)),
        Exchange::AllGather => Box::<all_gather::AllGather>::default(),
        Exchange::ScatterReduce => {
            Box::new(scatter_reduce::ScatterReduce::new(config, cut, codecs, rank))
        }
        Exchange::SparseAllReduce => Box::<sparse::SparseAllReduce>::default(),
        Exchange::Hierarchical { node } => Box::new(hierarchical::Hierarchical::new(node)),
        Exchange::ParameterServer { .. } => {
            return Err(ExchangeError::Config(format!("'{}' is no collective", config.exchange)));
        }
    })
}

/// Tensors that are averaged together, one behind the other.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    /// The tensors by their places in the model.
    pub(crate) indices: Vec<usize>,
    pub(crate) tensors: Vec<Tensor>,
    /// Where each lies in the group's values.
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

    /// Elements of all tensors.
    pub(crate) fn elements(&self) -> usize {
        self.ranges.last().map_or(0, |range| range.end)
    }
}

/// One step of one group.
pub(crate) struct Reduction<'a> {
    pub(crate) transport: &'a mut dyn Transport,
    pub(crate) codecs: &'a mut Codecs,
    pub(crate) group: &'a Group,
    pub(crate) step: u64,
    /// The weight of each rank in the mean; 0 for those that do not take part.
    pub(crate) weights: &'a [f32],
    /// Whether all ranks take part with equal weights.
    pub(crate) equal: bool,
    /// Of each tensor of the model, the sums of squares of its gradient's parts.
    pub(crate) squares: Option<&'a [Vec<f32>]>,
    pub(crate) report: &'a mut StepReport,
}

impl Reduction<'_> {
    /// Replaces `message` by the message for tensor `at` of the group.
    fn encode(
        &mut self,
        at: usize,
        values: &[f32],
        message: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        let Self { codecs, group, step, squares, .. } = self;
        let index = group.indices[at];
        let gradient = Floats::F32(&values[group.ranges[at].clone()]);
        let input = Input { gradient, squares: squares.map(|all| &all[index][..]) };
        Ok(codecs.encode((index, 0), &group.tensors[at], *step, input, message)?)
    }

    /// Replaces `packed` by the messages for all tensors; `message` is working memory.
    fn encode_all(
        &mut self,
        values: &[f32],
        packed: &mut Vec<u8>,
        message: &mut Vec<u8>,
    ) -> Result<(), ExchangeError> {
        // The larger buffer is where a large message is made, and where it stays.
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

    /// Adds `weight` times what the messages of a rank decode to to the means. A rank without weight sent nothing.
    fn decode_all(
        &mut self,
        (rank, weight): (usize, f32),
        packed: &[u8],
        means: &mut [f32],
    ) -> Result<(), ExchangeError> {
        let Self { codecs, group, step, .. } = self;
        let mut read = 0;
        if weight != 0.0 {
            for (at, tensor) in group.tensors.iter().enumerate() {
                let operation =
                    Operation::tensor(Phase::Gather, group.indices[at], tensor.name(), *step);
                let message = packed::next(rank, packed, &mut read, operation)?;
                let mean = &mut means[group.ranges[at].clone()];
                codecs.decode_add(tensor, (*step, rank), message, weight, mean)?;
            }
        }
        packed::finish(rank, packed, read, Operation::whole(Phase::Gather, *step))
    }

    /// Makes what the optimizer takes of the means of all tensors.
    fn aggregate(&self, means: &mut [f32]) {
        for (tensor, range) in self.group.tensors.iter().zip(&self.group.ranges) {
            self.codecs.aggregate(tensor, &mut means[range.clone()]);
        }
    }
}

/// Refuses a message of another length than the floats that belong there.
fn expect_length(
    from: usize,
    operation: Operation<'_>,
    message: &[u8],
    expected: usize,
) -> Result<(), ExchangeError> {
    if message.len() == expected {
        return Ok(());
    }
    Err(ExchangeError::Protocol {
        peer: from,
        operation: operation.to_string(),
        what: format!("{} bytes in place of {expected}", message.len()),
    })
}
