//! Error-feedback memories: what becomes of the part of a gradient that a message leaves out.

/// The rule by which a residual is kept and fed back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    /// Nothing is kept: what a message leaves out is lost.
    None,
    /// Keep `m ← c − decoded(message)`, and compress `c = β·m + γ·g` instead of the gradient `g`.
    Residual {
        /// Weight β of the residual, in \[0, 1\].
        beta: f32,
        /// Weight γ of the gradient, positive.
        gamma: f32,
    },
}

impl Memory {
    /// The usual residual, β = γ = 1.
    pub const RESIDUAL: Memory = Memory::Residual { beta: 1.0, gamma: 1.0 };

    /// Whether a residual is kept.
    pub fn is_on(self) -> bool {
        self != Memory::None
    }
}
