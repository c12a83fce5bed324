//! Pulls that arrived before the worker reached their step: with backup workers, or in rounds
//! without this worker.

use std::collections::VecDeque;

/// For each tensor, the pulls that are not applied yet, in the order of their steps.
pub(super) struct Pulls {
    queues: Vec<VecDeque<(u32, Vec<u8>)>>,
    spare: Vec<Vec<u8>>,
}

impl Pulls {
    pub(super) fn new(tensors: usize) -> Self {
        Self { queues: vec![VecDeque::new(); tensors], spare: Vec::new() }
    }

    /// Keeps a pull; `message` is swapped for a used buffer.
    pub(super) fn keep(&mut self, tensor: usize, step: u32, message: &mut Vec<u8>) {
        let buffer = self.spare.pop().unwrap_or_default();
        self.queues[tensor].push_back((step, std::mem::replace(message, buffer)));
    }

    /// Whether the pull of that step has arrived.
    pub(super) fn has(&self, tensor: usize, step: u32) -> bool {
        self.queues[tensor].front().is_some_and(|(front, _)| *front == step)
    }

    /// Swaps the pull of that step, if it has arrived, for the buffer in `message`.
    pub(super) fn take(&mut self, tensor: usize, step: u32, message: &mut Vec<u8>) -> bool {
        if !self.has(tensor, step) {
            return false;
        }
        if let Some((_, pull)) = self.queues[tensor].pop_front() {
            self.spare.push(std::mem::replace(message, pull));
        }
        true
    }

    /// The next step, if all of its pulls have arrived.
    pub(super) fn complete(&self) -> Option<u32> {
        let (step, _) = self.queues.first()?.front()?;
        (0..self.queues.len()).all(|tensor| self.has(tensor, *step)).then_some(*step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_complete_when_every_tensor_has_its_pull() {
        let mut pulls = Pulls::new(2);
        assert_eq!(pulls.complete(), None);
        pulls.keep(1, 7, &mut vec![1]);
        pulls.keep(1, 8, &mut vec![2]);
        assert_eq!(pulls.complete(), None);
        pulls.keep(0, 7, &mut vec![3]);
        assert_eq!(pulls.complete(), Some(7));
        let mut message = Vec::new();
        assert!(!pulls.take(1, 8, &mut message));
        assert!(pulls.take(1, 7, &mut message));
        assert_eq!(message, [1]);
        assert!(pulls.has(1, 8));
        assert_eq!(pulls.complete(), None);
    }
}
