//! One worker: its replica, its share of the data, its end of the exchange.

use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use cpu_time::ThreadTime;
use gradwire::State;
use gradwire_exchange::{DistributedOptimizer, ExchangeError, Participation, Policy, StepReport};

use super::clip::Clip;
use super::company::Company;
use super::diagnosis::{Diagnoser, Diagnosis};
use super::gate::Gate;
use super::learner::Learner;
use super::local::Local;
use super::parts::Parts;
use super::recorder::Sample;
use super::rounds::Rounds;
use super::svrg::Svrg;
use super::{Observer, RunConfig, TrainError};
use crate::checkpoint;
use crate::plan::position_bits;
use gradwire_models::models::Score;

/// What a worker tells the thread that keeps the record.
pub(super) enum Event {
    /// It has done a step, and takes this one next.
    Step(Sample, u64),
    /// The evaluation after so many steps is complete.
    Evaluated(u64, Score),
    /// The first worker has looked at its gradients and residuals.
    Diagnosed(Box<Diagnosis>),
    /// Its state after so many steps.
    Saved(u64, Box<State>),
}

/// Why a worker ends early.
pub(super) enum Failure {
    /// Something is wrong here.
    Error(TrainError),
    /// Another worker has failed, and has said why.
    Cancelled,
    /// The run was asked to stop, after so many steps.
    Stopped(u64),
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Failure::Error(error)
    }
}

/// What the workers of a run share.
pub(super) struct Shared<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) observer: &'a dyn Observer,
    pub(super) rounds: &'a Rounds,
    pub(super) shares: &'a Participation,
    pub(super) policy: &'a Policy,
    /// Steps between checkpoints; 0: none at all. The last step is always saved then.
    pub(super) save_every: Option<u64>,
    pub(super) gate: Gate,
    pub(super) company: Company,
}

/// One worker's own things.
pub(super) struct Worker<'a> {
    pub(super) rank: usize,
    pub(super) shared: &'a Shared<'a>,
    pub(super) learner: Learner<'a>,
    pub(super) clip: Clip,
    pub(super) parameters: Vec<Vec<f32>>,
    /// The gradients of a step, or summed over a round; on their way, what is exchanged.
    pub(super) gradients: Vec<Vec<f32>>,
    /// Where the worker trains on its own between two rounds.
    pub(super) local: Option<Local>,
    /// Where gradients are variance-reduced.
    pub(super) svrg: Option<Svrg>,
    /// Where the compressor goes by the parts of batches.
    pub(super) parts: Option<Parts>,
    /// Where this worker looks at what it sends and keeps.
    pub(super) diagnoser: Option<Diagnoser>,
    pub(super) exchange: Box<dyn DistributedOptimizer>,
    /// Steps that the first worker, in another process, has not been told of.
    pub(super) unsent: Vec<(Sample, u64)>,
    /// Rounds begun in this process.
    pub(super) rounds_begun: u64,
    pub(super) events: Sender<(usize, Event)>,
}

