//! From a configuration to running workers, and from what they tell to a record.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::Instant;

use gradwire::State;
use gradwire_exchange::{
    Exchange, ExchangeError, Launched, Policy, Setup, digest, in_process, launch,
};

use super::clip::Clip;
use super::exam::Exam;
use super::gate::Gate;
use super::learner::{Learner, check_data};
use super::meeting::Meeting;
use super::recorder::Recorder;
use super::worker::{Event, Failure, GO_ON, Shared, Worker};
use super::{Evaluation, Metric, Observer, RunConfig, RunOptions, RunRecord, TrainError};
use crate::checkpoint::{self, Checkpoint, Record};
use crate::models::Score;

/// Back-propagation through a deep network recurses.
const STACK_BYTES: usize = 16 << 20;

/// What becomes of a worker's end of the exchange before it is used; tests break it here.
pub(super) type Wrap<'a> = &'a dyn Fn(usize, Box<dyn Exchange>) -> Box<dyn Exchange>;

/// [`super::run`], with each worker's exchange wrapped.
pub(super) fn run(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    wrap: Wrap<'_>,
) -> Result<RunRecord, TrainError> {
    validate(config)?;
    let start = Instant::now();
    let mut learners = (0..config.workers)
        .map(|rank| Learner::new(config, rank))
        .collect::<Result<Vec<_>, _>>()?;
    let checkpoint = options.resume.as_ref().map(|path| {
        Checkpoint::read(path, config)
            .map_err(|source| TrainError::Resume { path: path.clone(), source })
    });
    let run = Run { config, observer, options, checkpoint: checkpoint.transpose()?, start };
    let parameters = run.parameters(&mut learners)?;
    let tensors = learners[0].tensors().to_vec();
    let policy = Policy { raw_below: config.raw_below, ..Policy::new(&config.compressor) };
    let setup = Setup {
        strategy: config.strategy,
        workers: config.workers,
        policy: &policy,
        tensors: &tensors,
        seed: config.seed,
        initial: &parameters,
    };
    let transport = in_process::Options { deadline: config.deadline, link: options.link };
    let launched =
        launch(&setup, transport, || config.optimizer.build(&tensors, config.weight_decay))
            .map_err(TrainError::Servers)?;
    let ends = Ends { learners, launched, parameters, wrap };
    let (recorder, parameters) = run.train(ends)?;
    Ok(run.record(recorder, &policy, &tensors, &parameters))
}

fn validate(config: &RunConfig) -> Result<(), TrainError> {
    let refuse = |reason: &str| Err(TrainError::Config(reason.to_owned()));
    if config.workers == 0 {
        return refuse("a run needs at least one worker");
    }
    if config.steps == 0 || config.batch == 0 {
        return refuse("a run needs at least one step, and one example per worker and step");
    }
    if config.evaluate_every > 0 && config.evaluate_at_most == 0 {
        return refuse(
            "an evaluation needs at least one image or token; evaluate at the end only instead",
        );
    }
    if !(config.weight_decay >= 0.0 && config.weight_decay.is_finite()) {
        return refuse("the weight decay must be a number that is not negative");
    }
    if config.clip.is_some_and(|norm| !(norm > 0.0 && norm.is_finite())) {
        return refuse("the bound on the gradient's norm must be a positive number");
    }
    check_data(config)
}

/// A run and what it was asked for.
struct Run<'a> {
    config: &'a RunConfig,
    observer: &'a dyn Observer,
    options: &'a RunOptions,
    checkpoint: Option<Checkpoint>,
    start: Instant,
}

/// What the workers are made of.
struct Ends<'a> {
    learners: Vec<Learner<'a>>,
    launched: Launched,
    parameters: Vec<Vec<f32>>,
    wrap: Wrap<'a>,
}

