//! From a configuration to running workers, and from what they tell to a record.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, available_parallelism};
use std::time::{Duration, Instant};

use gradwire::{Family, Memory, Spec, State};
use gradwire_exchange::{
    Adopt, Apply, Exchange, ExchangeError, HEADER_BYTES, Launched, Policy, Rule, Setup, Shares,
    Strategy, digest, in_process, launch,
};

use super::clip::Clip;
use super::diagnosis::{Diagnoser, Growth, Layer};
use super::exam::Exam;
use super::gate::Gate;
use super::learner::{Learner, check_data};
use super::local::Local;
use super::meeting::Meeting;
use super::parts::Parts;
use super::recorder::Recorder;
use super::rounds::Rounds;
use super::worker::{Event, Failure, Shared, Worker};
use super::{
    Evaluation, Metric, Observer, Payload, RunConfig, RunOptions, RunRecord, Split, TrainError,
};
use crate::checkpoint::{self, Checkpoint, Record};
use crate::data::Content;
use crate::models::Score;
use crate::plan::Course;

/// Back-propagation through a deep network recurses.
const STACK_BYTES: usize = 16 << 20;

/// The longest that a rank waits in rounds of many steps. One that dies is noticed at once.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);

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
    let shards = shards_of(config)?;
    let shares = shares_of(config, shards.as_deref());
    let mut shards = shards.map(Vec::into_iter);
    let mut learners = (0..config.workers)
        .map(|rank| Learner::new(config, rank, shards.as_mut().and_then(Iterator::next)))
        .collect::<Result<Vec<_>, _>>()?;
    let checkpoint = options.resume.as_ref().map(|path| {
        Checkpoint::read(path, config)
            .map_err(|source| TrainError::Resume { path: path.clone(), source })
    });
    let run = Run { config, observer, options, checkpoint: checkpoint.transpose()?, start };
    let parameters = run.parameters(&mut learners)?;
    let tensors = learners[0].tensors().to_vec();
    let (policy, rounds) = policy_of(config, &tensors)?;
    let setup = Setup {
        strategy: config.strategy,
        workers: config.workers,
        shares: &shares,
        policy: &policy,
        tensors: &tensors,
        seed: config.seed,
        initial: &parameters,
    };
    // A rank without part in a round waits for it as long as it lasts.
    let longest = u32::try_from(rounds.longest()).unwrap_or(u32::MAX);
    let deadline =
        config.deadline.saturating_mul(longest).min(LONGEST_DEADLINE.max(config.deadline));
    let transport = in_process::Options { deadline, link: options.link };
    let optimizer = || config.optimizer.build(&tensors, config.weight_decay);
    let launched = launch(&setup, transport, || match config.send {
        Payload::Gradients => optimizer(),
        Payload::Updates => Box::new(Apply),
        Payload::Weights => Box::new(Adopt),
    })
    .map_err(TrainError::Servers)?;
    let local = || Local::new(parameters.clone(), optimizer(), config.mask, config.send);
    let locals = (0..config.workers).map(|_| config.send.is_local().then(local));
    let locals = locals.collect();
    let rounds_done = rounds.count();
    let ends =
        Ends { learners, launched, parameters, locals, shares, policy: &policy, rounds, wrap };
    let (recorder, parameters) = run.train(ends)?;
    Ok(RunRecord { rounds: rounds_done, ..run.record(recorder, &policy, &tensors, &parameters) })
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
    if !(config.participation > 0.0 && config.participation <= 1.0) {
        return refuse("the part of the workers in a round must be above 0, and at most 1");
    }
    if !(0.0..1.0).contains(&config.dropout) {
        return refuse("the probability of dropping out must be at least 0, and below 1");
    }
    if !(config.l1 >= 0.0 && config.l1.is_finite()) {
        return refuse("the weight of the l1 penalty must be a number that is not negative");
    }
    if config.send == Payload::Weights && is_sparse(config.compressor.first()) {
        return Err(TrainError::Config(format!(
            "weights travel whole, and '{}' sends few elements; give send=updates, or a quantizer",
            config.compressor
        )));
    }
    if config.clip.is_some_and(|norm| !(norm > 0.0 && norm.is_finite())) {
        return refuse("the bound on the gradient's norm must be a positive number");
    }
    check_data(config)
}

/// Each worker's own examples; `None` where all share all, as the parts of a text always are.
fn shards_of(config: &RunConfig) -> Result<Option<Vec<Vec<u32>>>, TrainError> {
    match (&config.data.content, &config.split) {
        (Content::Images(images), Split::Shared | Split::Shards { .. }) => config
            .split
            // How many there are decides, not what they are labelled.
            .shards(&vec![0; images.train.len()], config.workers, config.seed)
            .map_err(TrainError::Config),
        (Content::Images(images), split) if images.train.is_masked() => {
            Err(TrainError::Config(format!(
                "the split '{split}' goes by classes, of which each image with a mask has several; \
                 take shared or shards"
            )))
        }
        (Content::Images(images), split) => split
            .shards(&images.train.labels, config.workers, config.seed)
            .map_err(TrainError::Config),
        (Content::Text(_), Split::Shared | Split::Shards { sizes: None }) => Ok(None),
        (Content::Text(_), split) => Err(TrainError::Config(format!(
            "the split '{split}' is for images; a text is cut in equal parts, one after the other"
        ))),
    }
}