impl Worker<'_> {
    /// Trains from step `first` to the last.
    pub(super) fn train(&mut self, first: u64) -> Result<(), Failure> {
        let Shared { config, rounds, shares, .. } = self.shared;
        let mut step = first;
        while step < config.steps {
            self.follow_stop(step)?;
            let end = rounds.end(step);
            let takes_part = shares.takes_part(self.rank, end - 1);
            let start = Instant::now();
            let mut sample = self.sample(step);
            if takes_part {
                self.compute(&mut sample)?;
            }
            let mut next = step + 1;
            let boundary = next == end;
            if boundary {
                let report = self.exchange(&mut sample)?;
                for _ in 0..report.skipped {
                    next = rounds.end(next.min(config.steps - 1));
                }
            }
            sample.wall = start.elapsed().as_secs_f64();
            step = next;
            match self.shared.company {
                Company::Apart if self.rank > 0 => self.unsent.push((sample, step)),
                _ => self.tell(Event::Step(sample, step)),
            }
            if boundary {
                self.after_exchange(step)?;
            }
        }
        Ok(())
    }

    fn sample(&self, step: u64) -> Sample {
        let config = self.shared.config;
        let learning_rate = config.learning_rate.at(step, config.steps, config.workers);
        Sample { step, learning_rate, ..Sample::default() }
    }

    /// Ends the worker where all agree to stop.
    fn follow_stop(&mut self, step: u64) -> Result<(), Failure> {
        let Shared { config, observer, rounds, company, .. } = self.shared;
        let stops = match company {
            Company::Here(here) => {
                let asked = self.rank == 0 && observer.stop();
                here.follow_stop(step, rounds.end(step), asked)?
            }
            Company::Apart => self.agree_to_stop(step)?,
        };
        if !stops {
            return Ok(());
        }
        // With backup workers the others may be elsewhere, and their states do not fit together.
        if self.shared.save_every.is_some() && config.backups() == 0 {
            self.save(step)?;
        }
        Err(Failure::Stopped(step))
    }

    /// Adds the gradients of the worker's batch; a worker on its own takes a step by them.
    fn compute(&mut self, sample: &mut Sample) -> Result<(), TrainError> {
        if self.svrg.is_some() {
            self.renew_snapshot(sample)?;
        }
        let early = self.exchange.early(sample.step);
        let permit = self.shared.gate.enter();
        self.learner.prepare(sample.step);
        let start = ThreadTime::now();
        let Self { learner, parameters, local, parts, svrg, .. } = self;
        let parameters = local.as_ref().map_or(&*parameters, |local| &local.parameters);
        let add = |sum: &mut [Vec<f32>]| match (parts.as_mut(), svrg) {
            (Some(parts), _) => parts.add_gradients(learner, sample.step, parameters, sum),
            (_, Some(svrg)) => svrg.add_gradients(learner, sample.step, parameters, sum),
            (None, None) => {
                learner.add_gradients_early(sample.step, parameters, sum, early.as_ref())
            }
        };
        let (loss, factor) = self.clip.bounded(&mut self.gradients, add);
        parts.iter_mut().for_each(|parts| parts.scale(factor));
        if self.shared.config.l1 > 0.0 {
            penalise(&mut self.gradients, parameters, self.shared.config.l1);
        }
        sample.compute += start.elapsed().as_secs_f64();
        if !loss.is_finite() {
            return Err(TrainError::Loss { rank: self.rank, step: sample.step, loss });
        }
        sample.loss = Some(loss);
        self.check_gradients(sample.step)?;
        if let Some(parts) = &self.parts {
            self.exchange.observe(&parts.squares).map_err(|source| self.failed(source))?;
        }
        if let Some(local) = &mut self.local {
            let start = ThreadTime::now();
            local.update(sample.learning_rate as f32, &self.gradients);
            sample.update = start.elapsed().as_secs_f64();
            self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        }
        drop(permit);
        if let Some(straggler) = self.shared.config.straggler
            && straggler.worker == self.rank
        {
            std::thread::sleep(straggler.delay);
        }
        Ok(())
    }

    /// Takes a snapshot with all others, where it is time.
    fn renew_snapshot(&mut self, sample: &mut Sample) -> Result<(), TrainError> {
        let Self { svrg, learner, parameters, exchange, .. } = self;
        let Some(svrg) = svrg else { return Ok(()) };
        let start = ThreadTime::now();
        let traffic = svrg.renew(sample.step, learner, parameters, &mut **exchange);
        let traffic = traffic.map_err(|source| TrainError::Exchange { rank: self.rank, source })?;
        sample.compute += start.elapsed().as_secs_f64();
        sample.bytes_up += traffic.bytes_up;
        sample.bytes_down += traffic.bytes_down;
        Ok(())
    }

    fn check_gradients(&self, step: u64) -> Result<(), TrainError> {
        for (tensor, gradient) in self.learner.tensors().iter().zip(&self.gradients) {
            if let Some(value) = non_finite(gradient) {
                let tensor = tensor.name().to_owned();
                return Err(TrainError::Gradient { tensor, rank: self.rank, step, value });
            }
        }
        Ok(())
    }

    /// Ends a round: exchanges what it has brought.
    fn exchange(&mut self, sample: &mut Sample) -> Result<StepReport, TrainError> {
        if let Some(local) = &self.local {
            local.write(&self.parameters, &mut self.gradients);
        }
        let rate = sample.learning_rate as f32;
        let report = self
            .exchange
            .step(sample.step, rate, &self.gradients, &mut self.parameters)
            .map_err(|source| self.failed(source))?;
        if let Some(local) = &mut self.local {
            local.follow(&self.parameters, &*self.exchange);
        }
        self.diagnose(sample.step + 1);
        self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        sample.count(&report);
        for (index, tensor) in self.learner.tensors().iter().enumerate() {
            let raw = self.shared.policy.is_raw(tensor);
            sample.account(self.exchange.sent(index), tensor.elements(), raw);
        }
        Ok(report)
    }

    /// Looks at what has just been exchanged, and at what is left.
    fn diagnose(&mut self, done: u64) {
        let Shared { config, rounds, shares, .. } = self.shared;
        let Some(diagnoser) = &mut self.diagnoser else { return };
        diagnoser.count(&*self.exchange);
        let before = rounds.start(done - 1);
        let last = done == config.steps;
        let due = last || due(before, done, config.diagnose_every);
        // What was not sent has no gradient to be looked at.
        if diagnoser.is_time(due, shares.takes_part(self.rank, done - 1)) {
            let diagnosis = diagnoser.look(done, &self.gradients, &*self.exchange);
            self.tell(Event::Diagnosed(Box::new(diagnosis)));
        }
    }

    /// What is due after `done` steps, an exchange just behind.
    fn after_exchange(&mut self, done: u64) -> Result<(), Failure> {
        let config = self.shared.config;
        let last = done == config.steps;
        let before = self.shared.rounds.start(done - 1);
        let due = |interval| due(before, done, interval);
        if due(config.check_every) {
            let checked = self.exchange.check(done - 1, &self.parameters);
            checked.map_err(|source| self.failed(source))?;
        }
        if last || due(config.evaluate_every) {
            self.evaluate(done, last)?;
        }
        if let Some(interval) = self.shared.save_every
            && (last || due(interval))
        {
            self.save(done)?;
        }
        Ok(())
    }

    /// Takes part in the evaluation of the global model, with the batch-norm statistics of the first of
    /// those who had a part in the round.
    fn evaluate(&mut self, done: u64, last: bool) -> Result<(), Failure> {
        let Shared { config, shares, company, .. } = self.shared;
        let all = self.learner.test_examples();
        let examples = if last { all } else { config.evaluate_at_most.min(all) };
        let first = (0..config.workers).find(|&rank| shares.takes_part(rank, done - 1));
        let score = match company {
            Company::Here(here) => self.evaluate_here(here, examples, first)?,
            Company::Apart => self.evaluate_apart(examples, first)?,
        };
        let Some(score) = score else { return Ok(()) };
        if !score.loss.is_finite() {
            return Err(TrainError::TestLoss { step: done, loss: score.loss }.into());
        }
        self.tell(Event::Evaluated(done, score));
        Ok(())
    }

    /// Hands over everything a resumed worker needs.
    fn save(&mut self, done: u64) -> Result<(), TrainError> {
        let config = self.shared.config;
        let mut own = State::new();
        self.exchange.save(&mut own).map_err(|source| self.failed(source))?;
        if let Some(local) = &self.local {
            local.save(&mut own);
        }
        if let Some(diagnoser) = &self.diagnoser {
            diagnoser.save(&mut own);
        }
        if let Some(svrg) = &self.svrg {
            svrg.save(self.learner.tensors(), &mut own);
        }
        if !config.exchange.keeps_replicas_identical() {
            checkpoint::save_parameters(self.learner.tensors(), &self.parameters, &mut own);
        }
        let mut state = State::new();
        state.merge(&checkpoint::worker_prefix(self.rank), own);
        self.learner.save(&mut state);
        if self.rank == 0 {
            checkpoint::save_parameters(self.learner.tensors(), &self.parameters, &mut state);
        }
        match self.shared.company {
            Company::Here(_) => self.tell(Event::Saved(done, Box::new(state))),
            Company::Apart => self.hand_over(done, &state)?,
        }
        Ok(())
    }

    pub(super) fn failed(&self, source: ExchangeError) -> TrainError {
        TrainError::Exchange { rank: self.rank, source }
    }

    pub(super) fn tell(&self, event: Event) {
        // Nobody listens any more only when the run has failed already.
        let _ = self.events.send((self.rank, event));
    }
}

