//! Collecting the states of all workers for a checkpoint.

use std::collections::BTreeMap;

use gradwire::State;

use crate::events::SavePoint;

/// Collects states, in any order of arrival, until all workers' states after a step are there.
#[derive(Debug)]
pub(crate) struct States {
    workers: usize,
    /// By point and rank. One worker may already be at the next point.
    pending: BTreeMap<SavePoint, BTreeMap<usize, State>>,
}

impl States {
    /// A collector for a run of `workers` workers.
    pub(crate) fn new(workers: usize) -> Self {
        Self { workers, pending: BTreeMap::new() }
    }

    /// Takes a worker's state; a later one replaces an earlier one of the same point. Returns the
    /// merged states of all workers once the last is there.
    pub(crate) fn add(&mut self, point: SavePoint, rank: usize, state: State) -> Option<State> {
        let saved = self.pending.entry(point).or_default();
        saved.insert(rank, state);
        if saved.len() < self.workers {
            return None;
        }
        let mut whole = State::new();
        for state in self.pending.remove(&point)?.into_values() {
            whole.merge("", state);
        }
        // No worker returns to an earlier point.
        self.pending.retain(|&pending, _| pending > point);
        Some(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(step: u64, to_file: bool) -> SavePoint {
        SavePoint { step, to_file }
    }

    fn state(rank: usize, step: u64) -> State {
        let mut state = State::new();
        state.set_number(&format!("{rank}"), step);
        state
    }

    #[test]
    fn a_checkpoint_has_one_state_of_each_worker_after_the_same_step() {
        let mut states = States::new(3);
        // One worker is a step ahead, another sends the same state twice.
        for (step, rank) in [(4, 0), (5, 0), (4, 1), (4, 1), (5, 1), (5, 0)] {
            assert_eq!(states.add(point(step, true), rank, state(rank, step)), None);
        }
        let whole = |step| {
            let mut whole = State::new();
            (0..3).for_each(|rank| whole.merge("", state(rank, step)));
            whole
        };
        assert_eq!(states.add(point(4, true), 2, state(2, 4)), Some(whole(4)));
        assert_eq!(states.add(point(5, true), 2, state(2, 5)), Some(whole(5)));
        assert!(states.pending.is_empty());
    }

    #[test]
    fn states_that_stay_incomplete_are_dropped() {
        let mut states = States::new(2);
        states.add(point(1, true), 0, state(0, 1));
        states.add(point(2, true), 0, state(0, 2));
        assert!(states.add(point(2, true), 1, state(1, 2)).is_some());
        assert!(states.pending.is_empty());
    }

    #[test]
    fn a_stop_saves_a_step_for_a_file_that_is_also_saved_in_memory() {
        let mut states = States::new(2);
        let mut add = |to_file, rank| states.add(point(3, to_file), rank, state(rank, 3)).is_some();
        // The first worker is at the stop before the second has saved in memory.
        let whole =
            [(false, 0), (true, 0), (false, 1), (true, 1)].map(|(file, rank)| add(file, rank));
        assert_eq!(whole, [false, false, true, true]);
        assert!(states.pending.is_empty());
    }
}
