//! Whose messages are decoded, and how.

/// The rank whose messages are decoded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Sender {
    /// The rank; with a weight of 0 it sent nothing.
    pub(crate) rank: usize,
    /// The rank in the key of the messages' random draws.
    pub(crate) drawn_as: usize,
    /// The weight of the messages in the mean.
    pub(crate) weight: f32,
    /// Whether messages of other ranks are added, too. [`Codec::aggregate`](super::Codec::aggregate)
    /// then ends the sum.
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
