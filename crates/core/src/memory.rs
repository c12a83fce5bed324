//! Error-feedback memories: what becomes of the part of a gradient that a message leaves out.

/// The rule by which a residual is kept and fed back. Other rules are made by [`Feedback`](crate::Feedback).
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
    /// DGC's momentum correction: the gradient, clipped, goes into a velocity `u ← m·u + g` and that
    /// into the residual, `v ← v + u`, which is compressed; both are 0 afterwards where elements were
    /// sent.
    Momentum {
        /// Momentum m, in \[0, 1).
        momentum: f32,
        /// The norm that n ranks clip their gradients to, each to n^(−1/2) of it; 0 for none.
        clip: f32,
    },
    /// SGC's long-term momentum: gradients add up in `u ← u + ε·g`, and `α·u_before + u` is
    /// compressed; `u` is 0 afterwards where elements were sent.
    LongTerm {
        /// Weight ε of the gradient, positive.
        epsilon: f32,
        /// Momentum α, in \[0, 1).
        alpha: f32,
    },
    /// Signum's running mean: `z ← δ·z + (1 − δ)·g`, and z is compressed, whole every time. It is there
    /// without error feedback too; with it, a residual is kept beside z.
    Average {
        /// Weight δ of the mean so far, in \[0, 1).
        decay: f32,
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
