//! From a configuration to running workers, and from what they tell to a record.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::{
    AddUpdate, DistributedOptimizer, GroupConfig, Optimizer, Participation, Policy,
    ReplaceParameters, Servers, in_process, launch_with,
};

use super::cause::{Cause, message};
use super::clip::Clip;
use super::company::Company;
use super::diagnosis::{Diagnoser, Growth};
use super::gate::Gate;
use super::learner::Learner;
use super::local::Local;
use super::outcome::evaluation;
use super::parts::Parts as MicroBatches;
use super::recorder::Recorder;
use super::rounds::Rounds;
use super::setup::{policy_of, shards_of, shares_of, validate, warning};
use super::svrg::Svrg;
use super::worker::{Event, Failure, Shared, Worker};
use super::{Metric, Observer, Payload, RunConfig, RunOptions, RunRecord, TrainError, overlap};
use crate::checkpoint::{self, Checkpoint, Record};

/// Back-propagation through a deep network recurses.
const STACK_BYTES: usize = 16 << 20;

/// The longest that a rank waits in rounds of many steps. One that dies is noticed at once.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// What becomes of a worker's end of the exchange before it is used; tests break it here.
pub(super) type Wrap<'a> =
    &'a dyn Fn(usize, Box<dyn DistributedOptimizer>) -> Box<dyn DistributedOptimizer>;

/// [`super::run`], with each worker's exchange wrapped.
pub(super) fn run(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    wrap: Wrap<'_>,
) -> Result<RunRecord, TrainError> {
    validate(config)?;
    let checkpoint = match &options.resume {
        Some(path) => Some(read_checkpoint(path, config, observer)?),
        None => None,
    };
    let run = Run { config, observer, options, checkpoint, start: Instant::now() };
    let mut parts = run.parts(0..config.workers)?;
    let transport = in_process::Options { deadline: parts.deadline(config), link: options.link };
    let join = |transport| parts.join(config, transport);
    let launched =
        launch_with(&parts.setup(config), transport, join).map_err(TrainError::Servers)?;
    let learners = std::mem::take(&mut parts.learners);
    let ends = learners.into_iter().zip(launched.workers).enumerate();
    let members = ends
        .map(|(rank, (learner, exchange))| Member { rank, learner, exchange: wrap(rank, exchange) })
        .collect();
    let company = Company::here(config.workers);
    let (recorder, parameters) = run.train(members, &parts, company, Some(launched.servers))?;
    Ok(run.record(recorder, &parts, &parameters))
}

/// The newest good checkpoint at a path.
pub(super) fn read_checkpoint(
    path: &Path,
    config: &RunConfig,
    observer: &dyn Observer,
) -> Result<Checkpoint, TrainError> {
    let skipped = |path: &Path, error: &StateError| {
        observer.warned(&format!(
            "{} is no good ({error}); going on from the one before it",
            path.display()
        ));
    };
    Checkpoint::read(path, config, skipped)
        .map_err(|source| TrainError::Resume { path: path.to_owned(), source })
}

/// A run and what it was asked for.
pub(super) struct Run<'a> {
    pub(super) config: &'a RunConfig,
    pub(super) observer: &'a dyn Observer,
    pub(super) options: &'a RunOptions,
    pub(super) checkpoint: Option<Checkpoint>,
    pub(super) start: Instant,
}

/// What a configuration comes to.
pub(super) struct Parts<'a> {
    /// Those of the workers in this process.
    pub(super) learners: Vec<Learner<'a>>,
    pub(super) tensors: Vec<Tensor>,
    parameters: Vec<Vec<f32>>,
    shares: Participation,
    pub(super) policy: Policy,
    pub(super) rounds: Rounds,
    /// Tensors that travel together, where they do not all.
    pub(super) groups: Option<Vec<Vec<usize>>>,
}

/// A worker of this process in the making.
pub(super) struct Member<'a> {
    pub(super) rank: usize,
    pub(super) learner: Learner<'a>,
    pub(super) exchange: Box<dyn DistributedOptimizer>,
}

