//! What sender and receiver know about a message without reading it, and the elements that it
//! carries.

use crate::{Rng, Tensor};

/// What sender and receiver both know about a message without reading it: the run's seed, the
/// tensor, the step and the sender's rank. Encoding and decoding depend on it.
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
    /// The number of ranks that send. Encoders may scale by it; decoding does not depend on it.
    pub ranks: u32,
}

impl<'a> Context<'a> {
    /// The context of a message of one rank, as if it were the only sender.
    pub(crate) fn new(seed: u64, tensor: &'a Tensor, step: u64, rank: u32) -> Self {
        Self { seed, tensor: tensor.id(), shape: tensor.shape(), step, rank, ranks: 1 }
    }

    /// The generator of this sender's draws for this tensor and step. `stream` separates
    /// independent uses within one compressor.
    pub fn rng(&self, stream: u32) -> Rng {
        Rng::new(self.seed, self.tensor, self.rank, self.step, stream)
    }

    /// The shared generator: every rank gets the same draws.
    pub fn shared_rng(&self, stream: u32) -> Rng {
        Rng::new(self.seed, self.tensor, u32::MAX, self.step, stream)
    }
}

/// Which elements of a tensor a message carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coverage {
    /// All, each to some accuracy.
    All,
    /// Only the elements at [`Workspace::positions`](crate::Workspace::positions), which increase.
    Positions,
}
