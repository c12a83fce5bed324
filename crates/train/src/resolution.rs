//! Resolves a configuration: the examples of each worker, the compressor of each tensor, the ends
//! of rounds.

use std::ops::Range;
use std::time::Duration;

use gradwire::{Spec, StateError, Tensor};
use gradwire_exchange::{
    AddUpdate, Exchange, ExchangeError, GroupConfig, HEADER_BYTES, Optimizer, Participation,
    Policy, ReplaceParameters, ReplicatedOptimizer, Role, RunDescription, Transport,
};
use gradwire_models::tasks::{Metric, Replica};

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::local::LocalSteps;
use crate::outer::OuterOptimizer;
use crate::overlap;
use crate::rounds::Rounds;
use crate::settings::Payload;
use crate::svrg;
use crate::validation::{check_policy, task_config, validate};

/// The longest that a rank waits in rounds of many steps. A rank that dies is noticed at once.
const LONGEST_DEADLINE: Duration = Duration::from_secs(24 * 3600);

/// A configuration, resolved for the workers of this process.
pub(crate) struct Resolution<'a> {
    /// The replicas of these workers.
    pub(crate) replicas: Vec<Box<dyn Replica + 'a>>,
    pub(crate) tensors: Vec<Tensor>,
    /// The measure of the model's quality.
    pub(crate) metric: Metric,
    /// The parameters that all workers begin with.
    pub(crate) parameters: Vec<Vec<f32>>,
    pub(crate) participation: Participation,
    pub(crate) policy: Policy,
    pub(crate) rounds: Rounds,
    /// The groups of tensors; `None` without overlap.
    groups: Option<Vec<Vec<usize>>>,
}

impl<'a> Resolution<'a> {
    /// Resolves a configuration, with the replicas of these workers.
    pub(crate) fn new(config: &'a RunConfig, workers: Range<usize>) -> Result<Self, TrainError> {
        let task = config.model.task(&config.data).map_err(TrainError::Config)?;
        let mut shards =
            task.shards(&config.split, config.workers, config.seed).map_err(TrainError::Config)?;
        let participation = participation_of(config, shards.as_deref());
        let (task_config, first) = (task_config(config), workers.start);
        let replicas = workers
            .map(|rank| {
                let shard = shards.as_mut().map(|shards| std::mem::take(&mut shards[rank]));
                task.replica(&task_config, rank, shard)
            })
            .collect::<Result<Vec<_>, _>>()?;
        check_replicas(config, first, &replicas)?;
        let parameters = replicas[0].initial_parameters(config.seed);
        let tensors = replicas[0].tensors().to_vec();
        let groups = overlap::groups(config, &*replicas[0]);
        let (policy, rounds) = policy_of(config, &tensors)?;
        let metric = task.metric();
        Ok(Self { replicas, tensors, metric, parameters, participation, policy, rounds, groups })
    }

    /// Restores parameters and replicas from a checkpoint.
    pub(crate) fn restore(
        &mut self,
        checkpoint: &Checkpoint,
        workers: usize,
    ) -> Result<(), StateError> {
        self.parameters = checkpoint.restore(&mut self.replicas, workers)?;
        Ok(())
    }

    /// The configuration that all ranks agree on.
    pub(crate) fn group_config<'b>(&'b self, config: &RunConfig) -> GroupConfig<'b> {
        GroupConfig {
            exchange: config.exchange,
            participation: &self.participation,
            policy: &self.policy,
            tensors: &self.tensors,
            seed: config.seed,
            initial: &self.parameters,
        }
    }

    /// The optimizer of a rank that updates the common parameters.
    fn optimizer(&self, config: &RunConfig) -> Box<dyn Optimizer> {
        match config.send {
            Payload::Gradients => config.optimizer.build(&self.tensors, config.weight_decay),
            Payload::Updates => match config.outer {
                Some(outer) => {
                    let optimizer = outer.build(&self.tensors, 0.0);
                    Box::new(OuterOptimizer::new(optimizer, config.outer_rate))
                }
                None => Box::new(AddUpdate),
            },
            Payload::Weights => Box::new(ReplaceParameters),
        }
    }

    /// The local steps of a worker; `None` if it sends gradients.
    pub(crate) fn local_steps(&self, config: &RunConfig) -> Option<LocalSteps> {
        config.send.is_local().then(|| {
            let optimizer = config.optimizer.build(&self.tensors, config.weight_decay);
            let parameters = self.parameters.clone();
            LocalSteps { parameters, optimizer, mask: config.mask, send: config.send }
        })
    }

    /// How long a rank waits for another: an absent rank waits as long as the round lasts.
    pub(crate) fn deadline(&self, config: &RunConfig) -> Duration {
        let longest = u32::try_from(self.rounds.longest()).unwrap_or(u32::MAX);
        config.deadline().saturating_mul(longest).min(LONGEST_DEADLINE.max(config.deadline()))
    }

    /// This rank's end of the exchange.
    pub(crate) fn join(
        &self,
        config: &RunConfig,
        transport: Box<dyn Transport>,
    ) -> Result<Role, ExchangeError> {
        let (setup, optimizer) = (self.group_config(config), || self.optimizer(config));
        match &self.groups {
            None => Role::join(transport, &setup, optimizer),
            Some(groups) => {
                let groups = groups.clone();
                ReplicatedOptimizer::overlapped(transport, &setup, groups, optimizer())
                    .map(|exchange| Role::Worker(Box::new(exchange)))
            }
        }
    }
}