impl Parts<'_> {
    /// What all ranks share.
    pub(super) fn setup<'a>(&'a self, config: &RunConfig) -> GroupConfig<'a> {
        GroupConfig {
            exchange: config.exchange,
            workers: config.workers,
            shares: &self.shares,
            policy: &self.policy,
            tensors: &self.tensors,
            seed: config.seed,
            initial: &self.parameters,
        }
    }

    /// What a rank that updates the common parameters does so by.
    pub(super) fn optimizer(&self, config: &RunConfig) -> Box<dyn Optimizer> {
        match config.send {
            Payload::Gradients => config.optimizer.build(&self.tensors, config.weight_decay),
            Payload::Updates => Box::new(AddUpdate),
            Payload::Weights => Box::new(ReplaceParameters),
        }
    }

    /// How long a rank waits for another: without part in a round it waits as long as that lasts.
    pub(super) fn deadline(&self, config: &RunConfig) -> Duration {
        let longest = u32::try_from(self.rounds.longest()).unwrap_or(u32::MAX);
        config.deadline().saturating_mul(longest).min(LONGEST_DEADLINE.max(config.deadline()))
    }

    /// What a worker trains on its own with between two rounds, where it does.
    fn local(&self, config: &RunConfig) -> Option<Local> {
        config.send.is_local().then(|| {
            let optimizer = config.optimizer.build(&self.tensors, config.weight_decay);
            Local::new(self.parameters.clone(), optimizer, config.mask, config.send)
        })
    }
}

impl<'a> Run<'a> {
    /// What the configuration comes to, with the learners of these workers.
    pub(super) fn parts(&self, workers: Range<usize>) -> Result<Parts<'a>, TrainError> {
        let config = self.config;
        let mut shards = shards_of(config)?;
        let shares = shares_of(config, shards.as_deref());
        let mut learners = workers
            .map(|rank| {
                let shard = shards.as_mut().map(|shards| std::mem::take(&mut shards[rank]));
                Learner::new(config, rank, shard)
            })
            .collect::<Result<Vec<_>, _>>()?;
        let parameters = self.parameters(&mut learners)?;
        let tensors = learners[0].tensors().to_vec();
        let groups = overlap::groups(config, &learners[0]);
        let (policy, rounds) = policy_of(config, &tensors)?;
        Ok(Parts { learners, tensors, parameters, shares, policy, rounds, groups })
    }
}

