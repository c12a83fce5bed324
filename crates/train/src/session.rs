//! Runs the workers of a process: their threads, and the record of their events.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::Instant;

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::{DistributedOptimizer, Servers, digest};
use gradwire_models::tasks::Replica;

use crate::checkpoint::{self, Checkpoint, Record};
use crate::config::RunConfig;
use crate::coordination::{Coordinator, ProcessCoordinator, ThreadCoordinator, ThreadGroup};
use crate::diagnosis::{Growth, Layer};
use crate::elastic::{Attempt, Interrupted};
use crate::error::TrainError;
use crate::events::{Event, Events, Received, SavePoint, channel};
use crate::facts::CompressorFacts;
use crate::failure::{Failure, FirstFailure, panic_message};
use crate::observer::Observer;
use crate::options::RunOptions;
use crate::permits::Permits;
use crate::provenance::{VERSION, instruction_set, processor, threads};
use crate::record::{RunRecord, StepRecord, WorkersChanged};
use crate::recorder::Recorder;
use crate::resolution::Resolution;
use crate::rotation;
use crate::states::States;
use crate::validation::warning;
use crate::worker::{Shared, Worker};

/// The stack of a worker's thread: back-propagation through a deep network recurses.
const STACK_BYTES: usize = 16 << 20;

/// Reads the newest good checkpoint at a path; warns the observer of a newer one that is damaged.
pub(crate) fn read_checkpoint(
    path: &Path,
    config: &RunConfig,
    observer: &dyn Observer,
) -> Result<Checkpoint, TrainError> {
    let skipped = |path: &Path, error: &StateError| {
        let path = path.display();
        observer.warned(&format!(
            "the checkpoint {path} cannot be used ({error}); resuming from the previous checkpoint"
        ));
    };
    Checkpoint::read(path, config, skipped)
        .map_err(|source| TrainError::Resume { path: path.to_owned(), source })
}

/// A run in this process, with all or one of its workers.
pub(crate) struct Session<'a> {
    pub(crate) config: &'a RunConfig,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) options: &'a RunOptions,
    pub(crate) checkpoint: Option<&'a Checkpoint>,
    pub(crate) changes: &'a [WorkersChanged],
    start: Instant,
}

/// The state of all workers after an exchange, and how far the record of the run reached then.
struct Kept {
    step: u64,
    state: State,
    seconds: f64,
    /// Steps on record.
    steps: usize,
    /// Evaluations on record.
    evaluations: usize,
}

/// A worker of this process: its rank, its replica, its end of the exchange.
pub(crate) type WorkerParts<'a> = (usize, Box<dyn Replica + 'a>, Box<dyn DistributedOptimizer>);

impl<'a> Session<'a> {
    /// An attempt that begins now.
    pub(crate) fn new(
        attempt: &'a Attempt,
        observer: &'a dyn Observer,
        options: &'a RunOptions,
    ) -> Self {
        let Attempt { config, checkpoint, changes } = attempt;
        let checkpoint = checkpoint.as_deref();
        Self { config, observer, options, checkpoint, changes, start: Instant::now() }
    }

    /// Resolves the configuration and the checkpoint for these workers.
    pub(crate) fn resolve(&self, workers: Range<usize>) -> Result<Resolution<'a>, TrainError> {
        let mut resolution = Resolution::new(self.config, workers)?;
        if let Some(checkpoint) = self.checkpoint {
            let path = || self.options.resume.clone().unwrap_or_default();
            resolution
                .restore(checkpoint, self.config.workers)
                .map_err(|source| TrainError::Resume { path: path(), source })?;
        }
        Ok(resolution)
    }
}

