//! What a worker in a process of its own does to evaluate, to stop and to save together with the others: by messages
//! beside those of the exchange.
//!
//! The first worker keeps the record of all. The others tell it of their steps whenever all evaluate or save.

use gradwire::State;

use super::TrainError;
use super::exam::Subject;
use super::recorder::Sample;
use super::worker::{Event, Failure, Worker};
use gradwire_models::models::{Score, Statistics};

/// Rounds between two questions whether to stop: each question takes a message there and one back.
const ROUNDS_BETWEEN: u64 = 8;

impl Worker<'_> {
    /// Whether any worker has been asked to stop: asked of all before the same step.
    pub(super) fn agree_to_stop(&mut self, step: u64) -> Result<bool, Failure> {
        let shared = self.shared;
        // With backup workers ranks are not at the same step.
        if shared.rounds.start(step) != step || shared.config.backups() > 0 {
            return Ok(false);
        }
        self.rounds_begun += 1;
        if !self.rounds_begun.is_multiple_of(ROUNDS_BETWEEN) {
            return Ok(false);
        }
        let asked = self.collect(vec![u8::from(shared.observer.stop())])?;
        let mut stops =
            asked.map_or_else(Vec::new, |all| vec![u8::from(all.concat().contains(&1))]);
        self.announce(&mut stops)?;
        Ok(stops == [1])
    }

    /// Evaluates with the other workers, each some parts. The first gets the score.
    pub(super) fn evaluate_apart(
        &mut self,
        examples: usize,
        first: Option<usize>,
    ) -> Result<Option<Score>, Failure> {
        self.report()?;
        let statistics = self.statistics_of(first)?;
        let parameters = self.global_parameters()?;
        let subject = Subject { parameters, examples };
        let (parts, workers) = (self.learner.test_parts(examples), self.shared.config.workers);
        let mut scratch = Vec::new();
        let permit = self.shared.gate.enter();
        let own: Vec<Score> = (self.rank..parts)
            .step_by(workers)
            .map(|part| self.learner.score(&subject, &statistics, part, &mut scratch))
            .collect();
        drop(permit);
        let Some(all) = self.collect(write(&own)?)? else { return Ok(None) };
        let all: Vec<Vec<Score>> = all.iter().map(|own| read(own)).collect::<Result<_, _>>()?;
        // In the order of parts, as one process adds them.
        let mut total = Score::default();
        (0..parts)
            .filter_map(|part| all[part % workers].get(part / workers))
            .for_each(|&score| total.add(score));
        Ok(Some(total))
    }

    /// The batch-norm statistics of one worker.
    fn statistics_of(&mut self, first: Option<usize>) -> Result<Vec<Statistics>, Failure> {
        let mut statistics = self.learner.statistics();
        if statistics.is_empty() {
            return Ok(statistics);
        }
        let values: Vec<&[f32]> =
            statistics.iter().flat_map(|one| [&one.mean[..], &one.variance[..]]).collect();
        let own = if first == Some(self.rank) { bytes_of(&values.concat()) } else { Vec::new() };
        let mut message = self.collect(own)?.map_or_else(Vec::new, |all| all.concat());
        self.announce(&mut message)?;
        let mut values = floats_in(&message);
        for one in &mut statistics {
            one.mean.iter_mut().chain(&mut one.variance).for_each(|value| {
                *value = values.next().unwrap_or(*value);
            });
        }
        Ok(statistics)
    }

    /// The global model: that of the servers, or the workers' own.
    fn global_parameters(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        if self.shared.config.exchange.servers() == 0 {
            return Ok(self.parameters.clone());
        }
        let mut message = Vec::new();
        if self.rank == 0 {
            let global = self.exchange.global_model().map_err(|source| self.failed(source))?;
            let values = global.as_ref().unwrap_or(&self.parameters).concat();
            message = bytes_of(&values);
        }
        self.announce(&mut message)?;
        let mut values = floats_in(&message);
        let take = |own: &Vec<f32>| values.by_ref().take(own.len()).collect();
        Ok(self.parameters.iter().map(take).collect())
    }

    /// Hands a state over to the first worker, which hands all on.
    pub(super) fn hand_over(&mut self, done: u64, state: &State) -> Result<(), TrainError> {
        self.report()?;
        let bytes = state.to_bytes().map_err(|source| self.failed(source.into()))?;
        let Some(all) = self.collect(bytes)? else { return Ok(()) };
        for (rank, bytes) in all.iter().enumerate() {
            let state = State::from_bytes(bytes).map_err(|source| self.failed(source.into()))?;
            let _ = self.events.send((rank, Event::Saved(done, Box::new(state))));
        }
        Ok(())
    }

    /// Tells the first worker of the steps since the last report.
    fn report(&mut self) -> Result<(), TrainError> {
        let unsent = std::mem::take(&mut self.unsent);
        let Some(all) = self.collect(write(&unsent)?)? else { return Ok(()) };
        for (rank, steps) in all.iter().enumerate() {
            let steps: Vec<(Sample, u64)> = read(steps)?;
            for (sample, next) in steps {
                let _ = self.events.send((rank, Event::Step(sample, next)));
            }
        }
        Ok(())
    }

    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, TrainError> {
        self.exchange.collect(own).map_err(|source| self.failed(source))
    }

    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), TrainError> {
        self.exchange.announce(message).map_err(|source| self.failed(source))
    }
}

/// What workers tell each other in words.
fn write<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, TrainError> {
    serde_json::to_vec(value).map_err(|error| TrainError::Config(error.to_string()))
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, TrainError> {
    serde_json::from_slice(bytes).map_err(|error| {
        TrainError::Config(format!("another worker said what is not understood: {error}"))
    })
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats_in(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word))
}