impl Sample {
    fn count(&mut self, report: &StepReport) {
        let seconds = |time: Duration| time.as_secs_f64();
        self.bytes_up += report.traffic.bytes_up;
        self.bytes_down += report.traffic.bytes_down;
        self.compress = seconds(report.compress);
        self.decompress = seconds(report.decompress);
        self.update += seconds(report.update);
        self.wire = seconds(report.wire);
        self.background = seconds(report.background);
        self.waited = seconds(report.waited);
    }

    /// Counts the elements of a tensor that travelled, and the bits that equation 5 gives their
    /// positions; where all travel, or are known to both ends, there are no positions.
    fn account(&mut self, sent: Option<&[u32]>, elements: usize, raw: bool) {
        let Some(sent) = sent else {
            let count = if raw { &mut self.sent.raw } else { &mut self.sent.dense };
            *count += elements as f64;
            return;
        };
        if !sent.is_empty() {
            let count = sent.len() as f64;
            self.sent.sparse += count;
            self.sent.position_bits += count * position_bits(count / elements as f64);
        }
    }
}

/// Adds the gradient of an ℓ1 penalty; a parameter of 0 has none.
fn penalise(gradients: &mut [Vec<f32>], parameters: &[Vec<f32>], weight: f32) {
    for (gradients, parameters) in gradients.iter_mut().zip(parameters) {
        for (gradient, parameter) in gradients.iter_mut().zip(parameters) {
            let sign = if *parameter == 0.0 { 0.0 } else { parameter.signum() };
            *gradient += weight * sign;
        }
    }
}

