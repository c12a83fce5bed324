//! How often a compressor passes over its tensor.

/// Passes of a compressor over its tensor besides the one that writes the message; without error
/// feedback.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Passes {
    /// Passes before, for a maximum, a mean or a threshold.
    pub before: u8,
    /// Passes after, with error feedback: the residual is known only after the message.
    pub after: u8,
    /// Bytes per element read and written for a memory's arrays besides the residual, such as a
    /// velocity.
    pub memory: u8,
}

impl Passes {
    /// The message is written in the only pass.
    pub const ONE: Self = Self { before: 0, after: 0, memory: 0 };
    /// The message depends on the whole tensor.
    pub const TWO: Self = Self { before: 1, after: 0, memory: 0 };
}
