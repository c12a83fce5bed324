//! A memory of a method's own making: φ and ψ of the GRACE survey's Algorithm 1.

use std::fmt::Debug;

use crate::Context;
use crate::tools::{memory_compensate, memory_update};

/// What is fed back of what messages leave out: `g̃ = Q(φ(m, g))`, then `m ← ψ(m, g, g̃)`.
///
/// The memory `m` of a tensor is a number an element, zeros at first. An [`Encoder`](crate::Encoder) keeps it where
/// other methods have their residual, by tensor name, and saves and restores it as such. For methods that answer
/// [`Compressor::feedback`](crate::Compressor::feedback); the rules that come with the library are in
/// [`Memory`](crate::Memory).
///
/// The defaults are equation 5 of the survey (Xu et al.: "GRACE: A Compressed Communication Framework for Distributed
/// Machine Learning", section 4) with β = γ = 1: the plain residual, to the bit. A method gives one of them or both.
///
/// Both functions depend on their arguments alone. They see whole tensors, or under scatter-reduce slices of them; a
/// rule that is not elementwise differs there.
///
/// Cost: beside the memory three buffers of the largest tensor's size, of an encoder and not of a tensor, one more for
/// 16-bit gradients and one for what the method keeps beside it; about 50 bytes of memory traffic an element more than
/// the plain residual, which needs no buffer.
pub trait Feedback: Debug + Send + Sync {
    /// φ: writes what is compressed, all of it. All three have the tensor's length, and the gradient is finite;
    /// elements that come out as NaN or infinite make the encoding an error that changes nothing.
    fn compensate(
        &self,
        memory: &[f32],
        gradient: &[f32],
        _context: &Context<'_>,
        compensated: &mut [f32],
    ) {
        memory_compensate(memory, gradient, [1.0, 1.0], compensated);
    }

    /// ψ: makes the next step's memory of this one's, in place. Elements that come out as NaN or infinite make the
    /// encoding an error that changes nothing.
    fn update(&self, memory: &mut [f32], encoded: &Encoded<'_>, _context: &Context<'_>) {
        memory_update(memory, encoded);
    }
}

/// What became of a tensor: what ψ goes by. All three slices have the tensor's length.
#[derive(Debug, Clone, Copy)]
pub struct Encoded<'a> {
    /// The gradient g.
    pub gradient: &'a [f32],
    /// What was compressed, φ(m, g).
    pub compensated: &'a [f32],
    /// What the message fails to carry of it, `φ(m, g) − g̃`.
    pub left: &'a [f32],
    /// The elements that the message carried, increasing flat positions; `None` where it carried all.
    pub positions: Option<&'a [u32]>,
}

impl Encoded<'_> {
    /// What receivers decode of an element, g̃; to rounding, as it is computed from what is left.
    pub fn decoded(&self, element: usize) -> f32 {
        self.compensated[element] - self.left[element]
    }
}