/// Refuses replicas that cannot train together, the first of which belongs to worker `first`.
fn check_replicas(
    config: &RunConfig,
    first: usize,
    replicas: &[Box<dyn Replica + '_>],
) -> Result<(), TrainError> {
    let reference = &*replicas[0];
    svrg::check_replica(config, reference)?;
    overlap::check_replica(config, reference)?;
    if reference.test_examples() == 0 {
        return Err(TrainError::Config(format!(
            "the replica of {} on data set '{}' has no test examples; an evaluation needs at least one",
            config.model, config.data.name
        )));
    }
    for (at, replica) in replicas.iter().enumerate() {
        let (rank, model) = (first + at, &config.model);
        if let Some([theirs, ours]) = first_difference(replica.tensors(), reference.tensors()) {
            return Err(TrainError::Config(format!(
                "the replica of {model} on worker {rank} has {theirs}, but on worker {first} {ours}; give the model the same \
                 tensors on all workers, whatever the rank and its shard of the data"
            )));
        }
    }
    Ok(())
}

/// The first tensors that differ, in words.
fn first_difference(theirs: &[Tensor], ours: &[Tensor]) -> Option<[String; 2]> {
    let named = |tensors: &[Tensor], at: usize| match tensors.get(at) {
        Some(tensor) => format!("tensor '{}' of shape {:?}", tensor.name(), tensor.shape()),
        None => "no more tensors".to_owned(),
    };
    let places = 0..theirs.len().max(ours.len());
    let mut pairs = places.map(|at| [named(theirs, at), named(ours, at)]);
    pairs.find(|[theirs, ours]| theirs != ours)
}

/// The compressor of each tensor at each step, and the ends of rounds.
fn policy_of(config: &RunConfig, tensors: &[Tensor]) -> Result<(Policy, Rounds), TrainError> {
    if config.compressor.has_budget() && !config.rules.is_empty() {
        let reason = "a budget is divided among the tensors of one compressor; leave out the rules";
        return Err(TrainError::Config(reason.to_owned()));
    }
    if config.compressor.has_budget() && !config.exchange.facts().sends_own_messages {
        return Err(TrainError::Config(format!(
            "a budget counts the bytes of messages, but '{}' also sends sums that grow, or \
             uncompressed gradients inside a node; use all-gather, scatter-reduce or server",
            config.exchange
        )));
    }
    let policy = Policy {
        rules: config.rules.clone(),
        raw_vectors: config.raw_vectors,
        raw_below: config.raw_below,
        raw_names: config.raw_names.clone(),
        ..Policy::new(config.compressor.first())
    };
    let (raw, compressed): (Vec<_>, Vec<_>) = tensors.iter().partition(|t| policy.is_raw(t));
    let elements = |tensors: Vec<&Tensor>| -> Vec<usize> {
        tensors.into_iter().map(Tensor::elements).collect()
    };
    let schedule = config.compressor.resolve(RunDescription {
        steps: config.steps,
        drops: &config.learning_rate.drops(config.steps),
        compressed: &elements(compressed),
        raw: &elements(raw),
        sends: sends(config),
        headers: headers(config.exchange, tensors.len(), config.workers),
    });
    let push = schedule.map_err(|error| TrainError::Config(error.to_string()))?;
    if !push.later.is_empty() && config.backups() > 0 {
        let reason = "with backup workers, ranks reach the next compressor of a schedule at \
            different times; give backup=0, or one compressor throughout";
        return Err(TrainError::Config(reason.to_owned()));
    }
    let rounds = Rounds::new(&push, config.steps);
    // Updates and weights are applied unchanged, so servers send lossless means.
    let pull =
        if config.send.is_local() { Some(lossless(&push.first)) } else { policy.pull.clone() };
    let policy = Policy { push, pull, ..policy };
    check_policy(config, &policy, &rounds)?;
    Ok((policy, rounds))
}

/// How often a worker sends its messages in a round, on average.
fn sends(config: &RunConfig) -> f64 {
    let drawn = config.participants() as f64;
    // If all participants dropped out, one of them stays.
    let arrive = 1.0 - config.dropout + config.dropout.powf(drawn) / drawn;
    let present = drawn / config.workers as f64 * arrive;
    let receivers = config.exchange.receivers(config.workers);
    match config.exchange.facts().absent_ranks_send {
        true => receivers / 2.0 * (present + 1.0),
        false => receivers * present,
    }
}

/// Bytes of the headers around a worker's messages for this number of tensors.
fn headers(exchange: Exchange, tensors: usize, workers: usize) -> usize {
    /// The most bytes a slice adds: an element, and the message around it.
    const SLICE_BYTES: usize = 24;
    match exchange {
        // Cutting tensors makes additional slices.
        Exchange::ScatterReduce => HEADER_BYTES + (workers - 1) * SLICE_BYTES,
        // One for each tensor, and one with the learning rate for each server.
        Exchange::ParameterServer { servers, .. } => {
            tensors * HEADER_BYTES + servers * (HEADER_BYTES + 12)
        }
        _ => HEADER_BYTES,
    }
}

/// A lossless compressor for means of messages of `push`.
fn lossless(push: &Spec) -> Spec {
    if push.entry().sparse { Spec::nonzero() } else { Spec::none() }
}

/// Which workers take part in each round, weighted by their numbers of examples.
fn participation_of(config: &RunConfig, shards: Option<&[Vec<u32>]>) -> Participation {
    let participation = match shards {
        Some(shards) => {
            Participation::weighted(shards.iter().map(|shard| shard.len() as f64).collect())
        }
        None => Participation::equal(config.workers),
    };
    participation.with_participants(config.participants(), config.dropout, config.seed)
}

/// Refuses a configuration that cannot run with its number of workers. Makes the model of one
/// worker.
pub(crate) fn check_attempt(config: &RunConfig) -> Result<(), TrainError> {
    validate(config)?;
    let resolution = Resolution::new(config, 0..1)?;
    resolution.group_config(config).validate().map_err(TrainError::Servers)
}
