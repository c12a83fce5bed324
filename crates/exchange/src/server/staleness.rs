//! Asynchronous workers: without a bound on their staleness, or with one.
//!
//! Each push is applied alone, when it arrives. The optimizer takes the worker's gradient times its
//! weight in the mean, so n pushes move the model by as much as a bulk-synchronous step. The answer
//! is a pull for this worker only: the change of the tensor since its last pull, compressed with
//! the worker's own residual on the server. If the compressor has no error feedback, it is the
//! change since the parameters that the worker holds, so nothing is lost.
//!
//! With a bound of S steps, an answer is held back while the worker is more than S pushes of the
//! tensor ahead of the slowest worker. Without a bound, no answer is held back. With S = 0, all
//! answers of a step are sent together, when its last push has arrived and before the next message
//! is read. All workers then hold the same bits. They differ from the bits of the bulk-synchronous
//! server: pushes are added in order of arrival, and an optimizer with state sees n small gradients
//! instead of their mean.
//!
//! Memory: for each worker a residual and a copy of the parameters as of its last pull.
//! Compression: one encoding for each worker and tensor instead of one for each tensor.

use std::time::Instant;

use gradwire::{Floats, State};

use super::slot::Slot;
use crate::codecs::{Codecs, Sender};
use crate::{GroupConfig, Result};

/// The state that an asynchronous server keeps for each worker, and the number of its pushes.
pub(super) struct Staleness {
    /// Steps that a worker may be ahead of the slowest; `None` for any number.
    bound: Option<u64>,
    /// For each worker, its step and learning rate.
    pub(super) begun: Vec<Option<(u64, f32)>>,
    /// For each worker, the compressors of its pulls.
    pub(super) pulls: Vec<Codecs>,
    /// For each slot, the progress of the workers.
    clocks: Vec<Clocks>,
}

/// Which pull a server sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pull {
    /// The slot.
    pub(super) at: usize,
    pub(super) step: u64,
    /// The rank of this server.
    pub(super) server: usize,
    /// The worker that gets it.
    pub(super) worker: usize,
}

/// The progress of the workers on one tensor.
struct Clocks {
    /// For each worker, the parameters as of its last pull; without a residual, the parameters that
    /// the worker holds.
    bases: Vec<Vec<f32>>,
    /// For each worker, the number of its pushes.
    pushed: Vec<u64>,
    /// For each worker that waits for an answer, the time of its push.
    waiting: Vec<Option<Instant>>,
}

impl Staleness {
    pub(super) fn new(
        bound: Option<u64>,
        config: &GroupConfig<'_>,
        rank: usize,
        slots: &[Slot],
    ) -> Self {
        let workers = config.workers();
        let clocks = |slot: &Slot| Clocks {
            bases: vec![slot.parameters.clone(); workers],
            pushed: vec![0; workers],
            waiting: vec![None; workers],
        };
        Self {
            bound,
            begun: vec![None; workers],
            pulls: (0..workers).map(|_| Codecs::of_pulls(config, rank)).collect(),
            clocks: slots.iter().map(clocks).collect(),
        }
    }

    /// Records a worker's push for a slot; false if the answer to its previous push is still due.
    pub(super) fn pushed(&mut self, slot: usize, worker: usize) -> bool {
        let clocks = &mut self.clocks[slot];
        clocks.pushed[worker] += 1;
        clocks.waiting[worker].replace(Instant::now()).is_none()
    }

    /// A worker whose push for a slot may be answered. It is recorded as answered.
    pub(super) fn release(&mut self, slot: usize) -> Option<usize> {
        let clocks = &mut self.clocks[slot];
        let slowest = clocks.pushed.iter().min().copied().unwrap_or(0);
        let allowed = |pushes: u64| self.bound.is_none_or(|bound| pushes - slowest <= bound);
        let worker = (0..clocks.pushed.len())
            .find(|&worker| clocks.waiting[worker].is_some() && allowed(clocks.pushed[worker]))?;
        clocks.waiting[worker] = None;
        Some(worker)
    }

