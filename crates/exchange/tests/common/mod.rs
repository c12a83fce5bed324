//! Models, gradients and optimizers for tests, and a run of all ranks.

#![allow(dead_code, unreachable_pub)]

pub mod checks;
#[path = "../../../core/tests/common/custom.rs"]
pub mod custom;
pub mod engine;

use std::ops::Range;
use std::thread;

use gradwire::registry::REGISTRY;
use gradwire::{Rng, Spec, State, StateError, Tensor};
use gradwire_exchange::{
    DistributedOptimizer, Exchange, ExchangeError, GroupConfig, Launched, Optimizer, Participation,
    Policy, ReplicatedOptimizer, Role, ServerReport, StepInput, StepReport, in_process, launch,
};

/// Sizes at the edge cases of packing and cutting.
pub const SIZES: [usize; 7] = [1023, 0, 1, 70_000, 4, 5, 6];
/// The same, and a large tensor that is not compressed in parts.
pub const SMALL_SIZES: [usize; 7] = [1023, 0, 1, 9_000, 4, 5, 6];

pub fn exchange(text: &str) -> Exchange {
    text.parse().unwrap()
}

pub fn tensors(sizes: &[usize]) -> Vec<Tensor> {
    let tensor = |(at, &size)| Tensor::new(format!("t{at}.weight"), &shape(size));
    sizes.iter().enumerate().map(tensor).collect()
}

/// Large tensors are matrices, as near to square as their size allows.
fn shape(size: usize) -> Vec<usize> {
    match (size >= 900, (1..=size.isqrt()).rev().find(|rows| size.is_multiple_of(*rows))) {
        (true, Some(rows)) => vec![rows, size / rows],
        _ => vec![size],
    }
}

/// Whether all-reduce takes a compressor.
pub fn adds(spec: &Spec) -> bool {
    spec.compressor().adds()
}

/// Whether a strategy takes a compressor.
pub fn suits(name: &str, spec: &Spec) -> bool {
    match name {
        "all-reduce" => adds(spec),
        "sparse-all-reduce" => spec.entry().sparse && spec.compressor().accumulator().is_none(),
        _ if name.contains("stale") || name.contains("async") => applies_alone(spec),
        _ => true,
    }
}

/// Whether an asynchronous server can apply each message by itself.
fn applies_alone(spec: &Spec) -> bool {
    let compressor = spec.compressor();
    !compressor.votes() && !spec.sends_changes() && compressor.accumulator().is_none()
}

/// A compressor without loss for a strategy.
pub fn lossless(name: &str) -> Spec {
    if name == "sparse-all-reduce" { "threshold:v=0" } else { "none" }.parse().unwrap()
}

/// Every registered compressor with its defaults, and the variants that change a message's form.
pub fn specs() -> Vec<Spec> {
    let variants = [
        "3lc:s=1.75",
        "3lc:ef=off",
        "terngrad:clip=0",
        "topk:ratio=0.25,select=sampled,positions=bitmap",
        "none:ef=on",
        "fp16:ef=on",
        "powersgd:rank=1,ef=off",
        "gradiveq:slice=8,keep=2,refresh=2",
        "sketched-sgd:ratio=0.03,rows=2,width=3",
        "topk:ratio=0.25,ef=ef21,momentum=0.5",
        "3lc:momentum=0.9",
        "chunk-topk:mean=senders",
    ];
    let variants = variants.iter().map(|text| text.parse().unwrap());
    REGISTRY.iter().map(|entry| Spec::of(entry)).chain(variants).collect()
}

/// Uniform numbers in [-1, 1), determined by tensor, rank and step.
pub fn gradients(tensors: &[Tensor], rank: usize, step: u64) -> Vec<Vec<f32>> {
    let draw = |tensor: &Tensor| {
        let mut words = vec![0; tensor.elements()];
        Rng::new(99, tensor.id(), rank as u32, step, 0).fill(&mut words);
        words.iter().map(|word| (word >> 8) as f32 / (1 << 23) as f32 - 1.0).collect()
    };
    tensors.iter().map(draw).collect()
}

pub fn initial(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    gradients(tensors, 1000, 0)
}

pub fn zeros(tensors: &[Tensor]) -> Vec<Vec<f32>> {
    tensors.iter().map(|tensor| vec![0.0; tensor.elements()]).collect()
}

/// `w ← w − rate · g`.
pub struct Sgd;

impl Optimizer for Sgd {
    fn update(&mut self, _: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
        for (w, g) in parameters.iter_mut().zip(gradient) {
            *w -= rate * g;
        }
    }
}

