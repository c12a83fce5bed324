//! Overlap of the exchange with back-propagation: the settings that it needs, and the groups of
//! tensors that are exchanged together.

use gradwire_exchange::fuse;
use gradwire_models::tasks::Replica;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::rounds::Rounds;
use crate::settings::Payload;

/// The fewest bytes of a group, as `f32`. On a fast network, sending them takes about as long as
/// the fixed cost of a message.
const MIN_BYTES: usize = 64 << 10;

/// Refuses settings that need all gradients at once, or gradients of more than one backward pass.
pub(crate) fn check(config: &RunConfig) -> Result<(), TrainError> {
    if !config.overlap {
        return Ok(());
    }
    let mut obstacles = obstacles(config).into_iter();
    obstacles.find(|(stands, _)| *stands).map_or(Ok(()), |(_, what)| refuse(&what))
}

/// Whether each obstacle is there, with the reason and the remedy.
fn obstacles(config: &RunConfig) -> [(bool, String); 7] {
    [
        (
            !config.exchange.facts().averages_groups,
            format!(
                "'{}' needs all gradients of a step at once; use all-reduce, all-gather or scatter-reduce",
                config.exchange
            ),
        ),
        (
            config.send != Payload::Gradients,
            format!("{} are known only at the end of a round; send gradients", config.send),
        ),
        (
            config.participation < 1.0 || config.dropout > 0.0,
            "it needs every worker in every round; leave participation at 1 and dropout at 0"
                .to_owned(),
        ),
        (
            config.compressor.has_budget(),
            "a budget is met by sending less often; give a compressor and its ratio".to_owned(),
        ),
        (
            config.clip.is_some(),
            "the norm of a gradient is known only when the whole gradient is; give --clip off"
                .to_owned(),
        ),
        (config.l1 > 0.0, "the ℓ1 penalty is added to whole gradients; leave l1 at 0".to_owned()),
        (
            config.svrg > 0,
            "variance reduction needs two backward passes for each gradient; leave svrg at 0"
                .to_owned(),
        ),
    ]
}

/// Refuses a model whose gradients become final at the same time, or whose order of gradients
/// leaves out a tensor.
pub(crate) fn check_replica(config: &RunConfig, replica: &dyn Replica) -> Result<(), TrainError> {
    let order = replica.gradient_order();
    if !config.overlap {
        return Ok(());
    }
    if order.len() <= 1 {
        return refuse(&format!(
            "{} computes all gradients at once; use a gpt or a model of images",
            config.model
        ));
    }
    let mut tensors = order.concat();
    tensors.sort_unstable();
    if tensors.into_iter().eq(0..replica.tensors().len()) {
        return Ok(());
    }
    refuse(&format!(
        "the gradient_order of {} does not have each of its tensors once; list every tensor in one group",
        config.model
    ))
}

/// Refuses rounds of several steps.
pub(crate) fn check_rounds(config: &RunConfig, rounds: &Rounds) -> Result<(), TrainError> {
    if !config.overlap || rounds.longest() <= 1 {
        return Ok(());
    }
    refuse(
        "a round of several steps sends the sum of their gradients; leave out every, or give every=1",
    )
}

fn refuse<R>(what: &str) -> Result<R, TrainError> {
    let begins = "overlap sends gradients while others are still being computed";
    Err(TrainError::Config(format!("{begins}, but {what}, or leave overlap off")))
}

/// The groups in which tensors are exchanged; `None` without overlap.
pub(crate) fn groups(config: &RunConfig, replica: &dyn Replica) -> Option<Vec<Vec<usize>>> {
    config.overlap.then(|| fuse(&replica.gradient_order(), replica.tensors(), MIN_BYTES))
}