    /// Replaces `message` with a worker's pull of a slot: the change since its last pull. `delta`
    /// is a buffer.
    pub(super) fn pull(
        &mut self,
        Pull { at, step, server, worker }: Pull,
        slot: &Slot,
        delta: &mut Vec<f32>,
        message: &mut Vec<u8>,
    ) -> Result<(), gradwire::Error> {
        let (pulls, base) = (&mut self.pulls[worker], &mut self.clocks[at].bases[worker]);
        delta.clear();
        delta.extend(slot.parameters.iter().zip(&*base).map(|(new, old)| new - old));
        pulls.begin(slot.index, step);
        pulls.at(&slot.piece(), step).encode(Floats::F32(delta).into(), message)?;
        if pulls.keeps_residual(&slot.tensor) {
            base.copy_from_slice(&slot.parameters);
            return Ok(());
        }
        // The next change includes the values that the message leaves out: the base is the worker's
        // copy.
        pulls.at(&slot.piece(), step).add(Sender::alone(server), message, base)
    }

    /// The answer that has waited longest: the time of its push, its slot, and the slowest worker,
    /// which it waits for.
    pub(super) fn overdue(&self) -> Option<(Instant, usize, usize)> {
        let since = |(slot, clocks): (usize, &Clocks)| {
            let first = clocks.waiting.iter().flatten().min().copied();
            first.map(|since| (since, slot, clocks.slowest()))
        };
        self.clocks.iter().enumerate().filter_map(since).min()
    }

    /// A slot where an answer waits for a worker that has left, and that worker.
    pub(super) fn stuck(&self, present: &[usize]) -> Option<(usize, usize)> {
        let mut slots = self.clocks.iter().enumerate();
        slots.find_map(|(slot, clocks)| {
            let slowest = clocks.slowest();
            let due = clocks.waiting.iter().any(Option::is_some);
            (due && !present.contains(&slowest)).then_some((slot, slowest))
        })
    }

    /// A worker that has pushed less often than another.
    pub(super) fn behind(&self) -> Option<usize> {
        let uneven = self
            .clocks
            .iter()
            .find(|clocks| clocks.pushed.iter().any(|pushes| *pushes != clocks.pushed[0]));
        uneven.map(Clocks::slowest)
    }

    pub(super) fn save(&self, slots: &[Slot], state: &mut State) {
        for (worker, pulls) in self.pulls.iter().enumerate() {
            pulls.save(&format!("pull{worker}/"), state);
            for (slot, clocks) in slots.iter().zip(&self.clocks) {
                let key = format!("base{worker}/{}", slot.tensor.name());
                state.set_floats(&key, clocks.bases[worker].clone());
            }
        }
    }

    pub(super) fn restore(&mut self, slots: &[Slot], state: &State) -> Result<()> {
        let key = |worker: usize, slot: &Slot| format!("base{worker}/{}", slot.tensor.name());
        let first = slots.first();
        let saved = first
            .map_or(0, |slot| (0..).take_while(|&w| state.floats(&key(w, slot)).is_ok()).count());
        for (worker, pulls) in self.pulls.iter_mut().enumerate() {
            // If there are more workers than before, the additional ones start from copies.
            let of = worker % saved.max(1);
            pulls.restore(&format!("pull{of}/"), state)?;
            for (slot, clocks) in slots.iter().zip(&mut self.clocks) {
                let base = &mut clocks.bases[worker];
                let saved = state.floats_of(&key(of, slot), base.len())?;
                base.copy_from_slice(saved);
            }
        }
        for clocks in &mut self.clocks {
            clocks.pushed.fill(0);
            clocks.waiting.fill(None);
        }
        self.begun.fill(None);
        Ok(())
    }
}

