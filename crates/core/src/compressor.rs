//! The contract of a compressor.

use std::fmt::Debug;

use gradwire_bits::DecodeError;

use crate::accumulator::Accumulator;
use crate::args::{DecodeArgs, EncodeArgs};
use crate::device::DeviceForm;
use crate::memories::Memory;
use crate::multi_round::MultiRound;
use crate::{Coverage, Dtype, Statistics};

/// Turns a tensor into a message and adds messages to a tensor. Does no I/O and keeps no state.
///
/// Laws, checked over the whole registry:
/// - `corrected == decoded + residual` elementwise, to float rounding;
/// - the same (seed, tensor, rank, step) gives the same bytes;
/// - decoding depends on the bytes, the [`Context`](crate::Context) and the configuration alone;
/// - malformed bytes give an error and leave the output unchanged.
pub trait Compressor: Debug + Send + Sync {
    /// Appends the message for the source, and leaves exactly the error of the message in the
    /// source's residual.
    ///
    /// The tensor has at most `max_elements(usize::MAX)` elements; an [`Encoder`](crate::Encoder)
    /// checks this.
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage;

    /// Adds `weight` times the decoded message to `out`.
    ///
    /// The message is checked before the first element of `out` is touched. Sparse messages touch
    /// only their own positions. Buffers are reserved with [`Vec::try_reserve`], so a lack of
    /// memory is the error [`DecodeError::OutOfMemory`] instead of the end of the process.
    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError>;

    /// The largest message, in bytes, for a tensor with this number of elements. Buffers reserve
    /// this size; a longer message is refused unread.
    fn max_len(&self, elements: usize) -> usize;

    /// The most elements that a message of this many bytes can encode: the inverse of
    /// [`max_len`](Self::max_len). It prevents a short untrusted message from requesting a huge
    /// tensor. At `usize::MAX` it is the size of the largest tensor that the compressor accepts.
    ///
    /// The default is for sparse methods: they encode a tensor of zeros of any size in a byte or
    /// two, and positions have 32 bits.
    fn max_elements(&self, message_len: usize) -> usize {
        if message_len == 0 { 0 } else { u32::MAX as usize }
    }

    /// The method's own memory, which replaces the plain residual; `None` for the plain residual.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    /// The statistics of a tensor with this number of elements that the compressor needs before it
    /// writes the first element; by default the largest absolute value.
    fn statistics(&self, _elements: usize) -> Statistics {
        Statistics::Largest
    }

    /// How to add up the messages of several ranks other than element by element; `None` for
    /// methods that have no other way.
    fn accumulator(&self) -> Option<&dyn Accumulator> {
        None
    }

    /// How the messages of several ranks become one gradient.
    fn aggregation(&self) -> Aggregation<'_> {
        Aggregation::Gather
    }

    /// The form of messages that an accelerator writes and reads; `None` for a host-only method.
    fn device_form(&self) -> Option<&dyn DeviceForm> {
        None
    }
}

/// How the messages of several ranks become one gradient.
#[derive(Debug, Clone, Copy)]
pub enum Aggregation<'a> {
    /// Messages consist of little-endian elements of one type. All-reduce can average them: the
    /// elementwise mean of messages is the message of the mean.
    Linear(Dtype),
    /// All ranks compute the result together, in rounds of all-reduce. Exchanges without all-reduce
    /// gather messages, which are transcripts of a [single rank](crate::SingleRank).
    MultiRound(&'a dyn MultiRound),
    /// Messages are gathered and decoded one by one, then averaged.
    Gather,
    /// Messages are votes: the function turns their weighted mean into the step's gradient, in
    /// place. A server, or the owner of a slice, calls it before sending the result.
    Vote(fn(&mut [f32])),
}

impl Aggregation<'_> {
    /// The name in lists: `linear`, `rounds`, `gather` or `vote`.
    pub fn name(self) -> &'static str {
        match self {
            Aggregation::Linear(_) => "linear",
            Aggregation::MultiRound(_) => "rounds",
            Aggregation::Gather => "gather",
            Aggregation::Vote(_) => "vote",
        }
    }
}

impl dyn Compressor + '_ {
    /// The element type of [linear](Aggregation::Linear) messages; `None` for other compressors.
    pub fn linear(&self) -> Option<Dtype> {
        match self.aggregation() {
            Aggregation::Linear(dtype) => Some(dtype),
            _ => None,
        }
    }

    /// The [rounds](Aggregation::MultiRound) of all-reduce; `None` for other compressors.
    pub fn rounds(&self) -> Option<&dyn MultiRound> {
        match self.aggregation() {
            Aggregation::MultiRound(rounds) => Some(rounds),
            _ => None,
        }
    }

    /// Whether all-reduce can be used: messages are [linear](Aggregation::Linear), or there are
    /// [rounds](Aggregation::MultiRound).
    pub fn adds(&self) -> bool {
        matches!(self.aggregation(), Aggregation::Linear(_) | Aggregation::MultiRound(_))
    }

    /// Whether messages are [votes](Aggregation::Vote).
    pub fn votes(&self) -> bool {
        matches!(self.aggregation(), Aggregation::Vote(_))
    }

    /// Turns the weighted mean of all ranks' messages into the gradient of the step, in place: the
    /// result of a [vote](Aggregation::Vote), or else the mean itself.
    pub fn aggregate(&self, mean: &mut [f32]) {
        if let Aggregation::Vote(vote) = self.aggregation() {
            vote(mean);
        }
    }

    /// Whether the method's memory uses [`Input::squares`](crate::Input::squares).
    pub fn keeps_squares(&self) -> bool {
        self.memory().is_some_and(|memory| memory.keeps_squares())
    }
}
