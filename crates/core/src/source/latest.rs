//! The summand besides the residual: the gradient, or the velocity that replaces it.

use gradwire_bits::kernels;

use crate::Floats;

/// The weights of a velocity u, a running sum or mean of gradients: `u ← momentum·u + factor·g`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Velocity {
    /// Weight of the previous velocity, in \[0, 1).
    pub momentum: f32,
    /// Weight of the gradient, a finite number that is not negative.
    pub factor: f32,
}

impl Velocity {
    /// The weights of a running mean: `u ← momentum·u + (1 − momentum)·g`.
    pub fn mean(momentum: f32) -> Self {
        Self { momentum, factor: 1.0 - momentum }
    }

    pub(super) fn is_mean(self) -> bool {
        (0.0..1.0).contains(&self.momentum) && self == Self::mean(self.momentum)
    }
}

/// A range of the gradient, and of the velocity that replaces it, if any.
pub(super) struct Latest<'a> {
    pub(super) gradient: Floats<'a>,
    pub(super) velocity: Option<(Velocity, &'a mut [f32])>,
}

impl<'a> Latest<'a> {
    /// The elements from index `at` on, as many as the scratch has. Changes nothing.
    pub(super) fn peek<'s>(&'s self, at: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        let Some((Velocity { momentum, factor }, velocity)) = &self.velocity else {
            return self.gradient.block(at, scratch);
        };
        let velocity = &velocity[at..at + scratch.len()];
        sum_to(scratch, velocity, self.gradient, at, [*momentum, *factor]);
        scratch
    }

    /// As [`peek`](Self::peek), and stores the new velocity.
    pub(super) fn take<'s>(&'s mut self, at: usize, scratch: &'s mut [f32]) -> &'s [f32] {
        let Some((Velocity { momentum, factor }, velocity)) = &mut self.velocity else {
            return self.gradient.block(at, scratch);
        };
        let velocity = &mut velocity[at..at + scratch.len()];
        kernels::accumulate(velocity, self.gradient.block(at, scratch), *momentum, *factor);
        velocity
    }

    /// As [`take`](Self::take); copies the elements to the scratch.
    pub(super) fn take_to(&mut self, at: usize, scratch: &mut [f32]) {
        if self.velocity.is_some() {
            self.take(at, scratch);
        }
        let len = scratch.len();
        match (&self.velocity, self.gradient) {
            (Some((_, velocity)), _) => kernels::copy(&velocity[at..at + len], scratch),
            (None, Floats::F32(gradient)) => kernels::copy(&gradient[at..at + len], scratch),
            (None, half) => drop(half.block(at, scratch)),
        }
    }

    /// The same range for a shorter time.
    pub(super) fn reborrow(&mut self) -> Latest<'_> {
        let velocity = self.velocity.as_mut().map(|(weights, values)| (*weights, &mut **values));
        Latest { gradient: self.gradient, velocity }
    }

    /// Cuts off the first `len` elements.
    pub(super) fn split_off(&mut self, len: usize) -> Latest<'a> {
        let (gradient, more) = self.gradient.split_at(len);
        self.gradient = more;
        Latest { gradient, velocity: split_off(&mut self.velocity, len) }
    }
}

/// Cuts the first `len` elements off an array with weights, if any.
pub(super) fn split_off<'a, W: Copy>(
    from: &mut Option<(W, &'a mut [f32])>,
    len: usize,
) -> Option<(W, &'a mut [f32])> {
    let (weights, values) = from.take()?;
    let (first, more) = values.split_at_mut(len);
    *from = Some((weights, more));
    Some((weights, first))
}

