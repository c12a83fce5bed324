//! Where the rounds of a run end: the steps after which ranks exchange.

use gradwire_exchange::plan::Phase;

/// The rounds of a run. Each phase of the plan sets the number of steps of its rounds; a round also ends with its phase,
/// and with the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rounds {
    /// First step and steps per round of each phase.
    phases: Vec<(u64, u64)>,
    steps: u64,
}

impl Rounds {
    /// The rounds of a run of `steps` steps.
    pub(crate) fn new(phases: &[Phase], steps: u64) -> Self {
        Self { phases: phases.iter().map(|(start, spec)| (*start, spec.every())).collect(), steps }
    }

    /// Steps done when the round that step `step` belongs to is over.
    pub(crate) fn end(&self, step: u64) -> u64 {
        let (start, every, end) = self.phase(step);
        (start + ((step - start) / every + 1) * every).min(end)
    }

    /// Steps done when the round began that step `step` belongs to.
    pub(crate) fn start(&self, step: u64) -> u64 {
        let (start, every, _) = self.phase(step);
        start + (step - start) / every * every
    }

    /// The phase of a step: its first step, steps per round, and the step after its last.
    fn phase(&self, step: u64) -> (u64, u64, u64) {
        let at = self.phases.partition_point(|(start, _)| *start <= step) - 1;
        let end = self.phases.get(at + 1).map_or(self.steps, |(start, _)| *start);
        let (start, every) = self.phases[at];
        (start, every, end)
    }

    /// The most steps that a round has.
    pub(crate) fn longest(&self) -> u64 {
        let longest = self.phases.iter().map(|(_, every)| *every).max().unwrap_or(1);
        longest.min(self.steps)
    }

    /// The number of rounds.
    pub(crate) fn count(&self) -> u64 {
        let ends = self.phases.iter().skip(1).map(|(start, _)| *start).chain([self.steps]);
        let rounds = |(&(start, every), end): (&(u64, u64), u64)| (end - start).div_ceil(every);
        self.phases.iter().zip(ends).map(rounds).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rounds(phases: &[(u64, u64)], steps: u64) -> Rounds {
        Rounds { phases: phases.to_vec(), steps }
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
