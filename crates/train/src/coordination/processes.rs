//! Coordination of workers that are processes: by messages on the control channel.
//!
//! The first worker keeps the record. The other workers send it their steps whenever all evaluate
//! or save.

use std::ops::Range;

use gradwire::State;
use gradwire_exchange::{DistributedOptimizer, ExchangeError};
use gradwire_models::models::{Score, Statistics};
use gradwire_models::tasks::Replica;

use super::coordinator::{Coordinator, Participant};
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::events::{Event, Events, SavePoint};
use crate::failure::{Failure, FirstFailure};
use crate::observer::Observer;
use crate::permits::Permits;
use crate::record::Sample;

/// The least number of steps between two agreements on whether to stop: each costs a message to the
/// first worker and one back.
const STEPS_BETWEEN: u64 = 8;

/// One worker's end of a group of processes.
pub(crate) struct ProcessCoordinator<'a> {
    rank: usize,
    config: &'a RunConfig,
    observer: &'a dyn Observer,
    permits: &'a Permits,
    events: Events,
    /// A failure in this process, such as an error while writing a checkpoint.
    failure: &'a FirstFailure,
    /// Steps that have not been sent to the first worker.
    unsent: Vec<(Sample, u64)>,
    /// Steps since the workers last agreed on whether to stop, with the steps of the round that
    /// begins.
    steps_since: u64,
    /// Whether workers that do not wait for each other agreed to stop when they last met.
    stops: bool,
}

impl<'a> ProcessCoordinator<'a> {
    /// The coordinator of worker `rank`.
    pub(crate) fn new(
        rank: usize,
        config: &'a RunConfig,
        observer: &'a dyn Observer,
        permits: &'a Permits,
        events: Events,
        failure: &'a FirstFailure,
    ) -> Self {
        let (unsent, steps_since, stops) = (Vec::new(), 0, false);
        Self { rank, config, observer, permits, events, failure, unsent, steps_since, stops }
    }

    /// Whether workers wait for each other in every round, and are at the same step.
    fn in_step(&self) -> bool {
        self.config.resumes_exactly()
    }

    /// The work at a step at which all workers meet, to evaluate or to save. They send their steps
    /// to the first worker. They also agree on whether to stop, if they have no other occasion.
    fn meet(&mut self, exchange: &mut dyn DistributedOptimizer) -> Result<(), TrainError> {
        self.send_steps(exchange)?;
        if !self.in_step() {
            self.stops = self.agree_to_stop(exchange)?;
        }
        Ok(())
    }

    /// Whether the observer of any worker asks to stop.
    fn agree_to_stop(&self, exchange: &mut dyn DistributedOptimizer) -> Result<bool, TrainError> {
        let asked = self.collect(exchange, vec![u8::from(self.observer.stop())])?;
        let mut stops =
            asked.map_or_else(Vec::new, |all| vec![u8::from(all.concat().contains(&1))]);
        self.announce(exchange, &mut stops)?;
        Ok(stops == [1])
    }

    /// Sends the unsent steps to the first worker.
    fn send_steps(&mut self, exchange: &mut dyn DistributedOptimizer) -> Result<(), TrainError> {
        let unsent = std::mem::take(&mut self.unsent);
        let Some(all) = self.collect(exchange, write(&unsent)?)? else { return Ok(()) };
        for (rank, steps) in all.iter().enumerate() {
            let steps: Vec<(Sample, u64)> = read(steps)?;
            for (sample, next) in steps {
                self.events.tell(rank, Event::Step(sample, next));
            }
        }
        Ok(())
    }