/// `v ← 0.9 v + g`, `w ← w − rate · v`.
pub struct Momentum {
    tensors: Vec<Tensor>,
    velocities: Vec<Vec<f32>>,
}

impl Momentum {
    pub fn new(tensors: &[Tensor]) -> Self {
        Self { tensors: tensors.to_vec(), velocities: zeros(tensors) }
    }
}

impl Optimizer for Momentum {
    fn update(&mut self, index: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
        let velocity = &mut self.velocities[index];
        for ((w, v), g) in parameters.iter_mut().zip(velocity).zip(gradient) {
            *v = 0.9 * *v + g;
            *w -= rate * *v;
        }
    }

    fn save(&self, prefix: &str, state: &mut State) {
        for (tensor, velocity) in self.tensors.iter().zip(&self.velocities) {
            state.set_floats(&format!("{prefix}{}", tensor.name()), velocity.clone());
        }
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        for (tensor, velocity) in self.tensors.iter().zip(&mut self.velocities) {
            velocity.copy_from_slice(state.floats(&format!("{prefix}{}", tensor.name()))?);
        }
        Ok(())
    }
}

/// One run's configuration.
#[derive(Clone)]
pub struct Run {
    pub exchange: Exchange,
    pub workers: usize,
    pub policy: Policy,
    pub tensors: Vec<Tensor>,
    pub initial: Vec<Vec<f32>>,
    pub options: in_process::Options,
    pub momentum: bool,
    pub participation: Participation,
    /// The groups of an exchange with overlap.
    pub groups: Option<Vec<Vec<usize>>>,
}

impl Run {
    /// A run by the names of its exchange and its compressor.
    pub fn of(name: &str, workers: usize, spec: &str, sizes: &[usize]) -> Self {
        Self::new(exchange(name), workers, &spec.parse().unwrap(), sizes)
    }

    pub fn new(exchange: Exchange, workers: usize, spec: &Spec, sizes: &[usize]) -> Self {
        let tensors = tensors(sizes);
        let mut policy = Policy::new(spec);
        (policy.raw_vectors, policy.raw_below) = (false, 5);
        Self {
            exchange,
            workers,
            policy,
            initial: initial(&tensors),
            tensors,
            options: in_process::Options::default(),
            momentum: false,
            participation: Participation::equal(workers),
            groups: None,
        }
    }

