//! One tensor on its server: the global parameters and the pushes of the step in progress.

use gradwire::Tensor;

use crate::group::Piece;
use crate::{Operation, Phase};

/// A tensor that a server holds.
pub(super) struct Slot {
    /// Its position in the model.
    pub(super) index: usize,
    pub(super) tensor: Tensor,
    pub(super) parameters: Vec<f32>,
    /// The last step that is in the parameters.
    done: Option<u64>,
    pushes: Vec<Push>,
}

#[derive(Default)]
struct Push {
    arrived: bool,
    message: Vec<u8>,
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PushOutcome {
    /// More are needed.
    Waiting,
    /// It was the last one needed.
    Complete,
    /// The step was done without it.
    Late,
    /// The worker had pushed for this step already.
    Repeated,
}

impl Slot {
    pub(super) fn new(index: usize, tensor: Tensor, parameters: Vec<f32>, workers: usize) -> Self {
        let pushes = (0..workers).map(|_| Push::default()).collect();
        Self { index, tensor, parameters, done: None, pushes }
    }

    /// Keeps a worker's push for `step` if it is still needed, and swaps `message` for a used
    /// buffer. The step is complete with `needed` pushes.
    pub(super) fn push(
        &mut self,
        worker: usize,
        step: u64,
        message: &mut Vec<u8>,
        needed: usize,
    ) -> PushOutcome {
        if self.done.is_some_and(|done| step <= done) {
            return PushOutcome::Late;
        }
        let push = &mut self.pushes[worker];
        if push.arrived {
            return PushOutcome::Repeated;
        }
        push.arrived = true;
        std::mem::swap(&mut push.message, message);
        if self.arrived() == needed { PushOutcome::Complete } else { PushOutcome::Waiting }
    }

    /// The tensor as a piece by itself.
    pub(super) fn piece(&self) -> Piece<'_> {
        Piece::whole(self.index, &self.tensor)
    }

    /// An operation on this tensor.
    pub(super) fn operation(&self, phase: Phase, step: u64) -> Operation<'_> {
        Operation::tensor(phase, self.index, self.tensor.name(), step)
    }

    /// The pushes of the step in progress, in rank order.
    pub(super) fn accepted(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let arrived = self.pushes.iter().enumerate().filter(|(_, push)| push.arrived);
        arrived.map(|(worker, push)| (worker, push.message.as_slice()))
    }

    /// Forgets the pushes: their step is in the parameters now.
    pub(super) fn finish(&mut self, step: u64) {
        self.done = Some(step);
        self.clear();
    }

    /// Starts over from restored parameters.
    pub(super) fn rewind(&mut self) {
        self.done = None;
        self.clear();
    }

    fn clear(&mut self) {
        self.pushes.iter_mut().for_each(|push| push.arrived = false);
    }

    /// Whether the step that has `begun` is not in the parameters.
    pub(super) fn is_behind(&self, begun: Option<u64>) -> bool {
        self.done < begun
    }

    /// The first worker with a weight in the mean whose push is missing.
    pub(super) fn missing(&self, weights: &[f32]) -> Option<usize> {
        let mut pushes = self.pushes.iter().zip(weights);
        pushes.position(|(push, &weight)| !push.arrived && weight > 0.0)
    }

    /// Whether the step that has `begun` is not done, and the `present` workers cannot complete it.
    pub(super) fn is_stuck(&self, begun: Option<u64>, present: &[usize], needed: usize) -> bool {
        let to_come = present.iter().filter(|&&worker| !self.pushes[worker].arrived).count();
        self.is_behind(begun) && self.arrived() + to_come < needed
    }

    /// Whether some pushes of a step have arrived, and others have not.
    pub(super) fn is_incomplete(&self) -> bool {
        self.arrived() > 0
    }

    fn arrived(&self) -> usize {
        self.pushes.iter().filter(|push| push.arrived).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_takes_the_first_pushes_and_drops_the_rest() {
        let mut slot = Slot::new(0, Tensor::new("w", &[1]), vec![0.0], 3);
        let push = |slot: &mut Slot, worker, step| {
            slot.push(worker, step, &mut vec![worker as u8, step as u8], 2)
        };
        assert_eq!(slot.missing(&[0.5, 0.5, 0.5]), Some(0));
        assert_eq!(push(&mut slot, 2, 5), PushOutcome::Waiting);
        assert!(!slot.is_stuck(Some(5), &[0], 2));
        assert!(slot.is_stuck(Some(5), &[2], 2));
        assert!(!slot.is_stuck(None, &[2], 2));
        assert_eq!(push(&mut slot, 2, 5), PushOutcome::Repeated);
        assert_eq!(push(&mut slot, 0, 5), PushOutcome::Complete);
        assert_eq!(slot.missing(&[0.5, 0.5, 0.5]), Some(1));
        let accepted: Vec<_> = slot.accepted().collect();
        assert_eq!(accepted, [(0, &[0, 5][..]), (2, &[2, 5])]);
        slot.finish(5);
        assert!(!slot.is_behind(Some(5)) && slot.is_behind(Some(6)));
        // A step that is done needs no pushes; a step that has begun needs them, even if none has
        // arrived.
        assert!(!slot.is_stuck(Some(5), &[], 2));
        assert!(slot.is_stuck(Some(6), &[1], 2));
        assert_eq!(push(&mut slot, 1, 5), PushOutcome::Late);
        assert_eq!(push(&mut slot, 1, 7), PushOutcome::Waiting);
        assert_eq!(slot.accepted().count(), 1);
    }
}
