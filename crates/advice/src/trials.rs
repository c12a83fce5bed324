//! The trials of several candidates, with their progress.

use std::ops::ControlFlow;

use gradwire_exchange::{Exchange, ExchangeError, Policy, Result};

use crate::{Candidate, Costs, Recording};

/// The progress of the trials.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// The candidate that is being tried.
    pub candidate: &'a Candidate,
    /// The number of finished trials.
    pub finished: usize,
    /// The number of trials.
    pub trials: usize,
    /// The finished part of all work, from 0 to 1.
    pub done: f64,
}

/// Receives the progress, and may end the trials.
pub type Watch<'a> = dyn FnMut(&Progress<'_>) -> ControlFlow<()> + 'a;

/// The key of a trial. Candidates that differ only in their number of local steps have the same
/// messages, and share a trial.
#[derive(PartialEq)]
struct Key {
    policy: Policy,
    exchange: Exchange,
    ranks: usize,
}

impl Key {
    fn of(candidate: &Candidate, ranks: usize) -> Self {
        Self { policy: candidate.policy(), exchange: candidate.exchange(ranks), ranks }
    }
}

/// Tries candidates. Candidates with the same messages share a trial.
pub(crate) struct Trials<'a> {
    recording: &'a Recording<'a>,
    watch: &'a mut Watch<'a>,
    found: Vec<(Key, Costs)>,
    /// The number of different trials.
    trials: usize,
}

impl<'a> Trials<'a> {
    /// Trials of some candidates, each with its number of ranks.
    pub(crate) fn new<'c>(
        recording: &'a Recording<'a>,
        planned: impl Iterator<Item = (&'c Candidate, usize)>,
        watch: &'a mut Watch<'a>,
    ) -> Self {
        let mut keys = Vec::new();
        for (candidate, ranks) in planned {
            let key = Key::of(candidate, ranks);
            if !keys.contains(&key) {
                keys.push(key);
            }
        }
        Self { recording, watch, found: Vec::new(), trials: keys.len() }
    }

    /// The costs of one of the candidates.
    ///
    /// # Errors
    /// The errors of [`Costs::measure`] with the name of the candidate; `Ended` if the watcher
    /// ended the trials.
    pub(crate) fn costs(&mut self, candidate: &Candidate, ranks: usize) -> Result<Costs> {
        let key = Key::of(candidate, ranks);
        if let Some((_, costs)) = self.found.iter().find(|(known, _)| *known == key) {
            return Ok(costs.clone());
        }
        let (finished, trials) = (self.found.len(), self.trials);
        let (mut tried, elements) = (0, self.recording.elements().max(1) as f64);
        let watch = &mut self.watch;
        let mut tell = |more: usize| {
            tried += more;
            let done = (finished as f64 + tried as f64 / elements) / trials as f64;
            watch(&Progress { candidate, finished, trials, done: done.min(1.0) })
        };
        // Reports the name before the first result.
        if tell(0).is_break() {
            return Err(ExchangeError::Ended("the trials were stopped".to_owned()));
        }
        let costs = Costs::watched(self.recording, candidate, ranks, &mut tell);
        let costs = costs.map_err(|error| match error {
            ExchangeError::Ended(_) => error,
            error => ExchangeError::config(format!(
                "the candidate '{candidate}' cannot be tried: {error}"
            )),
        })?;
        self.found.push((key, costs.clone()));
        Ok(costs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::{Floats, Tensor};

    static ONES: [f32; 512] = [1.0; 512];

    fn candidates() -> Vec<Candidate> {
        ["none", "fp16", "none:every=10", "fp16"]
            .map(|one| Candidate::new(one.parse().unwrap()))
            .into()
    }

    fn recording() -> Recording<'static> {
        let tensors = vec![Tensor::new("a", &[256, 2])];
        Recording::untimed(tensors, vec![vec![Floats::F32(&ONES)]; 2], 1.0, 0.5)
    }

    #[test]
    fn what_sends_the_same_messages_is_tried_once() {
        let (recording, candidates, mut told) = (recording(), candidates(), Vec::new());
        let mut watch = |at: &Progress<'_>| {
            told.push((at.candidate.to_string(), at.finished, at.trials, at.done));
            ControlFlow::Continue(())
        };
        let planned = candidates.iter().map(|one| (one, 2));
        let mut trials = Trials::new(&recording, planned, &mut watch);
        let costs: Vec<_> = candidates.iter().map(|one| trials.costs(one, 2).unwrap()).collect();
        assert_eq!((&costs[0], &costs[1]), (&costs[2], &costs[3]));
        assert!(costs[1].message_bytes() < costs[0].message_bytes());
        let at = |name: &str, finished, done| (name.to_owned(), finished, 2, done);
        assert_eq!(
            told,
            [at("none", 0, 0.0), at("none", 0, 0.5), at("fp16", 1, 0.5), at("fp16", 1, 1.0)]
        );
    }

    #[test]
    fn other_ranks_or_rules_are_another_trial() {
        let (recording, mut candidates) = (recording(), candidates());
        candidates[2].rules = vec!["a -> fp16".parse().unwrap()];
        let mut watch = |_: &Progress<'_>| ControlFlow::Continue(());
        let planned = candidates.iter().map(|one| (one, 2)).chain([(&candidates[0], 3)]);
        let mut trials = Trials::new(&recording, planned, &mut watch);
        assert_eq!(trials.trials, 4);
        let (whole, ruled) = (trials.costs(&candidates[0], 2), trials.costs(&candidates[2], 2));
        assert!(ruled.unwrap().message_bytes() < whole.unwrap().message_bytes());
    }
}