impl Run<'_> {
    /// The parameters all workers begin with.
    fn parameters(&self, learners: &mut [Learner<'_>]) -> Result<Vec<Vec<f32>>, TrainError> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(learners[0].initial_parameters(self.config.seed));
        };
        // Every worker gets the first one's statistics; only the first one's are ever used.
        let mut parameters = Vec::new();
        for learner in learners {
            parameters =
                checkpoint.restore_model(learner).map_err(|source| self.not_resumed(source))?;
        }
        Ok(parameters)
    }

    fn not_resumed(&self, source: gradwire::StateError) -> TrainError {
        let path = self.options.resume.clone().unwrap_or_default();
        TrainError::Resume { path, source }
    }

    fn first_step(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.step)
    }

    /// Runs all workers to their end. Returns what they measured, and the final parameters.
    fn train(&self, ends: Ends<'_>) -> Result<(Recorder, Vec<Vec<f32>>), TrainError> {
        let config = self.config;
        let shared = Shared {
            config,
            observer: self.observer,
            save_every: self.options.save.as_ref().map(|save| save.every),
            gate: Gate::new(available_parallelism().map_or(1, usize::from)),
            meeting: Meeting::new(config.workers),
            exam: Exam::default(),
            stop_at: AtomicU64::new(GO_ON),
        };
        let cause = Cause::default();
        let first = self.first_step();
        let Ends { learners, launched, parameters, wrap } = ends;
        let (events, received) = channel();
        let mut workers = Vec::with_capacity(config.workers);
        for (rank, (learner, exchange)) in learners.into_iter().zip(launched.workers).enumerate() {
            workers.push(Worker {
                rank,
                shared: &shared,
                clip: Clip::new(config.clip, learner.tensors()),
                learner,
                gradients: parameters.iter().map(|values| vec![0.0; values.len()]).collect(),
                parameters: parameters.clone(),
                exchange: wrap(rank, exchange),
                events: events.clone(),
            });
        }
        drop((events, parameters));
        let states: Vec<Option<State>> = (0..config.workers)
            .map(|rank| self.checkpoint.as_ref().map(|checkpoint| checkpoint.worker(rank)))
            .collect();

        let (recorder, mut parameters) = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(config.workers);
            for (worker, state) in workers.into_iter().zip(states) {
                let (cause, name) = (&cause, format!("worker {}", worker.rank));
                let spawned = thread::Builder::new()
                    .name(name)
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work(worker, state, first, cause));
                match spawned {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let reason = format!("a worker's thread cannot start: {error}");
                        cause.note(Failure::Error(TrainError::Config(reason)));
                        shared.abandon();
                    }
                }
            }
            let recorder = self.listen(&received, &cause, &shared);
            let parameters: Vec<_> =
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
            (recorder, parameters)
        });
        if let Err(error) = launched.servers.join() {
            cause.note(Failure::Error(TrainError::Servers(error)));
        }
        if let Some(failure) = cause.take() {
            return Err(self.explain(failure));
        }
        Ok((recorder, parameters.swap_remove(0)))
    }

    /// Keeps the record until the last worker has ended.
    fn listen(
        &self,
        events: &Receiver<(usize, Event)>,
        cause: &Cause,
        shared: &Shared<'_>,
    ) -> Recorder {
        let Record { trace, evaluations, .. } = self.past();
        let mut recorder = Recorder::new(self.config.workers, trace, evaluations);
        let mut states = Vec::new();
        for (rank, event) in events {
            match event {
                Event::Step(sample, next) => {
                    for record in recorder.add(rank, sample, next) {
                        self.observer.step(record, self.config.steps);
                    }
                }
                Event::Evaluated(step, score) => {
                    let evaluation = evaluation(step, self.metric(), score);
                    self.observer.evaluated(&evaluation);
                    recorder.evaluations.push(evaluation);
                }
                Event::Saved(step, state) => {
                    states.push(*state);
                    if states.len() == self.config.workers
                        && let Err(error) = self.save(step, &mut states, &recorder)
                    {
                        cause.note(Failure::Error(error));
                        shared.abandon();
                    }
                }
            }
        }
        recorder
    }

    /// Writes the workers' states as one checkpoint.
    fn save(
        &self,
        step: u64,
        states: &mut Vec<State>,
        recorder: &Recorder,
    ) -> Result<(), TrainError> {
        let Some(save) = &self.options.save else { return Ok(()) };
        let mut whole = State::new();
        states.drain(..).for_each(|state| whole.merge("", state));
        let record = Record {
            seconds: self.seconds(),
            trace: recorder.trace.clone(),
            evaluations: recorder.evaluations.clone(),
        };
        checkpoint::write(&save.path, whole, self.config, step, &record)
            .map_err(|source| TrainError::Save { path: save.path.clone(), source })
    }

    /// What the checkpoint has on record.
    fn past(&self) -> Record {
        self.checkpoint.as_ref().map_or_else(Record::default, |checkpoint| Record {
            seconds: checkpoint.record.seconds,
            trace: checkpoint.record.trace.clone(),
            evaluations: checkpoint.record.evaluations.clone(),
        })
    }

    fn seconds(&self) -> f64 {
        let before = self.checkpoint.as_ref().map_or(0.0, |checkpoint| checkpoint.record.seconds);
        before + self.start.elapsed().as_secs_f64()
    }

    fn metric(&self) -> Metric {
        Metric::of(&self.config.data)
    }

    fn explain(&self, failure: Failure) -> TrainError {
        match failure {
            Failure::Error(error) => error,
            Failure::Stopped(step) => {
                let consistent = self.config.backups() == 0;
                let save = self.options.save.as_ref().filter(|_| consistent);
                TrainError::Stopped { step, saved: save.map(|save| save.path.clone()) }
            }
            Failure::Cancelled => {
                TrainError::Config("the run was cancelled without a reason".to_owned())
            }
        }
    }

    fn record(
        &self,
        recorder: Recorder,
        policy: &Policy,
        tensors: &[gradwire::Tensor],
        parameters: &[Vec<f32>],
    ) -> RunRecord {
        let config = self.config;
        let compressed = tensors.iter().filter(|tensor| !policy.is_raw(tensor));
        let sum = |value: fn(&super::StepRecord) -> f64| recorder.trace.iter().map(value).sum();
        RunRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            model: config.model.to_string(),
            parameters: tensors.iter().map(gradwire::Tensor::elements).sum(),
            tensors: tensors.len(),
            largest_tensor: tensors.iter().map(gradwire::Tensor::elements).max().unwrap_or(0),
            compressed_parameters: compressed.map(gradwire::Tensor::elements).sum(),
            data: config.data.name.clone(),
            data_checksum: config.data.checksum.clone(),
            compressor: config.compressor.to_string(),
            strategy: config.strategy.to_string(),
            workers: config.workers,
            steps: config.steps,
            batch: config.batch,
            optimizer: config.optimizer.to_string(),
            weight_decay: decimal(config.weight_decay),
            learning_rate: config.learning_rate.to_string(),
            augment: config.augment,
            seed: config.seed,
            clip: config.clip.map(decimal),
            metric: self.metric(),
            quality: recorder.evaluations.last().map_or(0.0, |evaluation| evaluation.quality),
            bytes_up: sum(|record| record.bytes_up),
            bytes_down: sum(|record| record.bytes_down),
            digest: format!("{:016x}", digest(parameters)),
            seconds: self.seconds(),
            trace: recorder.trace,
            evaluations: recorder.evaluations,
        }
    }
}

