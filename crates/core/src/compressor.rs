//! The contract of a compressor.

use std::fmt::Debug;

use gradwire_bits::DecodeError;
use gradwire_bits::huffman::Code;

use crate::numeric::svd::Svd;
use crate::rounds::{Played, Rounds};
use crate::{Combine, Feedback, Memory, Rng, Source};

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

    /// The longest message a tensor of so many elements can have, in bytes. Buffers are reserved
    /// by it once; a received message that claims more is refused unread.
    fn max_len(&self, elements: usize) -> usize;

    /// The most elements a tensor whose message has so many bytes can have: the inverse bound of
    /// [`max_len`](Self::max_len). It keeps a short message of unknown origin from asking for a huge
    /// tensor; at `usize::MAX` it is the largest tensor the compressor takes at all.
    fn max_elements(&self, message_len: usize) -> usize;

    /// The memory that is part of the method and takes the place of the plain residual; `None` where
    /// the plain one serves.
    fn memory(&self) -> Option<Memory> {
        None
    }

    /// φ and ψ of the method's own, in place of the plain residual and of [`memory`](Self::memory); `None` where
    /// those serve.
    ///
    /// They are error feedback: `ef=off` leaves them out, and compresses the gradient as it is. Where what is sent is
    /// no gradient any more (averages of scatter-reduce, changes that servers send) the plain residual takes their
    /// place. The tensor that [`encode`](Self::encode) sees is φ(m, g); its latest gradient, too, is that. A method
    /// in [rounds](Self::rounds) is not played in rounds with them, and all-reduce refuses it.
    fn feedback(&self) -> Option<&dyn Feedback> {
        None
    }

    /// Bits of value that travel with each element sent, where that is one number for all; `None`
    /// where it is not. What a message holds once (a scale, a mean) does not count.
    fn value_bits(&self) -> Option<u32> {
        None
    }

    /// Makes what a step goes by of the weighted mean of all ranks' messages, in place. Most methods go by the
    /// mean; a vote goes by its sign. Where a server or an owner averages, it does so before anything is sent on.
    fn aggregate(&self, _mean: &mut [f32]) {}

    /// What takes the place of the weighted mean, where that needs the ranks' gradients one by one; `None` where the
    /// mean serves. [`aggregate`](Self::aggregate) comes after it.
    fn combine(&self) -> Option<&dyn Combine> {
        None
    }

    /// Numbers that are kept for a tensor from step to step beside the residual, zeros at first.
    fn kept_len(&self, shape: &[usize]) -> usize {
        self.rounds().map_or(0, |rounds| rounds.kept_len(shape))
    }

    /// Whether what is kept are sums of squares, a number an element: to be added to before each encoding, by
    /// [`Input::squares`](crate::Input::squares) or else the gradient's own.
    fn keeps_squares(&self) -> bool {
        false
    }

    /// The method's rounds, where all ranks can carry it out together by all-reduce; messages are then
    /// what a rank makes of them [alone](crate::Alone).
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

/// What both ends know of a message beside its bytes.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// The run's seed.
    pub seed: u64,
    /// The tensor's [id](crate::Tensor::id).
    pub tensor: u64,
    /// The tensor's dimensions.
    pub shape: &'a [usize],
    /// The training step.
    pub step: u64,
    /// The rank that sent the message.
    pub rank: u32,
    /// Ranks that send. Encoders may scale by it; decoding does not depend on it.
    pub ranks: u32,
}

impl Context<'_> {
    /// The generator of this sender's draws for this tensor and step. `stream` separates
    /// independent uses within one compressor.
    pub fn rng(&self, stream: u32) -> Rng {
        Rng::new(self.seed, self.tensor, self.rank, self.step, stream)
    }

    /// A generator that gives every rank the same draws.
    pub fn shared_rng(&self, stream: u32) -> Rng {
        Rng::new(self.seed, self.tensor, u32::MAX, self.step, stream)
    }
}

/// The element type of a linear message, little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Element {
    /// IEEE binary32.
    F32,
    /// IEEE binary16.
    F16,
    /// bfloat16.
    Bf16,
}

/// Which elements of a tensor a message carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// All, each to some accuracy.
    All,
    /// Those in [`Workspace::positions`], in increasing order; of the rest, nothing.
    Positions,
}

/// Buffers that compressors reuse, so that a steady state allocates nothing.
#[derive(Debug, Default)]
pub struct Workspace {
    /// Flat positions, increasing.
    pub positions: Vec<u32>,
    /// Values at those positions, or samples.
    pub values: Vec<f32>,
    /// More values.
    pub others: Vec<f32>,
    /// Bytes on their way to or from a message.
    pub bytes: Vec<u8>,
    /// Random words, or bit patterns.
    pub words: Vec<u32>,
    /// Symbols of an alphabet.
    pub symbols: Vec<u16>,
    /// How often each symbol occurs.
    pub counts: Vec<u32>,
    /// A code for symbols.
    pub code: Code,
    /// Cells of a histogram, or bits of a set.
    pub cells: Vec<u32>,
    /// What a rank that plays rounds works with.
    pub rounds: Played,
    /// Weights, or probabilities.
    pub weights: Vec<f64>,
    /// A decomposition.
    pub svd: Svd,
}
