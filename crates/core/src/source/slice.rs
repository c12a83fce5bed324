//! A range of a tensor's gradient, velocity and residual.

use gradwire_bits::kernels;

use super::latest::{Latest, split_off, sum_to};
use crate::Floats;
use crate::parts::{BLOCK, LARGE};

/// The weights of a plain residual m: keep `m ← c − decoded(message)`, and compress `c = β·m + γ·g`
/// instead of the gradient `g`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Residual {
    /// Weight β of the residual, a finite number; in a spec in \[0, 1\].
    pub beta: f32,
    /// Weight γ of the gradient, positive.
    pub gamma: f32,
}

impl Residual {
    /// The usual residual, β = γ = 1.
    pub const PLAIN: Self = Self { beta: 1.0, gamma: 1.0 };
}

/// The elements of a tensor from index `first` on. Indices count in the whole tensor.
pub(super) struct Slice<'a> {
    pub(super) first: usize,
    /// Whether the whole tensor is large.
    pub(super) large: bool,
    pub(super) latest: Latest<'a>,
    pub(super) feedback: Option<(Residual, &'a mut [f32])>,
}

impl<'a> Slice<'a> {
    /// All elements of a tensor.
    pub(super) fn whole(latest: Latest<'a>, feedback: Option<(Residual, &'a mut [f32])>) -> Self {
        let large = latest.gradient.len() >= LARGE;
        Self { first: 0, large, latest, feedback }
    }

    pub(super) fn len(&self) -> usize {
        self.latest.gradient.len()
    }

    /// The gradient from index `start` on, as many elements as the scratch has.
    pub(super) fn gradient<'s>(&'s self, start: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        self.latest.gradient.block(start - self.first, scratch)
    }

    /// Prefetches the gradient [ahead](Self::ahead).
    pub(super) fn prefetch_after(&self, start: usize, len: usize) {
        kernels::prefetch(self.ahead(start, len));
    }

    /// The gradient a block ahead of the `len` elements from index `start` on, to be prefetched.
    ///
    /// Nothing if the caches may already hold the gradient: then the hints only take time. Nothing
    /// if there is a residual: the next blocks of both would push the current block out of the
    /// first-level cache.
    pub(super) fn ahead(&self, start: usize, len: usize) -> &[f32] {
        let Floats::F32(gradient) = self.latest.gradient else { return &[] };
        if !self.large || self.feedback.is_some() {
            return &[];
        }
        let ahead = (start - self.first + BLOCK).min(gradient.len());
        &gradient[ahead..(ahead + len).min(gradient.len())]
    }

    /// The sum of gradient, or velocity, and residual from index `start` on, as many elements as
    /// the scratch has.
    pub(super) fn peek<'s>(&'s self, start: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        let at = start - self.first;
        let Some((Residual { beta, gamma }, residual)) = &self.feedback else {
            return self.latest.peek(at, scratch);
        };
        let memory = &residual[at..at + scratch.len()];
        if self.latest.velocity.is_none() {
            sum_to(scratch, memory, self.latest.gradient, at, [*beta, *gamma]);
        } else {
            self.latest.peek(at, scratch);
            kernels::accumulate(scratch, memory, *gamma, *beta);
        }
        scratch
    }

    /// The bits of the largest absolute value of the same sum. The sum is not stored if both are
    /// `f32`.
    pub(super) fn abs_max_bits(&self, start: usize, scratch: &mut [f32]) -> u32 {
        if let (
            Some((weights, residual)),
            Latest { gradient: Floats::F32(gradient), velocity: None },
        ) = (&self.feedback, &self.latest)
        {
            let (first, len) = (start - self.first, scratch.len());
            let [memory, gradient] = [&**residual, gradient].map(|all| &all[first..first + len]);
            return kernels::abs_max_of_sum(memory, gradient, weights.beta, weights.gamma);
        }
        kernels::abs_max_bits(self.peek(start, scratch))
    }

    /// Bits of a float that is finite if and only if all elements of the same sum are.
    pub(super) fn check_bits(&self, start: usize, scratch: &mut [f32]) -> u32 {
        let velocity = &self.latest.velocity;
        if self.feedback.is_none()
            && velocity.as_ref().is_some_and(|(weights, _)| weights.is_mean())
        {
            // The mean of any number and at most half of the largest one does not overflow, so the
            // velocity need not be read.
            let largest = kernels::abs_max_bits(self.gradient(start, scratch));
            if f32::from_bits(largest) <= f32::MAX / 2.0 {
                return largest;
            }
        }
        self.abs_max_bits(start, scratch)
    }

    /// The same sum, in place of the residual if there is one. Stores the new velocity.
    pub(super) fn take<'s>(&'s mut self, start: usize, scratch: &'s mut [f32]) -> &'s mut [f32] {
        let at = start - self.first;
        let Some((Residual { beta, gamma }, residual)) = &mut self.feedback else {
            self.latest.take_to(at, scratch);
            return scratch;
        };
        let memory = &mut residual[at..at + scratch.len()];
        kernels::accumulate(memory, self.latest.take(at, scratch), *beta, *gamma);
        memory
    }

    /// The same sum, and the gradient, or velocity. Uses the first `len` elements of each of the
    /// scratch's two blocks.
    pub(super) fn take_with_gradient<'s>(
        &'s mut self,
        start: usize,
        len: usize,
        scratch: &'s mut [f32],
    ) -> (&'s mut [f32], &'s [f32]) {
        let at = start - self.first;
        let (own, sum) = scratch.split_at_mut(BLOCK);
        let latest = self.latest.take(at, &mut own[..len]);
        match &mut self.feedback {
            None => {
                let sum = &mut sum[..len];
                kernels::copy(latest, sum);
                (sum, latest)
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &mut residual[at..at + len];
                kernels::accumulate(memory, latest, *beta, *gamma);
                (memory, latest)
            }
        }
    }

    /// The same range for a shorter time.
    pub(super) fn reborrow(&mut self) -> Slice<'_> {
        let feedback =
            self.feedback.as_mut().map(|(weights, residual)| (*weights, &mut **residual));
        Slice { first: self.first, large: self.large, latest: self.latest.reborrow(), feedback }
    }

    /// Cuts off the first `len` elements, or all if there are fewer.
    pub(super) fn split_off(&mut self, len: usize) -> Slice<'a> {
        let len = len.min(self.len());
        let first = self.first;
        self.first += len;
        let (latest, feedback) = (self.latest.split_off(len), split_off(&mut self.feedback, len));
        Slice { first, large: self.large, latest, feedback }
    }
}