impl Run<'_> {
    /// The parameters all workers begin with.
    fn parameters(&self, learners: &mut [Learner<'_>]) -> Result<Vec<Vec<f32>>, TrainError> {
        let Some(checkpoint) = &self.checkpoint else {
            return Ok(learners[0].initial_parameters(self.config.seed));
        };
        checkpoint.restore(learners).map_err(|source| self.not_resumed(source))
    }

    fn not_resumed(&self, source: gradwire::StateError) -> TrainError {
        let path = self.options.resume.clone().unwrap_or_default();
        TrainError::Resume { path, source }
    }

    fn first_step(&self) -> u64 {
        self.checkpoint.as_ref().map_or(0, |checkpoint| checkpoint.step)
    }

    /// Runs the workers of this process to their end. Returns what all workers measured, where the first is among
    /// them, and the final parameters.
    pub(super) fn train(
        &self,
        members: Vec<Member<'_>>,
        parts: &Parts<'_>,
        company: Company,
        servers: Option<Servers>,
    ) -> Result<(Recorder, Vec<Vec<f32>>), TrainError> {
        let config = self.config;
        let shared = Shared {
            config,
            observer: self.observer,
            rounds: &parts.rounds,
            shares: &parts.shares,
            policy: &parts.policy,
            save_every: self.options.save.as_ref().map(|save| save.every),
            gate: Gate::new(available_parallelism().map_or(1, usize::from)),
            company,
        };
        let cause = Cause::default();
        let first = self.first_step();
        let (events, received) = channel();
        let workers: Vec<Worker<'_>> =
            members.into_iter().map(|member| worker(member, parts, &shared, &events)).collect();
        drop(events);

        let (mut recorder, mut parameters) = thread::scope(|scope| {
            let mut threads = Vec::with_capacity(workers.len());
            for worker in workers {
                let (cause, name) = (&cause, format!("worker {}", worker.rank));
                let state = self.checkpoint.as_ref().map(|saved| saved.worker(worker.rank));
                let spawned = thread::Builder::new()
                    .name(name)
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || work(worker, state, first, cause));
                match spawned {
                    Ok(thread) => threads.push(thread),
                    Err(error) => {
                        let reason = format!("a worker's thread cannot start: {error}");
                        cause.note(Failure::Error(TrainError::Config(reason)));
                        shared.company.abandon();
                    }
                }
            }
            let recorder = self.listen(&received, &cause, &shared, &parts.tensors);
            let parameters: Vec<_> =
                threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
            (recorder, parameters)
        });
        match servers.map(Servers::join) {
            Some(Ok(reports)) => recorder.add_servers(&reports),
            Some(Err(error)) => cause.note(Failure::Error(TrainError::Servers(error))),
            None => {}
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
        tensors: &[Tensor],
    ) -> Recorder {
        let mut recorder = Recorder::new(self.config.workers, self.past());
        let mut growth = Growth::new(tensors, &recorder.diagnoses);
        if let Some(warning) = warning(self.config) {
            self.observer.warned(&warning);
        }
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
                Event::Diagnosed(diagnosis) => {
                    for warning in growth.watch(&diagnosis) {
                        self.observer.warned(&warning);
                    }
                    recorder.diagnoses.push(*diagnosis);
                }
                Event::Saved(step, state) => {
                    states.push(*state);
                    if states.len() == self.config.workers
                        && let Err(error) = self.save(step, &mut states, &recorder)
                    {
                        cause.note(Failure::Error(error));
                        shared.company.abandon();
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
            // The first worker may have gone on while the others saved.
            diagnoses: recorder.diagnoses.iter().filter(|of| of.step <= step).cloned().collect(),
        };
        checkpoint::write((&save.path, save.keep), whole, self.config, step, &record)
            .map_err(|source| TrainError::Save { path: save.path.clone(), source })
    }

    /// What the checkpoint has on record.
    fn past(&self) -> Record {
        self.checkpoint.as_ref().map_or_else(Record::default, |checkpoint| Record {
            seconds: checkpoint.record.seconds,
            trace: checkpoint.record.trace.clone(),
            evaluations: checkpoint.record.evaluations.clone(),
            diagnoses: checkpoint.record.diagnoses.clone(),
        })
    }

    pub(super) fn seconds(&self) -> f64 {
        let before = self.checkpoint.as_ref().map_or(0.0, |checkpoint| checkpoint.record.seconds);
        before + self.start.elapsed().as_secs_f64()
    }

    pub(super) fn metric(&self) -> Metric {
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
}

/// A worker of this process.
fn worker<'a>(
    member: Member<'a>,
    parts: &'a Parts<'_>,
    shared: &'a Shared<'a>,
    events: &Sender<(usize, Event)>,
) -> Worker<'a> {
    let Member { rank, learner, exchange } = member;
    let config = shared.config;
    let local = parts.local(config);
    Worker {
        rank,
        shared,
        diagnoser: (rank == 0 && config.diagnose_every > 0).then(|| Diagnoser::new(&parts.tensors)),
        clip: Clip::new(config.clip, &parts.tensors),
        // What local optimizers make of gradients has no parts.
        parts: (exchange.keeps_squares() && local.is_none())
            .then(|| MicroBatches::new(&parts.tensors)),
        learner,
        gradients: parts.parameters.iter().map(|values| vec![0.0; values.len()]).collect(),
        parameters: parts.parameters.clone(),
        local,
        svrg: (config.svrg > 0).then(|| Svrg::new(config.svrg, &parts.parameters)),
        exchange,
        unsent: Vec::new(),
        rounds_begun: 0,
        events: events.clone(),
    }
}

/// A worker's thread, from its first step to its last. Returns its parameters.
fn work(mut worker: Worker<'_>, state: Option<State>, first: u64, cause: &Cause) -> Vec<Vec<f32>> {
    let result = catch_unwind(AssertUnwindSafe(|| {
        if let Some(state) = &state {
            let restored = worker.exchange.restore(state);
            let failed = |source| TrainError::Exchange { rank: worker.rank, source };
            restored.map_err(failed)?;
            if let Some(diagnoser) = &mut worker.diagnoser {
                diagnoser.restore(state).map_err(|source| failed(source.into()))?;
            }
            if !worker.shared.config.exchange.keeps_replicas_identical() {
                let own = checkpoint::parameters(worker.learner.tensors(), state);
                worker.parameters = own.map_err(|source| failed(source.into()))?;
            }
            if let Some(svrg) = &mut worker.svrg {
                let restored = svrg.restore(worker.learner.tensors(), state);
                restored.map_err(|source| failed(source.into()))?;
            }
            if let Some(local) = &mut worker.local {
                local.restore(state).map_err(|source| failed(source.into()))?;
            }
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
    worker.shared.company.abandon_meeting();
    Vec::new()
}