/// What travels compressed and how, phase by phase, and where rounds end.
fn policy_of(
    config: &RunConfig,
    tensors: &[gradwire::Tensor],
) -> Result<(Policy, Rounds), TrainError> {
    if config.compressor.has_budget() && !config.rules.is_empty() {
        let reason =
            "a budget is shared out among tensors of one compressor; give no rules beside it";
        return Err(TrainError::Config(reason.to_owned()));
    }
    let policy = Policy {
        rules: config.rules.clone(),
        raw_below: config.raw_below,
        raw_names: config.raw_names.clone(),
        ..Policy::new(config.compressor.first())
    };
    let (raw, compressed): (Vec<_>, Vec<_>) = tensors.iter().partition(|t| policy.is_raw(t));
    let elements = |tensors: Vec<&gradwire::Tensor>| -> Vec<usize> {
        tensors.into_iter().map(gradwire::Tensor::elements).collect()
    };
    let phases = config.compressor.resolve(Course {
        steps: config.steps,
        drops: &config.learning_rate.drops(config.steps),
        compressed: &elements(compressed),
        raw: &elements(raw),
        sends: sends(config),
        headers: headers(config.strategy, tensors.len(), config.workers),
    });
    let phases = phases.map_err(|error| TrainError::Config(error.to_string()))?;
    if phases.len() > 1 && config.backups() > 0 {
        let reason = "with backup workers ranks pass from one stage of a plan to the next at \
                      different times; give backup=0, or one compressor throughout";
        return Err(TrainError::Config(reason.to_owned()));
    }
    let rounds = Rounds::new(&phases, config.steps);
    let mut phases = phases.into_iter();
    let push = phases.next().map_or_else(|| config.compressor.first().clone(), |(_, spec)| spec);
    // Updates and weights are taken as they are: what servers send back loses nothing.
    let pull = if config.send.is_local() { Some(lossless(&push)) } else { policy.pull.clone() };
    Ok((Policy { push, later: phases.collect(), pull, ..policy }, rounds))
}

/// How often a worker sends its messages in a round, on average.
fn sends(config: &RunConfig) -> f64 {
    let drawn = config.participants() as f64;
    // Where all drawn would drop out, one of them does not.
    let arrive = 1.0 - config.dropout + config.dropout.powf(drawn) / drawn;
    let present = drawn / config.workers as f64 * arrive;
    let receivers = config.strategy.receivers(config.workers);
    match config.strategy {
        // Owners pass means on whether they had a part in them or not.
        Strategy::ScatterReduce => receivers / 2.0 * (present + 1.0),
        _ => receivers * present,
    }
}

/// Bytes of the headers around a worker's messages for so many tensors.
fn headers(strategy: Strategy, tensors: usize, workers: usize) -> usize {
    /// The most that a slice takes of its own: an element, and a message around it.
    const SLICE_BYTES: usize = 24;
    match strategy {
        // Cuts make further slices.
        Strategy::ScatterReduce => HEADER_BYTES + (workers - 1) * SLICE_BYTES,
        // One for each tensor, and one with the learning rate for each server.
        Strategy::ParameterServer { servers, .. } => {
            tensors * HEADER_BYTES + servers * (HEADER_BYTES + 12)
        }
        _ => HEADER_BYTES,
    }
}

/// What is likely a mistake in a configuration, though it can run.
fn warning(config: &RunConfig) -> Option<String> {
    let spec = config.compressor.first();
    let corrects = match spec.compressor().memory() {
        Some(Memory::Momentum { momentum, .. }) => spec.memory().is_on() && momentum > 0.0,
        _ => false,
    };
    let twice = config.optimizer.has_momentum() || config.send.is_local();
    (corrects && twice).then(|| {
        format!(
            "'{spec}' has the momentum in its memory already, and what it compresses has been through an \
             optimizer with momentum or through local steps; give --optimizer sgd with gradients, or momentum=0"
        )
    })
}

/// What carries the mean of such messages without loss.
fn lossless(push: &Spec) -> Spec {
    let id = if is_sparse(push) { "threshold" } else { "none" };
    id.parse().expect("the registry has both")
}

/// Whether messages carry few of a tensor's elements.
fn is_sparse(spec: &Spec) -> bool {
    matches!(spec.entry().family, Family::Sparsification | Family::Hybrid)
}

