//! Error-feedback memories: rules for the part of a gradient that a message leaves out.
//!
//! A memory is a rule without state. The arrays it works on belong to a tensor's name; an
//! [`Encoder`](crate::Encoder) holds, saves and restores them. A spec configures the plain
//! [`Residual`] (`ef`, `beta`, `gamma`), or [`Ef21`] or [`Average`]; a compressor can bring its own
//! rule ([`Compressor::memory`](crate::Compressor::memory)).

mod average;
mod ef21;
mod long_term;
mod momentum;
mod residual;
mod squares;

use std::any::Any;
use std::fmt::Debug;

pub use average::Average;
pub use ef21::Ef21;
pub use long_term::LongTerm;
pub use momentum::Momentum;
pub use squares::Squares;

use crate::numeric::selection::kth_largest;
use crate::numeric::tails::tails;
use crate::statistics::Found;
use crate::{
    BLOCK, Context, Coverage, Floats, Input, NonFinite, Residual, Source, Statistics, Velocity,
    Workspace,
};

/// A rule that keeps part of a gradient and adds it to later gradients.
///
/// It implements φ and ψ of the GRACE survey's Algorithm 1 (Xu et al.: "GRACE: A Compressed
/// Communication Framework for Distributed Machine Learning"): `g̃ = Q(φ(m, g))`, then
/// `m ← ψ(m, g, g̃)`.
pub trait Memory: Debug + Send + Sync {
    /// Corrects the gradient by the kept arrays, calls [`Encoding::encode`] exactly once for the
    /// sum, and updates the kept arrays.
    ///
    /// # Errors
    /// [`NonFinite`] for a gradient, a sum or a new memory that is not finite. Then the arrays in
    /// `step` must be unchanged; the caller removes any appended message.
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite>;

    /// Says when the rule replaces the plain residual.
    fn scope(&self) -> Scope {
        Scope::ErrorFeedback
    }

    /// Whether it needs [`Step::velocity`].
    fn keeps_velocity(&self) -> bool {
        false
    }

    /// Whether it uses [`Input::squares`], and keeps a sum of squares for each element in
    /// [`Step::kept`].
    fn keeps_squares(&self) -> bool {
        false
    }

    /// Whether messages carry changes: receivers keep a sum, the result, and add the mean of all
    /// ranks' messages to it.
    fn sends_changes(&self) -> bool {
        false
    }

    /// Whether it applies momentum, so the optimizer must not apply it again.
    fn replaces_momentum(&self) -> bool {
        false
    }
}

/// When a memory replaces the plain residual.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// For gradients, unless error feedback is off.
    ErrorFeedback,
    /// For gradients, with error feedback or without.
    Gradients,
    /// Always: also for values that are not gradients, such as the changes that a server sends.
    Always,
}

/// The arguments of [`Memory::encode`] for one step of one tensor. Arrays have the tensor's length
/// unless stated otherwise; kept arrays are zeros before the tensor's first step.
#[derive(Debug)]
pub struct Step<'a> {
    /// The gradient.
    pub input: Input<'a>,
    /// The residual, with the weights that the spec configures; `None` without error feedback.
    pub feedback: Option<(Residual, &'a mut [f32])>,
    /// A second kept array, if the memory [needs one](Memory::keeps_velocity); else empty.
    pub velocity: &'a mut [f32],
    /// The compressor's own array, such as starting factors or sums of squares; often empty.
    pub kept: &'a mut [f32],
    /// [`SCRATCH`](crate::SCRATCH) elements of working memory, for [`Encoding::source`].
    pub scratch: &'a mut [f32],
    /// Whether the values are not gradients, so nothing may be dropped
    /// ([`Encoder::with_plain_memory`](crate::Encoder::with_plain_memory)).
    pub plain: bool,
}

/// The encoding inside a memory's step.
pub struct Encoding<'a> {
    /// Appends the message for a source.
    pub(crate) encode: &'a mut dyn FnMut(&mut Source<'_>, &mut Workspace) -> Coverage,
    pub(crate) context: &'a Context<'a>,
    pub(crate) workspace: &'a mut Workspace,
    pub(crate) statistics: Statistics,
}

