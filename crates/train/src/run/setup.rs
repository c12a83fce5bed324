//! A run's configuration, checked and resolved: each worker's examples, the policy of compression, and the rounds.

use gradwire::{Family, Memory, Spec};
use gradwire_exchange::{Exchange, HEADER_BYTES, Participation, Policy};

use super::learner::check_data;
use super::rounds::Rounds;
use super::{Payload, RunConfig, TrainError, overlap, svrg};
use crate::plan::Course;
use gradwire_models::Split;
use gradwire_models::data::Content;

/// Refuses a configuration that cannot run, with the reason.
pub(super) fn validate(config: &RunConfig) -> Result<(), TrainError> {
    config.settings.check().map_err(TrainError::Config)?;
    if config.send == Payload::Weights && is_sparse(config.compressor.first()) {
        return Err(TrainError::Config(format!(
            "weights travel whole, and '{}' sends few elements; give send=updates, or a quantizer",
            config.compressor
        )));
    }
    svrg::check(config)?;
    overlap::check(config)?;
    check_data(config)
}

/// Each worker's own examples; `None` where all share all, as the parts of a text always are.
pub(super) fn shards_of(config: &RunConfig) -> Result<Option<Vec<Vec<u32>>>, TrainError> {
    match (&config.data.content, &config.split) {
        (Content::Images(images), Split::Shared | Split::Shards { .. }) => config
            .split
            // How many there are decides, not what they are labelled.
            .shards(&vec![0; images.train.len()], config.workers, config.seed)
            .map_err(TrainError::Config),
        (Content::Ratings(ratings), Split::Shared | Split::Shards { .. }) => config
            .split
            .shards(&vec![0; ratings.train.len()], config.workers, config.seed)
            .map_err(TrainError::Config),
        (Content::Images(images), split) if images.train.is_masked() => {
            Err(TrainError::Config(format!(
                "the split '{split}' is by classes, and each image with a mask has several; \
                 take shared or shards"
            )))
        }
        (Content::Images(images), split) => split
            .shards(&images.train.labels, config.workers, config.seed)
            .map_err(TrainError::Config),
        (Content::Text(_), Split::Shared | Split::Shards { sizes: None }) => Ok(None),
        (Content::Ratings(_), split) => Err(TrainError::Config(format!(
            "the split '{split}' is by classes, which ratings have none of; take shared or shards"
        ))),
        (Content::Text(_), split) => Err(TrainError::Config(format!(
            "the split '{split}' is for images; a text is cut in equal parts, one after the other"
        ))),
    }
}

/// Which compressor each tensor has in each phase of the run, and where rounds end.
pub(super) fn policy_of(
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
        raw_vectors: config.raw_vectors,
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
        headers: headers(config.exchange, tensors.len(), config.workers),
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
    // Servers send updates and weights back without loss.
    let pull = if config.send.is_local() { Some(lossless(&push)) } else { policy.pull.clone() };
    let policy = Policy { push, later: phases.collect(), pull, ..policy };
    overlap::check_plan(config, &policy, &rounds)?;
    Ok((policy, rounds))
}

/// How often a worker sends its messages in a round, on average.
fn sends(config: &RunConfig) -> f64 {
    let drawn = config.participants() as f64;
    // Where all drawn would drop out, one of them does not.
    let arrive = 1.0 - config.dropout + config.dropout.powf(drawn) / drawn;
    let present = drawn / config.workers as f64 * arrive;
    let receivers = config.exchange.receivers(config.workers);
    match config.exchange {
        // Owners pass means on whether they had a part in them or not.
        Exchange::ScatterReduce => receivers / 2.0 * (present + 1.0),
        _ => receivers * present,
    }
}

/// Bytes of the headers around a worker's messages for `tensors` tensors.
fn headers(exchange: Exchange, tensors: usize, workers: usize) -> usize {
    /// The most that a slice takes of its own: an element, and a message around it.
    const SLICE_BYTES: usize = 24;
    match exchange {
        // Cuts make further slices.
        Exchange::ScatterReduce => HEADER_BYTES + (workers - 1) * SLICE_BYTES,
        // One for each tensor, and one with the learning rate for each server.
        Exchange::ParameterServer { servers, .. } => {
            tensors * HEADER_BYTES + servers * (HEADER_BYTES + 12)
        }
        _ => HEADER_BYTES,
    }
}

/// A warning of a configuration that can run, and is likely a mistake.
pub(super) fn warning(config: &RunConfig) -> Option<String> {
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

/// A compressor that carries the mean of such messages without loss.
fn lossless(push: &Spec) -> Spec {
    let id = if is_sparse(push) { "threshold" } else { "none" };
    id.parse().expect("the registry has both")
}

/// Whether messages carry few of a tensor's elements.
fn is_sparse(spec: &Spec) -> bool {
    matches!(spec.entry().family, Family::Sparsification | Family::Hybrid)
}

/// Workers count by the examples they have, and take part as configured.
pub(super) fn shares_of(config: &RunConfig, shards: Option<&[Vec<u32>]>) -> Participation {
    let shares = match shards {
        Some(shards) => {
            Participation::weighted(shards.iter().map(|shard| shard.len() as f64).collect())
        }
        None => Participation::equal(config.workers),
    };
    shares.with_participants(config.participants(), config.dropout, config.seed)
}