impl Session<'_> {
    /// Runs the workers of this process to their end: all workers as threads of `group`, or one
    /// worker without `group`. Returns the record, which is complete if worker 0 is among them, and
    /// the final parameters.
    pub(crate) fn train(
        &self,
        workers: Vec<WorkerParts<'_>>,
        resolution: &Resolution<'_>,
        group: Option<&ThreadGroup>,
        servers: Option<Servers>,
    ) -> Result<(Recorder, Vec<Vec<f32>>), Interrupted> {
        let shared = Shared {
            config: self.config,
            resolution,
            save: self.options.save.as_ref(),
            keeps_state: self.config.min_workers.is_some(),
            permits: Permits::new(threads()),
        };
        let (events, received) = channel(self.config.workers);
        let failure = FirstFailure::default();
        let coordinator =
            |rank| self.coordinator(rank, group, &shared.permits, events.clone(), &failure);
        let make = |(rank, replica, exchange)| {
            Worker::new(rank, &shared, replica, exchange, coordinator(rank), events.clone())
        };
        let workers: Vec<Worker<'_>> = workers.into_iter().map(make).collect();
        drop(events);

        let abandon = |reason: TrainError| {
            // A worker that is a process ends when its next round begins, and others notice that it
            // has left.
            failure.record(reason.into());
            group.iter().for_each(|group| group.abandon());
        };
        let ((mut recorder, kept), mut parameters) = thread::scope(|scope| {
            let started = workers.into_iter().map(|worker| self.start(scope, worker, &failure));
            let threads: Vec<_> =
                started.filter_map(|thread| thread.map_err(&abandon).ok()).collect();
            let heard = self.listen(received, &abandon, resolution);
            let parameters: Vec<_> =
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
            (heard, parameters)
        });
        match servers.map(Servers::join) {
            Some(Ok(reports)) => recorder.add_servers(&reports),
            Some(Err(error)) => failure.record(TrainError::Servers(error).into()),
            None => {}
        }
        match failure.take() {
            Some(failure) => {
                let workers = group.and_then(ThreadGroup::wanted).and_then(NonZero::new);
                Err(Interrupted { workers, ..self.interrupted(failure, kept, &recorder) })
            }
            None => Ok((recorder, parameters.swap_remove(0))),
        }
    }

    /// The coordinator of a worker: a thread of `group`, or a process if there is no group.
    fn coordinator<'c>(
        &'c self,
        rank: usize,
        group: Option<&'c ThreadGroup>,
        permits: &'c Permits,
        events: Events,
        failure: &'c FirstFailure,
    ) -> Box<dyn Coordinator + 'c> {
        let (config, observer, refused) = (self.config, self.observer, None);
        match group {
            Some(group) => Box::new(ThreadCoordinator {
                rank,
                group,
                config,
                observer,
                permits,
                events,
                refused,
            }),
            None => {
                Box::new(ProcessCoordinator::new(rank, config, observer, permits, events, failure))
            }
        }
    }

    /// Starts a worker's thread, from the checkpoint if there is one. The thread returns the
    /// worker's parameters.
    fn start<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        worker: Worker<'scope>,
        failure: &'scope FirstFailure,
    ) -> Result<ScopedJoinHandle<'scope, Vec<Vec<f32>>>, TrainError> {
        let name = format!("worker {}", worker.rank);
        let state = self.checkpoint.map(|saved| saved.worker(worker.rank, self.config));
        let first = self.checkpoint.map_or(0, |checkpoint| checkpoint.step);
        thread::Builder::new()
            .name(name)
            .stack_size(STACK_BYTES)
            .spawn_scoped(scope, move || work(worker, state, first, failure))
            .map_err(|error| {
                let what = format!("a worker's thread cannot start: {error}; use fewer workers");
                TrainError::Config(what)
            })
    }

    /// Keeps the record until the last worker has ended. Returns it, and the state after the last
    /// exchange if the run goes on without lost workers.
    fn listen(
        &self,
        events: Received,
        abandon: &dyn Fn(TrainError),
        resolution: &Resolution<'_>,
    ) -> (Recorder, Option<Kept>) {
        let past = self.checkpoint.map_or_else(Record::default, |saved| saved.record.clone());
        let mut recorder = Recorder::new(self.config.workers, past);
        let mut growth = Growth::new(&resolution.tensors, &recorder.diagnoses);
        if let Some(warning) = warning(self.config) {
            self.observer.warned(&warning);
        }
        let mut states = States::new(self.config.workers);
        let mut kept = None;
        for (rank, event) in events {
            match event {
                Event::Step(sample, next) => {
                    for record in recorder.add(rank, sample, next) {
                        self.observer.step(record, self.config.steps);
                    }
                }
                Event::Evaluated(step, score) => {
                    self.observer.evaluated(recorder.evaluate(step, resolution.metric, score));
                }
                Event::Digested(step, digest) => {
                    self.observer.digested(step, &digest);
                    recorder.digests.insert(step, digest);
                }
                Event::Diagnosed(diagnosis) => {
                    for warning in growth.watch(&diagnosis) {
                        self.observer.warned(&warning);
                    }
                    recorder.diagnoses.push(*diagnosis);
                }
                Event::Refused(workers, error) => self
                    .observer
                    .warned(&format!("the run cannot continue with {workers} workers: {error}")),
                Event::Saved(point, state) => {
                    let Some(state) = states.add(point, rank, *state) else { continue };
                    let SavePoint { step, to_file } = point;
                    let (steps, evaluations) = (recorder.trace.len(), recorder.evaluations.len());
                    let whole = Kept { step, state, seconds: self.seconds(), steps, evaluations };
                    if to_file && let Err(error) = self.save(&whole, &recorder) {
                        match step < self.config.steps {
                            true => abandon(error),
                            // Only the record could still be lost.
                            false => self.observer.unsaved(&error),
                        }
                    }
                    kept = self.config.min_workers.map(|_| whole);
                }
            }
        }
        (recorder, kept)
    }

    /// Writes the workers' merged states as one checkpoint.
    fn save(&self, kept: &Kept, recorder: &Recorder) -> Result<(), TrainError> {
        let Some(save) = &self.options.save else { return Ok(()) };
        self.complete(kept, recorder)
            .and_then(|state| rotation::write(&save.path, save.keep, &state))
            .map_err(|source| TrainError::Save { path: save.path.clone(), source })
    }

    /// The state with the record of the run up to it.
    fn complete(&self, kept: &Kept, recorder: &Recorder) -> Result<State, StateError> {
        let Kept { step, state, seconds, steps, evaluations } = kept;
        let record = Record {
            seconds: *seconds,
            trace: recorder.trace[..*steps].to_vec(),
            evaluations: recorder.evaluations[..*evaluations].to_vec(),
            // The first worker may have taken further steps while the others saved.
            diagnoses: recorder.diagnoses.iter().filter(|of| of.step <= *step).cloned().collect(),
            changes: self.changes.to_vec(),
            digests: recorder.digests.range(..=*step).map(|(at, of)| (*at, of.clone())).collect(),
        };
        checkpoint::complete(state.clone(), self.config, *step, &record)
    }

    /// Wall-clock seconds of the run so far, including the time before a resumption.
    pub(crate) fn seconds(&self) -> f64 {
        let before = self.checkpoint.map_or(0.0, |checkpoint| checkpoint.record.seconds);
        before + self.start.elapsed().as_secs_f64()
    }

    /// The record of a run that has ended with these parameters.
    pub(crate) fn record(
        &self,
        recorder: Recorder,
        resolution: &Resolution<'_>,
        parameters: &[Vec<f32>],
    ) -> RunRecord {
        let config = self.config;
        let Resolution { policy, tensors, rounds, .. } = resolution;
        let compressed = tensors.iter().filter(|tensor| !policy.is_raw(tensor));
        let sum = |value: fn(&StepRecord) -> f64| recorder.trace.iter().map(value).sum();
        RunRecord {
            version: VERSION.to_owned(),
            processor: processor(),
            instruction_set: instruction_set(),
            threads: threads(),
            numerics: BTreeMap::new(),
            parameters: tensors.iter().map(Tensor::elements).sum(),
            tensors: tensors.len(),
            largest_tensor: tensors.iter().map(Tensor::elements).max().unwrap_or(0),
            compressed_parameters: compressed.map(Tensor::elements).sum(),
            data: config.data.name.clone(),
            data_checksum: config.data.checksum.clone(),
            compressor: config.compressor.to_string(),
            compressor_facts: Some(CompressorFacts::of(&config.compressor)),
            seed: config.seed,
            settings: config.resolved(),
            rounds: rounds.count(),
            metric: resolution.metric,
            quality: recorder.evaluations.last().map_or(0.0, |evaluation| evaluation.quality),
            bytes_up: sum(|record| record.bytes_up),
            bytes_down: sum(|record| record.bytes_down),
            sent: recorder.trace.iter().map(|step| step.sent).sum(),
            digest: format!("{:016x}", digest(parameters)),
            digest_at: recorder.digests,
            seconds: self.seconds(),
            server: recorder.server,
            changes: self.changes.to_vec(),
            trace: recorder.trace,
            evaluations: recorder.evaluations,
            layers: match recorder.diagnoses.is_empty() {
                true => Vec::new(),
                false => tensors.iter().map(Layer::of).collect(),
            },
            diagnoses: recorder.diagnoses,
        }
    }

    /// The reason why the workers ended, with the state that was kept.
    fn interrupted(
        &self,
        failure: Failure,
        kept: Option<Kept>,
        recorder: &Recorder,
    ) -> Interrupted {
        let error = match failure {
            Failure::Error(error) => error,
            Failure::Stopped(step) => {
                let consistent = self.config.backups() == 0;
                let save = self.options.save.as_ref().filter(|_| consistent);
                TrainError::Stopped { step, saved: save.map(|save| save.path.clone()) }
            }
            Failure::Cancelled => {
                TrainError::Config("the run was cancelled without a reason".to_owned())
            }
        };
        let read =
            |kept| Checkpoint::of(self.complete(&kept, recorder)?, self.config).map(Box::new);
        match kept.map(read).transpose() {
            Ok(kept) => Interrupted { error, kept, workers: None },
            Err(source) => TrainError::Resume { path: PathBuf::from("memory"), source }.into(),
        }
    }
}

/// A worker's thread, from its first step to its last. Returns its parameters.
fn work(
    mut worker: Worker<'_>,
    state: Option<State>,
    first: u64,
    first_failure: &FirstFailure,
) -> Vec<Vec<f32>> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Some(state) = &state {
            worker.restore(state).map_err(|source| worker.failed(source))?;
        }
        worker.train(first)
    }));
    let failure = match result {
        Ok(Ok(())) => return std::mem::take(&mut worker.parameters),
        Ok(Err(failure)) => failure,
        Err(panic) => {
            let message = panic_message(panic.as_ref());
            Failure::Error(TrainError::Panicked { rank: worker.rank, message })
        }
    };
    let stopped = matches!(failure, Failure::Stopped(_));
    // Record it before the exchange is dropped, which makes other workers fail.
    first_failure.record(failure);
    // All workers stop after the same step; the others may be before it.
    if !stopped {
        worker.abandon();
    }
    Vec::new()
}