    /// The batch-norm statistics of one worker.
    fn statistics_of(
        &self,
        source: Option<usize>,
        replica: &dyn Replica,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<Vec<Statistics>, TrainError> {
        let mut statistics = replica.statistics().to_vec();
        if statistics.is_empty() {
            return Ok(statistics);
        }
        let values: Vec<&[f32]> =
            statistics.iter().flat_map(|one| [&one.mean[..], &one.variance[..]]).collect();
        let own = if source == Some(self.rank) { bytes_of(&values.concat()) } else { Vec::new() };
        let mut message = self.collect(exchange, own)?.map_or_else(Vec::new, |all| all.concat());
        self.announce(exchange, &mut message)?;
        let mut values = floats_in(&message);
        for one in &mut statistics {
            one.mean.iter_mut().chain(&mut one.variance).for_each(|value| {
                *value = values.next().unwrap_or(*value);
            });
        }
        Ok(statistics)
    }

    /// The parameters of the global model: from the servers, or the worker's own.
    fn global_parameters(
        &self,
        own: &[Vec<f32>],
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<Vec<Vec<f32>>, TrainError> {
        if self.config.exchange.servers() == 0 {
            return Ok(own.to_vec());
        }
        let mut message = Vec::new();
        if self.rank == 0 {
            let global = exchange.global_model().map_err(|source| self.failed(source))?;
            let values = global.as_deref().unwrap_or(own).concat();
            message = bytes_of(&values);
        }
        self.announce(exchange, &mut message)?;
        let mut values = floats_in(&message);
        Ok(own.iter().map(|own| values.by_ref().take(own.len()).collect()).collect())
    }

    /// Sends a message to the first worker, which returns the messages of all workers.
    fn collect(
        &self,
        exchange: &mut dyn DistributedOptimizer,
        own: Vec<u8>,
    ) -> Result<Option<Vec<Vec<u8>>>, TrainError> {
        exchange.control().gather(own).map_err(|source| self.failed(source))
    }

    /// Replaces every worker's message with the first worker's.
    fn announce(
        &self,
        exchange: &mut dyn DistributedOptimizer,
        message: &mut Vec<u8>,
    ) -> Result<(), TrainError> {
        exchange.control().broadcast(message).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: ExchangeError) -> TrainError {
        TrainError::Exchange { rank: self.rank, source }
    }
}

impl Coordinator for ProcessCoordinator<'_> {
    /// Every few steps, at the beginning of a round, all workers agree to stop if the observer of
    /// any worker asks for it. Workers that do not wait for each other agree only if they
    /// [meet](ProcessCoordinator::meet).
    fn stops(
        &mut self,
        step: u64,
        round: Range<u64>,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<bool, Failure> {
        if self.failure.is_recorded() {
            return Err(Failure::Cancelled);
        }
        if !self.in_step() {
            return Ok(self.stops);
        }
        if round.start != step {
            return Ok(false);
        }
        self.steps_since += round.end - round.start;
        if self.steps_since < STEPS_BETWEEN {
            return Ok(false);
        }
        self.steps_since = 0;
        Ok(self.agree_to_stop(exchange)?)
    }

    fn report(&mut self, sample: Sample, next: u64) {
        if self.rank > 0 {
            self.unsent.push((sample, next));
        } else {
            self.events.tell(0, Event::Step(sample, next));
        }
    }

    fn evaluate(
        &mut self,
        examples: usize,
        statistics_of: Option<usize>,
        worker: Participant<'_>,
    ) -> Result<Option<Score>, Failure> {
        let Participant { replica, parameters, exchange } = worker;
        self.meet(exchange)?;
        let statistics = self.statistics_of(statistics_of, replica, exchange)?;
        let parameters = self.global_parameters(parameters, exchange)?;
        let (parts, workers) = (replica.test_parts(examples), self.config.workers);
        let permit = self.permits.acquire();
        let own: Vec<Bits> = (self.rank..parts)
            .step_by(workers)
            .map(|part| to_bits(replica.score(&parameters, &statistics, examples, part)))
            .collect();
        drop(permit);
        let Some(all) = self.collect(exchange, write(&own)?)? else { return Ok(None) };
        let all: Vec<Vec<Bits>> = all.iter().map(|own| read(own)).collect::<Result<_, _>>()?;
        // In the order of parts, as one process adds them.
        let mut total = Score::default();
        (0..parts)
            .filter_map(|part| all[part % workers].get(part / workers))
            .for_each(|&score| total.add(from_bits(score)));
        Ok(Some(total))
    }

    fn save(
        &mut self,
        point: SavePoint,
        state: State,
        exchange: &mut dyn DistributedOptimizer,
    ) -> Result<(), Failure> {
        self.meet(exchange)?;
        let bytes = state.to_bytes().map_err(|source| self.failed(source.into()))?;
        let Some(all) = self.collect(exchange, bytes)? else { return Ok(()) };
        for (rank, bytes) in all.iter().enumerate() {
            let state = State::from_bytes(bytes).map_err(|source| self.failed(source.into()))?;
            self.events.tell(rank, Event::Saved(point, Box::new(state)));
        }
        Ok(())
    }

    fn end(&mut self, exchange: &mut dyn DistributedOptimizer) -> Result<(), Failure> {
        match self.config.min_workers {
            Some(_) => Ok(self.announce(exchange, &mut Vec::new())?),
            None => Ok(()),
        }
    }

    /// Other processes notice through the transport that this one has left.
    fn abandon(&self) {}
}

/// A score, and the bits of its loss: JSON has no infinity.
type Bits = (u64, Score);

fn to_bits(score: Score) -> Bits {
    (score.loss.to_bits(), Score { loss: 0.0, ..score })
}

fn from_bits((loss, score): Bits) -> Score {
    Score { loss: f64::from_bits(loss), ..score }
}

/// Writes a message between workers, as JSON.
fn write<T: serde::Serialize>(value: &T) -> Result<Vec<u8>, TrainError> {
    serde_json::to_vec(value).map_err(|error| TrainError::Config(error.to_string()))
}

fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, TrainError> {
    serde_json::from_slice(bytes).map_err(|error| {
        TrainError::Config(format!("a message of another worker cannot be read: {error}"))
    })
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

fn floats_in(bytes: &[u8]) -> impl Iterator<Item = f32> {
    let (words, _) = bytes.as_chunks::<4>();
    words.iter().map(|word| f32::from_le_bytes(*word))
}
