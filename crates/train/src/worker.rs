//! One worker: its replica, its shard of the data, its end of the exchange.

use std::time::Instant;

use cpu_time::ThreadTime;
use gradwire::State;
use gradwire_exchange::{DistributedOptimizer, ExchangeError, StepInput, StepReport, digest};
use gradwire_models::tasks::Replica;

use crate::checkpoint::{self, PARAMETERS, save_values};
use crate::clip::{self, Clip};
use crate::config::RunConfig;
use crate::coordination::{Coordinator, Participant};
use crate::diagnosis::Diagnoser;
use crate::error::TrainError;
use crate::events::{Event, Events, SavePoint};
use crate::failure::Failure;
use crate::gradients::{non_finite, penalise};
use crate::local::LocalSteps;
use crate::micro_batches::MicroBatches;
use crate::options::Save;
use crate::permits::Permits;
use crate::record::{Sample, StepRecord};
use crate::resolution::Resolution;
use crate::svrg::Svrg;

/// The state that the workers of a process share.
pub(crate) struct Shared<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) resolution: &'a Resolution<'a>,
    /// When checkpoints are written, if any are.
    pub(crate) save: Option<&'a Save>,
    /// Whether the state after each exchange is kept in memory.
    pub(crate) keeps_state: bool,
    pub(crate) permits: Permits,
}

/// One worker.
pub(crate) struct Worker<'a> {
    pub(crate) rank: usize,
    shared: &'a Shared<'a>,
    replica: Box<dyn Replica + 'a>,
    clip: Clip,
    pub(crate) parameters: Vec<Vec<f32>>,
    /// The gradients of a step, or their sum over a round; at the end of the round, the values to
    /// exchange.
    gradients: Vec<Vec<f32>>,
    /// `Some` if the worker sends updates or weights.
    local: Option<LocalSteps>,
    /// `Some` if gradients are variance-reduced.
    svrg: Option<Svrg>,
    /// `Some` if the compressor needs the gradients of parts of a batch.
    micro_batches: Option<MicroBatches>,
    /// `Some` if this worker's gradients and residuals are diagnosed.
    diagnoser: Option<Diagnoser>,
    exchange: Box<dyn DistributedOptimizer>,
    coordinator: Box<dyn Coordinator + 'a>,
    /// The point at which this worker last saved, in this process.
    saved: Option<SavePoint>,
    events: Events,
}

impl<'a> Worker<'a> {
    /// A worker before its first step.
    pub(crate) fn new(
        rank: usize,
        shared: &'a Shared<'a>,
        replica: Box<dyn Replica + 'a>,
        exchange: Box<dyn DistributedOptimizer>,
        coordinator: Box<dyn Coordinator + 'a>,
        events: Events,
    ) -> Self {
        let Resolution { tensors, parameters, .. } = shared.resolution;
        let config = shared.config;
        let local = shared.resolution.local_steps(config);
        Self {
            rank,
            shared,
            diagnoser: (rank == 0 && config.diagnose_every > 0).then(|| Diagnoser::new(tensors)),
            clip: Clip::new(config.clip, tensors),
            // The updates of local steps have no parts.
            micro_batches: (exchange.needs_squares() && local.is_none())
                .then(|| MicroBatches::new(tensors)),
            replica,
            gradients: parameters.iter().map(|values| vec![0.0; values.len()]).collect(),
            parameters: parameters.clone(),
            local,
            svrg: (config.svrg > 0).then(|| Svrg::new(config.svrg, parameters)),
            exchange,
            coordinator,
            saved: None,
            events,
        }
    }