/// Workers count by the examples they have, and take part as configured.
fn shares_of(config: &RunConfig, shards: Option<&[Vec<u32>]>) -> Shares {
    let shares = match shards {
        Some(shards) => Shares::weighted(shards.iter().map(|shard| shard.len() as f64).collect()),
        None => Shares::equal(config.workers),
    };
    shares.with_participants(config.participants(), config.dropout, config.seed)
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
    locals: Vec<Option<Local>>,
    shares: Shares,
    policy: &'a Policy,
    rounds: Rounds,
    wrap: Wrap<'a>,
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

    /// Runs all workers to their end. Returns what they measured, and the final parameters.
    fn train(&self, ends: Ends<'_>) -> Result<(Recorder, Vec<Vec<f32>>), TrainError> {
        let config = self.config;
        let Ends { learners, launched, parameters, locals, shares, policy, rounds, wrap } = ends;
        let shared = Shared {
            config,
            observer: self.observer,
            rounds,
            shares,
            policy,
            save_every: self.options.save.as_ref().map(|save| save.every),
            gate: Gate::new(available_parallelism().map_or(1, usize::from)),
            meeting: Meeting::new(config.workers),
            exam: Exam::default(),
            stop: Mutex::default(),
        };
        let tensors = learners[0].tensors().to_vec();
        let cause = Cause::default();
        let first = self.first_step();
        let (events, received) = channel();
        let mut workers = Vec::with_capacity(config.workers);
        let ends = learners.into_iter().zip(launched.workers).zip(locals);
        for (rank, ((learner, exchange), local)) in ends.enumerate() {
            workers.push(Worker {
                rank,
                shared: &shared,
                diagnoser: (rank == 0 && config.diagnose_every > 0)
                    .then(|| Diagnoser::new(learner.tensors())),
                clip: Clip::new(config.clip, learner.tensors()),
                // What local optimizers make of gradients has no parts.
                parts: (exchange.keeps_squares() && local.is_none())
                    .then(|| Parts::new(learner.tensors())),
                learner,
                gradients: parameters.iter().map(|values| vec![0.0; values.len()]).collect(),
                parameters: parameters.clone(),
                local,
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
            let recorder = self.listen(&received, &cause, &shared, &tensors);
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
        tensors: &[gradwire::Tensor],
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
            // The first worker may have gone on while the others saved.
            diagnoses: recorder.diagnoses.iter().filter(|of| of.step <= step).cloned().collect(),
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
            diagnoses: checkpoint.record.diagnoses.clone(),
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
            send: config.send.to_string(),
            split: config.split.to_string(),
            participation: config.participation,
            dropout: config.dropout,
            mask: config.mask,
            rounds: 0,
            workers: config.workers,
            steps: config.steps,
            batch: config.batch,
            optimizer: config.optimizer.to_string(),
            weight_decay: decimal(config.weight_decay),
            l1: decimal(config.l1),
            rules: config.rules.iter().map(Rule::to_string).collect(),
            learning_rate: config.learning_rate.to_string(),
            augment: config.augment,
            seed: config.seed,
            clip: config.clip.map(decimal),
            metric: self.metric(),
            quality: recorder.evaluations.last().map_or(0.0, |evaluation| evaluation.quality),
            bytes_up: sum(|record| record.bytes_up),
            bytes_down: sum(|record| record.bytes_down),
            sent: recorder.trace.iter().map(|step| step.sent).sum(),
            digest: format!("{:016x}", digest(parameters)),
            seconds: self.seconds(),
            trace: recorder.trace,
            evaluations: recorder.evaluations,
            layers: match recorder.diagnoses.is_empty() {
                true => Vec::new(),
                false => tensors.iter().map(Layer::of).collect(),
            },
            diagnoses: recorder.diagnoses,
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
            Metric::Iou if score.either == 0 => 1.0,
            Metric::Iou => score.both as f64 / score.either as f64,
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
            let failed = |source| TrainError::Exchange { rank: worker.rank, source };
            restored.map_err(failed)?;
            if let Some(diagnoser) = &mut worker.diagnoser {
                diagnoser.restore(state).map_err(|source| failed(source.into()))?;
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
    worker.shared.meeting.cancel();
    Vec::new()
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Why the run failed: the first of the failures that weigh most.
#[derive(Default)]
struct Cause(Mutex<Option<Failure>>);

impl Cause {
    fn note(&self, failure: Failure) {
        let mut cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cause.as_ref().map_or(0, weight) < weight(&failure) {
            *cause = Some(failure);
        }
    }

    fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How much a failure explains: an error of its own more than a stop that was asked for, since a checkpoint may
/// have failed to be written then; the loss of another rank, which follows from something else, least.
fn weight(failure: &Failure) -> u32 {
    match failure {
        Failure::Cancelled => 0,
        Failure::Error(
            TrainError::Exchange { source: ExchangeError::PeerLost { .. }, .. }
            | TrainError::Servers(ExchangeError::PeerLost { .. }),
        ) => 1,
        Failure::Stopped(_) => 2,
        Failure::Error(_) => 3,
    }
}

/// The `f64` that prints as the `f32` does: 0.0001 and not 0.00009999999747378752.
fn decimal(x: f32) -> f64 {
    x.to_string().parse().unwrap_or(f64::from(x))
}
