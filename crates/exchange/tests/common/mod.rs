//! Models, gradients and optimizers for tests, and a run of all ranks.

#![allow(dead_code, unreachable_pub)]

pub mod checks;
#[path = "../../../core/tests/common/custom.rs"]
pub mod custom;
pub mod engine;

use std::thread;

use gradwire::registry::REGISTRY;
use gradwire::{Rng, Spec, State, StateError, Tensor};
use gradwire_exchange::{
    DistributedOptimizer, Exchange, ExchangeError, GroupConfig, Optimizer, Participation, Policy,
    ReplicatedOptimizer, Role, ServerReport, StepReport, in_process, launch_with,
};

/// The sizes at which packing and cutting have their edges.
pub const SIZES: [usize; 7] = [1023, 0, 1, 100_000, 4, 5, 6];

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

/// Whether all-reduce serves for a compressor.
pub fn adds(spec: &Spec) -> bool {
    spec.compressor().adds()
}

/// Whether a strategy takes a compressor.
pub fn suits(name: &str, spec: &Spec) -> bool {
    match name {
        "all-reduce" => adds(spec),
        "sparse-all-reduce" => spec.entry().is_sparse(),
        "server:stale=0" => !spec.compressor().votes(),
        _ => true,
    }
}

/// What loses nothing and travels by a strategy.
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
    ];
    let variants = variants.iter().map(|text| text.parse().unwrap());
    REGISTRY.iter().map(|entry| Spec::of(entry)).chain(variants).collect()
}

/// Uniform numbers in [-1, 1), a pure function of who and when.
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

    fn save(&self, _: &str, _: &mut State) {}

    fn restore(&mut self, _: &str, _: &State) -> Result<(), StateError> {
        Ok(())
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
    pub shares: Participation,
    /// Groups that an exchange that begins early is made of.
    pub groups: Option<Vec<Vec<usize>>>,
}

impl Run {
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
            shares: Participation::equal(workers),
            groups: None,
        }
    }

    pub fn setup(&self) -> GroupConfig<'_> {
        GroupConfig {
            exchange: self.exchange,
            workers: self.workers,
            shares: &self.shares,
            policy: &self.policy,
            tensors: &self.tensors,
            seed: 7,
            initial: &self.initial,
        }
    }

    /// Runs `work` as every worker, and waits for the servers.
    pub fn workers<R: Send>(
        &self,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> (Vec<thread::Result<R>>, Result<Vec<ServerReport>, ExchangeError>) {
        let setup = self.setup();
        let join = |transport| match &self.groups {
            None => Role::join(transport, &setup, || self.optimizer()),
            Some(groups) => {
                ReplicatedOptimizer::overlapped(transport, &setup, groups.clone(), self.optimizer())
                    .map(|exchange| Role::Worker(Box::new(exchange)))
            }
        };
        let launched = launch_with(&setup, self.options, join).unwrap();
        let results = thread::scope(|scope| {
            let threads: Vec<_> = launched
                .workers
                .into_iter()
                .enumerate()
                .map(|(rank, mut exchange)| {
                    let work = &work;
                    scope.spawn(move || work(rank, &mut *exchange))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join()).collect()
        });
        (results, launched.servers.join())
    }

    /// Runs steps `0..steps` on every worker: what each holds, spent and would save at the end.
    pub fn steps(&self, steps: u64) -> Vec<Finished> {
        let (results, servers) = self.workers(|rank, exchange| self.play(rank, exchange, steps));
        servers.unwrap();
        results.into_iter().map(Result::unwrap).collect()
    }

    /// Runs steps `0..steps` as one worker.
    pub fn play(
        &self,
        rank: usize,
        exchange: &mut dyn DistributedOptimizer,
        steps: u64,
    ) -> Finished {
        let mut parameters = self.initial.clone();
        let mut reports = Vec::new();
        for step in 0..steps {
            let gradients = gradients(&self.tensors, rank, step);
            reports.push(
                exchange
                    .step(
                        gradwire_exchange::StepInput::new(step, RATE, &gradients),
                        &mut parameters,
                    )
                    .unwrap(),
            );
        }
        exchange.control().check(steps, &parameters).unwrap();
        let mut state = State::new();
        exchange.save(&mut state).unwrap();
        let global = if rank == 0 { exchange.global_model().unwrap() } else { None };
        Finished { parameters, reports, state, global }
    }

    /// The rule of an optimizer's end.
    pub fn optimizer(&self) -> Box<dyn Optimizer> {
        if self.momentum { Box::new(Momentum::new(&self.tensors)) } else { Box::new(Sgd) }
    }
}

pub const RATE: f32 = 0.125;

/// What one worker is left with.
pub struct Finished {
    pub parameters: Vec<Vec<f32>>,
    pub reports: Vec<StepReport>,
    pub state: State,
    pub global: Option<Vec<Vec<f32>>>,
}

pub fn bits(parameters: &[Vec<f32>]) -> Vec<Vec<u32>> {
    parameters.iter().map(|tensor| tensor.iter().map(|x| x.to_bits()).collect()).collect()
}