    /// Restores the state that [`save`](Self::save) wrote, except parameters and replica.
    pub(crate) fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        self.exchange.restore(state)?;
        if let Some(diagnoser) = &mut self.diagnoser {
            diagnoser.restore(state)?;
        }
        if !self.shared.config.exchange.keeps_replicas_identical() {
            self.parameters = checkpoint::values_of(PARAMETERS, self.replica.tensors(), state)?;
        }
        if let Some(svrg) = &mut self.svrg {
            svrg.restore(self.replica.tensors(), state)?;
        }
        if let Some(local) = &mut self.local {
            local.restore(&self.parameters, state)?;
        }
        Ok(())
    }

    /// Trains from step `first` to the last.
    pub(crate) fn train(&mut self, first: u64) -> Result<(), Failure> {
        let Shared { config, resolution, .. } = self.shared;
        let Resolution { rounds, participation, .. } = resolution;
        let mut step = first;
        while step < config.steps {
            self.follow_stop(step)?;
            let end = rounds.end(step);
            let takes_part = participation.takes_part(self.rank, end - 1);
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
            sample.record.wall = start.elapsed().as_secs_f64();
            step = next;
            self.coordinator.report(sample, step);
            if boundary {
                self.after_exchange(step)?;
            }
        }
        self.coordinator.end(&mut *self.exchange)
    }

    fn sample(&self, step: u64) -> Sample {
        let config = self.shared.config;
        let learning_rate = config.learning_rate.at(step, config.steps, config.workers);
        Sample {
            record: StepRecord { step, learning_rate, ..StepRecord::default() },
            took_part: false,
        }
    }

    /// Ends the worker if all workers agree to stop.
    fn follow_stop(&mut self, step: u64) -> Result<(), Failure> {
        let (config, rounds) = (self.shared.config, &self.shared.resolution.rounds);
        let round = rounds.start(step)..rounds.end(step);
        if !self.coordinator.stops(step, round, &mut *self.exchange)? {
            return Ok(());
        }
        let to_file = self.shared.save.is_some();
        // With backup workers, workers may be at different steps, so their states do not form a
        // checkpoint.
        if (to_file || self.shared.keeps_state) && config.backups() == 0 {
            self.save(SavePoint { step, to_file })?;
        }
        Err(Failure::Stopped(step))
    }

    /// Adds the gradients of the worker's batch; if it trains locally, takes a local step.
    fn compute(&mut self, sample: &mut Sample) -> Result<(), TrainError> {
        if self.svrg.is_some() {
            self.renew_snapshot(sample)?;
        }
        let early = self.exchange.gradient_sink(sample.record.step);
        let permit = self.shared.permits.acquire();
        self.replica.load_batch(sample.record.step);
        let start = ThreadTime::now();
        let Self { replica, parameters, local, micro_batches, svrg, .. } = self;
        let replica = &mut **replica;
        let parameters = local.as_ref().map_or(&*parameters, |local| &local.parameters);
        let add = |sum: &mut [Vec<f32>]| match (micro_batches.as_mut(), svrg) {
            (Some(batches), _) => {
                batches.add_gradients(replica, sample.record.step, parameters, sum)
            }
            (_, Some(svrg)) => svrg.add_gradients(replica, sample.record.step, parameters, sum),
            (None, None) => replica.add_gradients(
                sample.record.step,
                0..replica.parts(),
                parameters,
                sum,
                early.as_ref(),
            ),
        };
        let (loss, factor) = self.clip.bounded(&mut self.gradients, add);
        micro_batches.iter_mut().for_each(|batches| batches.scale(factor));
        if self.shared.config.l1 > 0.0 {
            penalise(&mut self.gradients, parameters, self.shared.config.l1);
        }
        sample.record.compute += start.elapsed().as_secs_f64();
        if !loss.is_finite() {
            let (rank, step) = (self.rank, sample.record.step);
            let what = format!("the training loss of worker {rank} is {loss} at step {step}");
            return Err(self.shared.config.diverged(what));
        }
        (sample.record.loss, sample.took_part) = (loss, true);
        self.check_finite("gradient", &self.gradients, sample.record.step)?;
        self.micro_batches.iter_mut().for_each(MicroBatches::add_to_round);
        if let Some(local) = &mut self.local {
            let start = ThreadTime::now();
            local.update(sample.record.learning_rate as f32, &self.gradients);
            sample.record.update = start.elapsed().as_secs_f64();
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

    /// Takes a snapshot together with all other workers, if one is due.
    fn renew_snapshot(&mut self, sample: &mut Sample) -> Result<(), TrainError> {
        let step = sample.record.step;
        let Some(mut svrg) = self.svrg.take_if(|svrg| svrg.is_due(step)) else { return Ok(()) };
        let start = ThreadTime::now();
        svrg.renew(&mut *self.replica, &self.parameters);
        sample.record.compute += start.elapsed().as_secs_f64();
        self.check_finite("gradient", &svrg.mean, step)?;
        let traffic = self.exchange.control().exact_mean(step, &mut svrg.mean);
        let traffic = traffic.map_err(|source| self.failed(source))?;
        self.svrg = Some(svrg);
        sample.record.bytes_up += traffic.bytes_up as f64;
        sample.record.bytes_down += traffic.bytes_down as f64;
        Ok(())
    }

    /// Refuses values, one array for each tensor, that are not finite.
    fn check_finite(&self, what: &str, values: &[Vec<f32>], step: u64) -> Result<(), TrainError> {
        for (tensor, values) in self.replica.tensors().iter().zip(values) {
            if let Some(value) = non_finite(values) {
                let (name, rank) = (tensor.name(), self.rank);
                return Err(self.shared.config.diverged(format!(
                    "the {what} of '{name}' at worker {rank} has {value} at step {step}"
                )));
            }
        }
        Ok(())
    }

    /// Ends a round: exchanges the sum of its gradients, or the result of its local steps.
    fn exchange(&mut self, sample: &mut Sample) -> Result<StepReport, TrainError> {
        if let Some(local) = &self.local {
            local.write(&self.parameters, &mut self.gradients);
        }
        if self.shared.config.median_clip {
            self.clip_to_median(sample)?;
        }
        let rate = sample.record.learning_rate as f32;
        let input = StepInput {
            squares: self.micro_batches.as_ref().map(|batches| &batches.round[..]),
            shift: self.svrg.as_ref().map(|svrg| &svrg.mean[..]),
            ..StepInput::new(sample.record.step, rate, &self.gradients)
        };
        let stepped = self.exchange.step(input, &mut self.parameters);
        let report = stepped.map_err(|source| self.failed(source))?;
        self.micro_batches.iter_mut().for_each(MicroBatches::begin_round);
        if let Some(local) = &mut self.local {
            local.follow(&self.parameters, &*self.exchange);
        }
        self.diagnose(sample.record.step + 1);
        self.gradients.iter_mut().for_each(|gradient| gradient.fill(0.0));
        sample.record.count(&report);
        for (index, tensor) in self.replica.tensors().iter().enumerate() {
            let raw = self.shared.resolution.policy.is_raw(tensor);
            sample.record.sent.count(self.exchange.sent(index), tensor.elements(), raw);
        }
        Ok(report)
    }

    /// Scales this worker's update down to the median norm.
    fn clip_to_median(&mut self, sample: &mut Sample) -> Result<(), TrainError> {
        self.check_finite("update", &self.gradients, sample.record.step)?;
        let (workers, step) = (self.shared.config.workers, sample.record.step);
        let control = &mut self.exchange.control();
        let clipped = clip::to_median(&mut self.gradients, self.rank, workers, step, control);
        let traffic = clipped.map_err(|source| self.failed(source))?;
        sample.record.bytes_up += traffic.bytes_up as f64;
        sample.record.bytes_down += traffic.bytes_down as f64;
        Ok(())
    }

    /// Diagnoses the last exchange and the residuals.
    fn diagnose(&mut self, done: u64) {
        let Shared { config, resolution, .. } = self.shared;
        let Resolution { rounds, participation, .. } = resolution;
        let Some(diagnoser) = &mut self.diagnoser else { return };
        diagnoser.count(&*self.exchange);
        let before = rounds.start(done - 1);
        let last = done == config.steps;
        let due = last || due(before, done, config.diagnose_every);
        if diagnoser.is_due(due, participation.takes_part(self.rank, done - 1)) {
            let diagnosis = diagnoser.diagnose(done, &self.gradients, &*self.exchange);
            self.events.tell(self.rank, Event::Diagnosed(Box::new(diagnosis)));
        }
    }

    /// Checks, evaluates and saves if due, after `done` steps and an exchange.
    fn after_exchange(&mut self, done: u64) -> Result<(), Failure> {
        let config = self.shared.config;
        let last = done == config.steps;
        let before = self.shared.resolution.rounds.start(done - 1);
        let due = |interval| due(before, done, interval);
        if due(config.check_every) {
            let checked = self.exchange.control().check(done - 1, &self.parameters);
            checked.map_err(|source| self.failed(source))?;
        }
        if self.rank == 0
            && config.resumes_exactly()
            && DIGESTED.into_iter().any(|at| (before + 1..=done).contains(&at))
        {
            let digest = format!("{:016x}", digest(&self.parameters));
            self.events.tell(0, Event::Digested(done, digest));
        }
        if last || due(config.evaluate_every) {
            self.evaluate(done, last)?;
        }
        let to_file =
            self.shared.save.is_some_and(|save| if last { save.at_end } else { due(save.every) });
        if to_file || self.shared.keeps_state && !last {
            self.save(SavePoint { step: done, to_file })?;
        }
        Ok(())
    }

    /// Takes part in the evaluation of the global model, with the batch-norm statistics of the
    /// first worker that took part in the round. Stale statistics are estimated anew.
    fn evaluate(&mut self, done: u64, last: bool) -> Result<(), Failure> {
        let (config, participation) = (self.shared.config, &self.shared.resolution.participation);
        let all = self.replica.test_examples();
        let examples = if last { all } else { config.evaluate_at_most.min(all) };
        let first = (0..config.workers).find(|&rank| participation.takes_part(rank, done - 1));
        if first == Some(self.rank) && self.has_stale_statistics() {
            let permit = self.shared.permits.acquire();
            let steps = done.saturating_sub(ESTIMATED)..done;
            self.replica.estimate_statistics(steps, &self.parameters);
            drop(permit);
        }
        let Self { replica, parameters, exchange, coordinator, .. } = self;
        let worker = Participant { replica: &**replica, parameters, exchange: &mut **exchange };
        let Some(score) = coordinator.evaluate(examples, first, worker)? else { return Ok(()) };
        if !score.loss.is_finite() {
            let what = format!("the test loss is {} after {done} steps", score.loss);
            return Err(config.diverged(what).into());
        }
        self.events.tell(self.rank, Event::Evaluated(done, score));
        Ok(())
    }

    /// Whether the running statistics of batch normalisation are out of date for the common
    /// parameters. Local steps had other parameters, and a worker that is often absent has seen few
    /// recent batches.
    fn has_stale_statistics(&self) -> bool {
        let config = self.shared.config;
        let stale = config.send.is_local() || config.participation < 1.0;
        stale && !self.replica.statistics().is_empty()
    }

    /// Saves everything a resumed worker needs, in a file or only in memory; at most once per step.
    /// A stop may ask again; all workers then skip it, because all save after the same steps.
    fn save(&mut self, point: SavePoint) -> Result<(), Failure> {
        if self.saved.is_some_and(|saved| saved.step == point.step && saved >= point) {
            return Ok(());
        }
        self.saved = Some(point);
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
            svrg.save(self.replica.tensors(), &mut own);
        }
        if !config.exchange.keeps_replicas_identical() {
            save_values(PARAMETERS, self.replica.tensors(), &self.parameters, &mut own);
        }
        let mut state = State::new();
        state.merge(&checkpoint::worker_prefix(self.rank), own);
        state.set_number(&checkpoint::saved_at(self.rank), point.step);
        self.replica.save(&mut state);
        if self.rank == 0 {
            save_values(PARAMETERS, self.replica.tensors(), &self.parameters, &mut state);
        }
        self.coordinator.save(point, state, &mut *self.exchange)
    }

    /// An error of this worker's exchange.
    pub(crate) fn failed(&self, source: ExchangeError) -> TrainError {
        TrainError::Exchange { rank: self.rank, source }
    }

    /// Ends the other workers of the process, because this one has failed.
    pub(crate) fn abandon(&self) {
        self.coordinator.abandon();
    }
}

/// The number of last steps whose batches re-estimate the statistics of batch normalisation.
const ESTIMATED: u64 = 20;

/// Numbers of steps after which the parameters' digest is recorded.
const DIGESTED: [u64; 3] = [10, 100, 1000];

/// Whether a multiple of `interval` lies between the exchange after `before` steps and this one,
/// after `done`. Never for an interval of 0.
fn due(before: u64, done: u64, interval: u64) -> bool {
    interval > 0 && done / interval > before / interval
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
}