impl Encoding<'_> {
    /// Combines a gradient with its residual and their weights, as [`Source::new`] does, and
    /// gathers the [statistics](crate::Compressor::statistics) that the compressor asks for.
    ///
    /// # Errors
    /// As for [`Source::new`]. [`encode`](Self::encode) returns them instead if the compressor
    /// needs no statistics and there is no residual, or if it checks the elements itself
    /// ([`Statistics::Peeked`]).
    pub fn source<'a>(
        &mut self,
        gradient: Floats<'a>,
        feedback: Option<(Residual, &'a mut [f32])>,
        scratch: &'a mut [f32],
    ) -> Result<Source<'a>, NonFinite> {
        self.examined(Source::unchecked(gradient, feedback, scratch))
    }

    /// As [`source`](Self::source), with the new velocity, `u ← momentum·u + factor·g`, instead of
    /// the gradient. [`encode`](Self::encode) stores it.
    ///
    /// # Errors
    /// As for [`source`](Self::source).
    pub fn source_of_velocity<'a>(
        &mut self,
        gradient: Floats<'a>,
        (weights, velocity): (Velocity, &'a mut [f32]),
        feedback: Option<(Residual, &'a mut [f32])>,
        scratch: &'a mut [f32],
    ) -> Result<Source<'a>, NonFinite> {
        let source = Source::unchecked(gradient, feedback, scratch);
        self.examined(source.with_velocity(weights, velocity))
    }

    /// A source after the pass that checks its elements and gathers statistics, if the encoding
    /// needs such a pass.
    fn examined<'a>(&mut self, mut source: Source<'a>) -> Result<Source<'a>, NonFinite> {
        let kind = self.statistics;
        let overwrites = source.keeps_residual() || source.has_velocity();
        if kind == Statistics::Peeked || !overwrites && kind == Statistics::None {
            return Ok(source);
        }
        if source.is_empty() || !matches!(kind, Statistics::KthLargest(_) | Statistics::Tails(_)) {
            return source.with_statistics(kind, &mut self.workspace.helpers);
        }
        let found = self.search(&mut source);
        source.searched(kind, found)
    }

    /// Runs the compressor's search, which peeks at all elements.
    fn search(&mut self, source: &mut Source<'_>) -> Option<Found> {
        match self.statistics {
            Statistics::KthLargest(k) => {
                Some(Found::Threshold(kth_largest(source, k, self.workspace)))
            }
            Statistics::Tails(k) => Some(Found::Tails(tails(source, k, self.workspace))),
            _ => None,
        }
    }

    /// Appends the message for `source`, leaves the error of the message in the source's residual,
    /// and stores its velocity.
    ///
    /// # Errors
    /// [`NonFinite`] for an element that is not finite, if [`source`](Self::source) has not looked
    /// for one. Residual and velocity are then unchanged, so the memory must not change any array
    /// in [`Step`] before this call.
    pub fn encode(&mut self, source: &mut Source<'_>) -> Result<Coverage, NonFinite> {
        let sent = (self.encode)(source, self.workspace);
        source.finish()?;
        source.check_taken();
        source.store_velocity();
        Ok(sent)
    }

    /// Seed, tensor, step and rank.
    pub fn context(&self) -> &Context<'_> {
        self.context
    }

    /// The increasing flat positions of the elements that the message carries, if
    /// [`encode`](Self::encode) returned [`Coverage::Positions`].
    pub fn positions(&self) -> &[u32] {
        &self.workspace.positions
    }

    /// Sets the elements that the message carries to 0.
    pub fn clear_sent(&self, sent: Coverage, values: &mut [f32]) {
        match sent {
            Coverage::All => values.fill(0.0),
            Coverage::Positions => {
                self.positions().iter().for_each(|&at| values[at as usize] = 0.0)
            }
        }
    }

    /// The memory's own buffers, which keep their allocation and content from step to step.
    pub fn buffers<T: Any + Debug + Default + Send + Sync>(&mut self) -> &mut T {
        self.workspace.own()
    }
}

/// Calls `look` with each block of a gradient and the index of its first element.
fn for_blocks(gradient: Floats<'_>, scratch: &mut [f32], mut look: impl FnMut(usize, &[f32])) {
    for start in (0..gradient.len()).step_by(BLOCK) {
        let len = BLOCK.min(gradient.len() - start);
        look(start, gradient.block(start, &mut scratch[..len]));
    }
}