fn evaluation(step: u64, metric: Metric, score: Score) -> Evaluation {
    let examples = score.examples as f64;
    Evaluation {
        step,
        metric,
        quality: match metric {
            Metric::Accuracy => score.correct as f64 / examples,
            // An infinite number could not be written as JSON.
            Metric::Perplexity => (score.loss / examples).exp().min(f64::MAX),
        },
        loss: score.loss / examples,
        examples: score.examples,
    }
}

/// A worker's thread, from its first step to its last. Returns its parameters.
fn work(mut worker: Worker<'_>, state: Option<State>, first: u64, cause: &Cause) -> Vec<Vec<f32>> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Some(state) = &state {
            let restored = worker.exchange.restore(state);
            restored.map_err(|source| TrainError::Exchange { rank: worker.rank, source })?;
        }
        worker.train(first)
    }));
    let failure = match result {
        Ok(Ok(())) => return std::mem::take(&mut worker.parameters),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let message = message(panic.as_ref());
            Failure::Error(TrainError::Panicked { rank: worker.rank, message })
        }
    };
    // Before the exchange is dropped, which makes others fail in turn.
    cause.note(failure);
    worker.shared.meeting.cancel();
    Vec::new()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Why the run failed: the first failure that is not merely the loss of another rank.
#[derive(Default)]
struct Cause(Mutex<Option<Failure>>);

impl Cause {
    fn note(&self, failure: Failure) {
        let mut cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let better = cause.as_ref().is_none_or(|cause| follows(cause) && !follows(&failure));
        if better && !matches!(failure, Failure::Cancelled) {
            *cause = Some(failure);
        }
    }

    fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Whether a failure follows from another rank's.
fn follows(failure: &Failure) -> bool {
    let Failure::Error(TrainError::Exchange { source, .. } | TrainError::Servers(source)) = failure
    else {
        return false;
    };
    matches!(source, ExchangeError::PeerLost { .. })
}

/// The `f64` that prints as the `f32` does: 0.0001 and not 0.00009999999747378752.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
