//! The contract of a compressor.

use std::fmt::Debug;

use gradwire_bits::DecodeError;

use crate::memories::{Memory, Scope};
use crate::rounds::Rounds;
use crate::{Context, Element, Sent, Source, Workspace};

/// Turns a tensor into a message and adds messages to a tensor. Does no I/O and keeps no state.
///
/// Laws, checked over the whole registry:
/// - `corrected == decoded + residual` elementwise, to float rounding;
/// - the same (seed, tensor, rank, step) gives the same bytes;
/// - decoding depends on the bytes, the [`Context`] and the configuration alone;
/// - malformed bytes give an error and leave the output as it was.
pub trait Compressor: Debug + Send + Sync {
    /// Appends the message for `source` to `message`, and leaves in the source's residual exactly
    /// what the message fails to carry.
    ///
    /// The tensor has at most `max_elements(usize::MAX)` elements; an [`Encoder`](crate::Encoder)
    /// sees to it.
    fn encode(
        &self,
        source: &mut Source<'_>,
        context: &Context<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
    ) -> Sent;

    /// Adds `weight` times the decoded message to `out`, whose length is the tensor's.
    ///
    /// The message is checked before the first element of `out` is touched. Sparse messages touch
    /// only their own positions.
    fn decode_add(
        &self,
        message: &[u8],
        context: &Context<'_>,
        weight: f32,
        workspace: &mut Workspace,
        out: &mut [f32],
    ) -> Result<(), DecodeError>;

    /// The longest message of a tensor with that number of elements, in bytes. Buffers are reserved
    /// by it once; a received message that claims more is refused unread.
    fn max_len(&self, elements: usize) -> usize;

    /// The most elements of a tensor whose message has that number of bytes: the inverse bound of
    /// [`max_len`](Self::max_len). It keeps a short message of unknown origin from asking for a huge
    /// tensor; at `usize::MAX` it is the largest tensor the compressor takes at all.
    fn max_elements(&self, message_len: usize) -> usize;

    /// The memory that is part of the method and replaces the plain residual; `None` where the plain one serves.
    fn memory(&self) -> Option<&dyn Memory> {
        None
    }

    /// Bits of value that travel with each element sent, where that is one number for all; `None`
    /// where it is not. What a message holds once (a scale, a mean) does not count.
    fn value_bits(&self) -> Option<u32> {
        None
    }

    /// Turns the weighted mean of all ranks' messages into the gradient of the step, in place. The default keeps the
    /// mean; a vote takes its sign. Where a server or an owner averages, this comes before anything is sent on.
    fn aggregate(&self, _mean: &mut [f32]) {}

    /// The method's rounds, where all ranks can carry it out together by all-reduce; messages are then
    /// transcripts of a [single rank](crate::SingleRank).
    fn rounds(&self) -> Option<&dyn Rounds> {
        None
    }

    /// Whether messages say where the elements that they carry belong. They need not where both ends
    /// know it.
    fn positions_travel(&self) -> bool {
        self.linear().is_none()
    }

    /// For a linear compressor, the element type its whole message consists of: the elementwise
    /// mean of messages is then the message of the mean. `None` where messages do not add.
    fn linear(&self) -> Option<Element> {
        None
    }
}

impl dyn Compressor + '_ {
    /// Whether the method's memory looks at [`Input::squares`](crate::Input::squares).
    pub fn keeps_squares(&self) -> bool {
        self.memory().is_some_and(|memory| memory.keeps_squares())
    }

    /// The method's own memory where it replaces the plain residual, with error feedback or without; `plain` is true
    /// for what is no gradient ([`Encoder::with_plain_memory`](crate::Encoder::with_plain_memory)).
    pub fn own_memory(&self, error_feedback: bool, plain: bool) -> Option<&dyn Memory> {
        self.memory().filter(|memory| match memory.scope() {
            Scope::ErrorFeedback => error_feedback && !plain,
            Scope::Gradients => !plain,
            Scope::Always => true,
        })
    }
}