    pub fn setup(&self) -> GroupConfig<'_> {
        GroupConfig {
            exchange: self.exchange,
            participation: &self.participation,
            policy: &self.policy,
            tensors: &self.tensors,
            seed: 7,
            initial: &self.initial,
        }
    }

    /// Starts all ranks.
    fn launched(&self) -> Launched {
        let setup = self.setup();
        let join = |transport| match &self.groups {
            None => Role::join(transport, &setup, || self.optimizer()),
            Some(groups) => {
                ReplicatedOptimizer::overlapped(transport, &setup, groups.clone(), self.optimizer())
                    .map(|exchange| Role::Worker(Box::new(exchange)))
            }
        };
        launch(&setup, self.options, join).unwrap()
    }

    /// Runs `work` as every worker, and waits for the servers.
    pub fn workers<R: Send>(
        &self,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> (Vec<thread::Result<R>>, Result<Vec<ServerReport>, ExchangeError>) {
        let launched = self.launched();
        let results = threads(launched.workers, |rank, mut exchange| work(rank, &mut *exchange));
        (results, launched.servers.join())
    }

    /// Runs `work` as every worker. Workers and servers must succeed.
    pub fn each<R: Send>(
        &self,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> Vec<R> {
        let (results, servers) = self.workers(work);
        let results = results.into_iter().map(Result::unwrap).collect();
        servers.unwrap();
        results
    }

    /// Runs one step as one worker, with the gradients of that rank and step.
    pub fn try_step(
        &self,
        rank: usize,
        step: u64,
        exchange: &mut dyn DistributedOptimizer,
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError> {
        let gradients = gradients(&self.tensors, rank, step);
        exchange.step(StepInput::new(step, RATE, &gradients), parameters)
    }

    /// The same, which must succeed.
    pub fn step(
        &self,
        rank: usize,
        step: u64,
        exchange: &mut dyn DistributedOptimizer,
        parameters: &mut [Vec<f32>],
    ) -> StepReport {
        self.try_step(rank, step, exchange, parameters).unwrap()
    }

    /// Runs some steps as one worker.
    pub fn advance(
        &self,
        rank: usize,
        steps: Range<u64>,
        exchange: &mut dyn DistributedOptimizer,
        parameters: &mut [Vec<f32>],
    ) {
        for step in steps {
            self.step(rank, step, exchange, parameters);
        }
    }

    /// Runs steps `0..end` as one worker; then restores its state after `middle` steps and repeats
    /// the rest, which ends with the same bits.
    pub fn repeat(
        &self,
        rank: usize,
        (middle, end): (u64, u64),
        exchange: &mut dyn DistributedOptimizer,
    ) {
        let mut parameters = self.initial.clone();
        self.advance(rank, 0..middle, exchange, &mut parameters);
        let (state, mut again) = (saved(exchange), parameters.clone());
        self.advance(rank, middle..end, exchange, &mut parameters);
        exchange.restore(&state).unwrap();
        self.advance(rank, middle..end, exchange, &mut again);
        assert!(bits(&parameters) == bits(&again), "{}", self.exchange);
    }

    /// Runs steps `0..steps` on every worker: parameters, reports and state at the end.
    pub fn steps(&self, steps: u64) -> Vec<Finished> {
        self.each(|rank, exchange| self.play(rank, exchange, steps))
    }

    /// Runs steps `0..steps` as one worker.
    pub fn play(
        &self,
        rank: usize,
        exchange: &mut dyn DistributedOptimizer,
        steps: u64,
    ) -> Finished {
        let mut parameters = self.initial.clone();
        let step = |step| self.step(rank, step, exchange, &mut parameters);
        let reports = (0..steps).map(step).collect();
        exchange.control().check(steps, &parameters).unwrap();
        let state = saved(exchange);
        let global = if rank == 0 { exchange.global_model().unwrap() } else { None };
        Finished { parameters, reports, state, global }
    }

    /// The optimizer of a rank.
    pub fn optimizer(&self) -> Box<dyn Optimizer> {
        if self.momentum { Box::new(Momentum::new(&self.tensors)) } else { Box::new(Sgd) }
    }
}

/// Runs `work` for each of `items` in a thread of its own: the results in order.
pub fn threads<T: Send, R: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(usize, T) -> R + Sync,
) -> Vec<thread::Result<R>> {
    threads_of(items.into_iter().collect(), &work)
}

/// [`threads`], compiled once for each type of items and results, not for each `work`.
fn threads_of<T: Send, R: Send>(
    items: Vec<T>,
    work: &(dyn Fn(usize, T) -> R + Sync),
) -> Vec<thread::Result<R>> {
    let mut results: Vec<Option<R>> = items.iter().map(|_| None).collect();
    let job = |((at, item), result)| -> Job<'_> {
        let result: &mut Option<R> = result;
        Box::new(move || *result = Some(work(at, item)))
    };
    let ended = at_once(items.into_iter().enumerate().zip(&mut results).map(job).collect());
    let result = |(ended, result): (thread::Result<()>, Option<R>)| {
        ended.map(|()| result.expect("its thread has ended"))
    };
    ended.into_iter().zip(results).map(result).collect()
}

type Job<'a> = Box<dyn FnOnce() + Send + 'a>;

/// Runs each job in a thread of its own. Not generic, so that the code that starts threads is
/// compiled only once.
fn at_once(jobs: Vec<Job<'_>>) -> Vec<thread::Result<()>> {
    thread::scope(|scope| {
        let threads: Vec<_> = jobs.into_iter().map(|job| scope.spawn(job)).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

/// Runs `work` as each of `ranks` ranks, connected in this process.
pub fn connected<R: Send>(
    ranks: usize,
    work: impl Fn(usize, in_process::InProcess) -> R + Sync,
) -> Vec<R> {
    let transports = in_process::connect(ranks, in_process::Options::default());
    threads(transports, work).into_iter().map(Result::unwrap).collect()
}

/// The state that a worker saves.
pub fn saved(exchange: &mut dyn DistributedOptimizer) -> State {
    let mut state = State::new();
    exchange.save(&mut state).unwrap();
    state
}

pub const RATE: f32 = 0.125;

/// One worker at the end of its steps.
pub struct Finished {
    pub parameters: Vec<Vec<f32>>,
    pub reports: Vec<StepReport>,
    pub state: State,
    pub global: Option<Vec<Vec<f32>>>,
}

pub fn bits(parameters: &[Vec<f32>]) -> Vec<Vec<u32>> {
    parameters.iter().map(|tensor| tensor.iter().map(|x| x.to_bits()).collect()).collect()
}