/// `scratch ← beta·memory + gamma·gradient`, for the gradient's elements from index `at` on.
pub(super) fn sum_to(
    scratch: &mut [f32],
    memory: &[f32],
    gradient: Floats<'_>,
    at: usize,
    [beta, gamma]: [f32; 2],
) {
    if let Floats::F32(gradient) = gradient {
        let gradient = &gradient[at..at + scratch.len()];
        kernels::accumulate_to(scratch, memory, gradient, beta, gamma);
    } else {
        gradient.block(at, scratch);
        kernels::accumulate(scratch, memory, gamma, beta);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BLOCK, Helpers, NonFinite, Residual, SCRATCH, Source, Statistics};

    const WEIGHTS: Velocity = Velocity { momentum: 0.5, factor: 2.0 };

    /// A source of g and u, with a residual v if it is not empty, after its check.
    fn checked<'a>(
        gradient: &'a [f32],
        (weights, velocity): (Velocity, &'a mut [f32]),
        residual: &'a mut [f32],
        scratch: &'a mut [f32],
    ) -> Result<Source<'a>, NonFinite> {
        let feedback = (!residual.is_empty()).then_some((Residual::PLAIN, residual));
        let source = Source::unchecked(Floats::F32(gradient), feedback, scratch);
        let source = source.with_velocity(weights, velocity);
        source.with_statistics(Statistics::None, &mut Helpers::default())
    }

    #[test]
    fn a_velocity_is_shown_before_it_is_stored_and_stored_once() {
        let mut scratch = vec![0.0; SCRATCH];
        let (g, mut u, mut v) = ([1.0, 4.0], [2.0, -2.0], [1.0, 1.0]);
        let mut source = checked(&g, (WEIGHTS, &mut u), &mut v, &mut scratch).unwrap();
        source.peek(0, 2, |c| assert_eq!(c, [4.0, 8.0]));
        source.take_with_gradient(0, 2, |c, u| {
            assert_eq!((&*c, u), (&[4.0, 8.0][..], &[3.0, 7.0][..]))
        });
        source.store_velocity();
        assert_eq!((u, v), ([3.0, 7.0], [4.0, 8.0]));
    }

    #[test]
    fn a_residual_beside_a_velocity_has_weights_of_its_own() {
        let residual = Residual { beta: 0.5, gamma: 2.0 };
        let using = |using: &dyn Fn(&mut Source<'_>)| {
            let (mut scratch, mut u, mut v) = (vec![0.0; SCRATCH], [2.0, -2.0], [4.0, 8.0]);
            let feedback = Some((residual, &mut v[..]));
            let source = Source::unchecked(Floats::F32(&[1.0, 4.0]), feedback, &mut scratch);
            using(&mut source.with_velocity(WEIGHTS, &mut u));
            (u, v)
        };
        // u: 1 + 2 and −1 + 8; then c: 2 + 6 and 4 + 14.
        let peeked = using(&|source| source.peek(0, 2, |c| assert_eq!(c, [8.0, 18.0])));
        assert_eq!(peeked, ([2.0, -2.0], [4.0, 8.0]));
        let taken = using(&|source| source.take(0, 2, |c| assert_eq!(c, [8.0, 18.0])));
        assert_eq!(taken, ([3.0, 7.0], [8.0, 18.0]));
        let both = using(&|source| source.take_with_gradient(0, 2, |_, _| {}));
        assert_eq!(both, taken);
    }

    #[test]
    fn a_velocity_without_a_residual_is_stored_by_a_method_that_only_peeks() {
        let mut scratch = vec![0.0; SCRATCH];
        let (g, mut u) = (vec![1.0; BLOCK + 1], vec![2.0; BLOCK + 1]);
        let mut source = checked(&g, (WEIGHTS, &mut u), &mut [], &mut scratch).unwrap();
        source.peek_blocks(|_, u| assert!(u.iter().all(|&u| u == 3.0)));
        source.store_velocity();
        assert!(u.iter().all(|&u| u == 3.0));
        let halves = vec![0x4000; BLOCK + 1];
        let source = Source::unchecked(Floats::F16(&halves), None, &mut scratch);
        let mut source = source.with_velocity(WEIGHTS, &mut u);
        source.take_blocks(|_, u| assert!(u.iter().all(|&u| u == 5.5)));
        source.store_velocity();
        assert!(u.iter().all(|&u| u == 5.5));
    }

    #[test]
    fn what_is_not_finite_is_refused() {
        let mut scratch = vec![0.0; SCRATCH];
        let mut refused = |g: &[f32], weights, u: &mut [f32], v: &mut [f32]| {
            let error = checked(g, (weights, u), v, &mut scratch).map(drop).unwrap_err();
            (error.index, error.value)
        };
        let mut late = vec![2.0; 3 * BLOCK];
        (late[BLOCK + 5], late[2 * BLOCK]) = (f32::NEG_INFINITY, f32::NAN);
        let (mut u, mut v) = (vec![1.0; 3 * BLOCK], vec![1.0; 3 * BLOCK]);
        for weights in [WEIGHTS, Velocity::mean(0.9)] {
            let found = refused(&late, weights, &mut u, &mut v);
            assert_eq!(found, (BLOCK + 5, f32::NEG_INFINITY));
            assert_eq!(refused(&late, weights, &mut u, &mut []), found);
        }
        // The gradient is finite, and the velocity or the sum is not.
        let infinite = (0, f32::INFINITY);
        assert_eq!(refused(&[f32::MAX], WEIGHTS, &mut [0.0], &mut []), infinite);
        assert_eq!(refused(&[1e38], WEIGHTS, &mut [0.0], &mut [2e38]), infinite);
    }

    /// The check of a mean reads only the gradient if it is at most half of the largest number.
    #[test]
    fn means_of_the_largest_numbers_do_not_overflow_unseen() {
        let mut scratch = vec![0.0; SCRATCH];
        let below_one =
            [0.0, 0.5, 0.9, 0.99, 0.999_999, 1.0 - f32::EPSILON / 2.0, 1e-30, 1.0 / 3.0];
        for momentum in below_one {
            for g in [f32::MAX, f32::MAX / 2.0, f32::MAX / 3.0, 1.0] {
                let (gradient, mut u) = ([g], [f32::MAX]);
                let source =
                    checked(&gradient, (Velocity::mean(momentum), &mut u), &mut [], &mut scratch);
                let mean = momentum * f32::MAX + (1.0 - momentum) * g;
                assert_eq!(source.is_ok(), mean.is_finite(), "{momentum} {g}");
            }
        }
    }
}