/// Whether a multiple of `interval` lies between the exchange after `before` steps and this one, after
/// `done`. Never for an interval of 0.
fn due(before: u64, done: u64, interval: u64) -> bool {
    interval > 0 && done / interval > before / interval
}

/// The first value that is not finite.
fn non_finite(values: &[f32]) -> Option<f32> {
    // One pass of integer operations finds out whether, at memory speed; which is a rare second pass.
    let exponents = |value: &f32| value.to_bits() & 0x7f80_0000;
    let found = values.iter().fold(false, |found, value| found | (exponents(value) == 0x7f80_0000));
    if found { values.iter().copied().find(|value| !value.is_finite()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_fall_on_the_next_exchange() {
        let found = |every: u64, interval, steps: u64| -> Vec<u64> {
            (1..=steps)
                .filter(|done| done % every == 0 || *done == steps)
                .filter(|&done| due((done - 1) / every * every, done, interval))
                .collect()
        };
        assert_eq!(found(1, 3, 10), [3, 6, 9]);
        assert_eq!(found(2, 3, 10), [4, 6, 10]);
        assert_eq!(found(4, 3, 10), [4, 8, 10]);
        assert!(found(1, 0, 10).is_empty());
        assert!(found(1, 20, 10).is_empty());
    }

    #[test]
    fn the_penalty_pulls_towards_zero() {
        let mut gradients = vec![vec![1.0, 1.0, 1.0, 1.0]];
        penalise(&mut gradients, &[vec![2.0, -0.5, 0.0, -0.0]], 0.25);
        assert_eq!(gradients, [[1.25, 0.75, 1.0, 1.0]]);
    }

    #[test]
    fn the_first_value_that_is_no_number_is_found() {
        assert_eq!(non_finite(&[0.0, -1.0, f32::MAX, f32::MIN_POSITIVE / 2.0]), None);
        assert_eq!(non_finite(&[0.0, f32::NEG_INFINITY, f32::NAN]), Some(f32::NEG_INFINITY));
        assert!(non_finite(&[1.0; 100].map(|x| x * f32::NAN)).is_some_and(f32::is_nan));
    }
}