impl Clocks {
    /// The first of the workers with the fewest pushes.
    fn slowest(&self) -> usize {
        (0..self.pushed.len()).min_by_key(|&worker| self.pushed[worker]).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use gradwire::Tensor;

    use super::*;
    use crate::{Participation, Policy};

    /// For two workers and a tensor of one element.
    fn staleness(bound: Option<u64>) -> (Staleness, Slot) {
        staleness_of(2, bound)
    }

    fn staleness_of(workers: usize, bound: Option<u64>) -> (Staleness, Slot) {
        let policy = Policy::new(gradwire::Spec::none());
        let tensors = [Tensor::new("w", &[1])];
        let config = GroupConfig {
            exchange: "server:mode=async".parse().unwrap(),
            participation: &Participation::equal(workers),
            policy: &policy,
            tensors: &tensors,
            seed: 0,
            initial: &[vec![1.0]],
        };
        let slot = Slot::new(0, tensors[0].clone(), vec![1.0], workers);
        (Staleness::new(bound, &config, workers, std::slice::from_ref(&slot)), slot)
    }

    #[test]
    fn who_is_too_far_ahead_waits_for_the_slowest() {
        let (mut staleness, _) = staleness(Some(1));
        assert!(staleness.pushed(0, 0));
        assert_eq!((staleness.release(0), staleness.release(0)), (Some(0), None));
        assert!(staleness.pushed(0, 0));
        assert_eq!(staleness.release(0), None);
        assert!(!staleness.pushed(0, 0), "a push before the answer to the last");
        assert_eq!(staleness.stuck(&[0, 1]), None);
        assert_eq!(staleness.stuck(&[0]), Some((0, 1)));
        assert_eq!(staleness.overdue().map(|(_, slot, worker)| (slot, worker)), Some((0, 1)));
        for _ in 0..2 {
            assert_eq!(staleness.behind(), Some(1));
            assert!(staleness.pushed(0, 1));
            staleness.clocks[0].pushed[0] = 2;
            let released = [staleness.release(0), staleness.release(0)];
            assert!(released.contains(&Some(1)), "{released:?}");
        }
        assert_eq!((staleness.behind(), staleness.overdue()), (None, None));
    }

    #[test]
    fn without_slack_all_are_answered_together_and_without_a_bound_at_once() {
        let (mut together, _) = staleness(Some(0));
        assert!(together.pushed(0, 1));
        assert_eq!(together.release(0), None);
        assert!(together.pushed(0, 0));
        assert_eq!([together.release(0), together.release(0)], [Some(0), Some(1)]);
        let (mut alone, _) = staleness(None);
        for _ in 0..5 {
            assert!(alone.pushed(0, 1));
            assert_eq!(alone.release(0), Some(1));
        }
    }

    #[test]
    fn additional_workers_start_from_copies_of_the_others() {
        let (mut saved, slot) = staleness(None);
        let slots = std::slice::from_ref(&slot);
        saved.clocks[0].bases = vec![vec![2.0], vec![5.0]];
        let mut state = State::new();
        saved.save(slots, &mut state);
        for (workers, expected) in [(3, vec![2.0, 5.0, 2.0]), (1, vec![2.0])] {
            let (mut restored, _) = staleness_of(workers, None);
            restored.pushed(0, workers - 1);
            restored.begun[0] = Some((4, 0.5));
            restored.restore(slots, &state).unwrap();
            let Clocks { bases, pushed, waiting } = &restored.clocks[0];
            assert_eq!(bases.concat(), expected);
            assert!(pushed.iter().all(|&pushes| pushes == 0), "{pushed:?}");
            assert!(waiting.iter().all(Option::is_none), "{waiting:?}");
            assert!(restored.begun.iter().all(Option::is_none), "{:?}", restored.begun);
        }
    }

    #[test]
    fn a_worker_pulls_what_has_changed_since_its_last_pull() {
        let (mut staleness, mut slot) = staleness(None);
        let mut change = |worker, new| {
            let (mut delta, mut message) = (Vec::new(), Vec::new());
            slot.parameters[0] = new;
            let pull = Pull { at: 0, step: 1, server: 2, worker };
            staleness.pull(pull, &slot, &mut delta, &mut message).unwrap();
            assert_eq!(message, delta[0].to_le_bytes());
            delta[0]
        };
        assert_eq!(change(0, 3.0), 2.0);
        assert_eq!(change(0, 2.5), -0.5);
        assert_eq!(change(1, 2.5), 1.5);
    }
}
