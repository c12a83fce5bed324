//! A range of a tensor's gradient and residual.

use gradwire_bits::kernels;

use super::{BLOCK, Residual};
use crate::Floats;

/// The elements of a tensor from index `first` on. Indices are those of the tensor.
pub(super) struct Slice<'a> {
    pub(super) first: usize,
    pub(super) gradient: Floats<'a>,
    pub(super) feedback: Option<(Residual, &'a mut [f32])>,
}

impl<'a> Slice<'a> {
    pub(super) fn len(&self) -> usize {
        self.gradient.len()
    }

    /// The gradient from index `start` on, as many elements as the scratch has.
    pub(super) fn gradient<'s>(&'s self, start: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        self.gradient.block(start - self.first, scratch)
    }

    /// The sum of gradient and residual from index `start` on, as many elements as the scratch has.
    pub(super) fn peek<'s>(&'s self, start: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        let Some((Residual { beta, gamma }, residual)) = &self.feedback else {
            return self.gradient(start, scratch);
        };
        let at = start - self.first;
        let memory = &residual[at..at + scratch.len()];
        if let Floats::F32(gradient) = self.gradient {
            let gradient = &gradient[at..at + scratch.len()];
            kernels::accumulate_to(scratch, memory, gradient, *beta, *gamma);
        } else {
            self.gradient.block(at, scratch);
            kernels::accumulate(scratch, memory, *gamma, *beta);
        }
        scratch
    }

    /// The bits of the largest absolute value of the same sum, which is not stored if both are `f32`.
    pub(super) fn abs_max_bits(&self, start: usize, scratch: &mut [f32]) -> u32 {
        if let (Some((weights, residual)), Floats::F32(gradient)) = (&self.feedback, self.gradient)
        {
            let (first, len) = (start - self.first, scratch.len());
            let [memory, gradient] = [&**residual, gradient].map(|all| &all[first..first + len]);
            return kernels::abs_max_of_sum(memory, gradient, weights.beta, weights.gamma);
        }
        kernels::abs_max_bits(self.peek(start, scratch))
    }

    /// The same sum, in place of the residual if there is one.
    pub(super) fn take<'s>(&'s mut self, start: usize, scratch: &'s mut [f32]) -> &'s mut [f32] {
        let at = start - self.first;
        match &mut self.feedback {
            None => {
                if let Floats::F32(gradient) = self.gradient {
                    scratch.copy_from_slice(&gradient[at..at + scratch.len()]);
                } else {
                    self.gradient.block(at, scratch);
                }
                scratch
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &mut residual[at..at + scratch.len()];
                let gradient = self.gradient.block(at, scratch);
                kernels::accumulate(memory, gradient, *beta, *gamma);
                memory
            }
        }
    }

    /// The same sum, and the gradient. The scratch has two blocks, of which the first `len` elements are used.
    pub(super) fn take_with_gradient<'s>(
        &'s mut self,
        start: usize,
        len: usize,
        scratch: &'s mut [f32],
    ) -> (&'s mut [f32], &'s [f32]) {
        let at = start - self.first;
        let (own, sum) = scratch.split_at_mut(BLOCK);
        let gradient = self.gradient.block(at, &mut own[..len]);
        match &mut self.feedback {
            None => {
                let sum = &mut sum[..len];
                sum.copy_from_slice(gradient);
                (sum, gradient)
            }
            Some((Residual { beta, gamma }, residual)) => {
                let memory = &mut residual[at..at + len];
                kernels::accumulate(memory, gradient, *beta, *gamma);
                (memory, gradient)
            }
        }
    }

    /// The same range for a shorter time.
    pub(super) fn reborrow(&mut self) -> Slice<'_> {
        let feedback =
            self.feedback.as_mut().map(|(weights, residual)| (*weights, &mut **residual));
        Slice { first: self.first, gradient: self.gradient, feedback }
    }

    /// Cuts off the first `len` elements, or all if there are fewer.
    pub(super) fn split_off(&mut self, len: usize) -> Slice<'a> {
        let len = len.min(self.len());
        let (gradient, more) = self.gradient.split_at(len);
        let feedback = self.feedback.take().map(|(weights, residual)| {
            let (residual, more) = residual.split_at_mut(len);
            self.feedback = Some((weights, more));
            (weights, residual)
        });
        let first = self.first;
        (self.first, self.gradient) = (first + len, more);
        Slice { first, gradient, feedback }
    }
}
