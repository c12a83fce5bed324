//! The ends of a run's rounds: the steps after which ranks exchange.

use gradwire_exchange::Schedule;

/// The rounds of a run. Each compressor of the schedule sets the number of steps of its rounds. A
/// round also ends when the next compressor begins, and at the end of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// First step and steps per round of each stage.
    stages: Vec<(u64, u64)>,
    steps: u64,
}

impl Rounds {
    /// The rounds of a run of `steps` steps.
    pub(crate) fn new(schedule: &Schedule, steps: u64) -> Self {
        let stages = schedule.stages().map(|(start, spec)| (start, spec.every())).collect();
        Self { stages, steps }
    }

    /// Steps done when the round of step `step` ends.
    pub(crate) fn end(&self, step: u64) -> u64 {
        let (start, every, end) = self.stage(step);
        (start + ((step - start) / every + 1) * every).min(end)
    }

    /// Steps done when the round of step `step` begins.
    pub(crate) fn start(&self, step: u64) -> u64 {
        let (start, every, _) = self.stage(step);
        start + (step - start) / every * every
    }

    /// The stage of a step: its first step, steps per round, and the step after its last.
    fn stage(&self, step: u64) -> (u64, u64, u64) {
        let at = self.stages.partition_point(|(start, _)| *start <= step) - 1;
        let end = self.stages.get(at + 1).map_or(self.steps, |(start, _)| *start);
        let (start, every) = self.stages[at];
        (start, every, end)
    }

    /// The most steps that a round has.
    pub(crate) fn longest(&self) -> u64 {
        let longest = self.stages.iter().map(|(_, every)| *every).max().unwrap_or(1);
        longest.min(self.steps)
    }

    /// The number of rounds.
    pub(crate) fn count(&self) -> u64 {
        let ends = self.stages.iter().skip(1).map(|(start, _)| *start).chain([self.steps]);
        let rounds = |(&(start, every), end): (&(u64, u64), u64)| (end - start).div_ceil(every);
        self.stages.iter().zip(ends).map(rounds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(stages: &[(u64, u64)], steps: u64) -> Rounds {
        Rounds { stages: stages.to_vec(), steps }
    }

    /// The ends of all rounds.
    fn ends(rounds: &Rounds) -> Vec<u64> {
        let mut ends = vec![0];
        while ends[ends.len() - 1] < rounds.steps {
            let start = ends[ends.len() - 1];
            let end = rounds.end(start);
            for step in start..end {
                assert_eq!((rounds.start(step), rounds.end(step)), (start, end));
            }
            ends.push(end);
        }
        ends.remove(0);
        assert_eq!(ends.len() as u64, rounds.count());
        ends
    }

    #[test]
    fn rounds_end_at_multiples_and_at_the_end() {
        assert_eq!(ends(&rounds(&[(0, 1)], 3)), [1, 2, 3]);
        assert_eq!(ends(&rounds(&[(0, 4)], 10)), [4, 8, 10]);
        assert_eq!(ends(&rounds(&[(0, 100)], 10)), [10]);
    }

    #[test]
    fn a_new_phase_starts_a_new_round() {
        assert_eq!(ends(&rounds(&[(0, 4), (6, 2), (9, 1)], 11)), [4, 6, 8, 9, 10, 11]);
    }
}
