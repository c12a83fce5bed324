//! The configuration of a reducer, and the outcome of an average.

use gradwire::Tensor;

use crate::error::refuse;
use crate::group_config::adds;
use crate::{Exchange, GroupConfig, Participation, Policy, Result};

/// The configuration of a reducer, the same on all ranks.
#[derive(Debug, Clone)]
pub struct ReducerConfig {
    /// How ranks average: all-reduce, all-gather or scatter-reduce; reduce-scatter or gather-shards where each rank
    /// has a shard of the model.
    pub exchange: Exchange,
    /// The compressor of each tensor.
    pub policy: Policy,
    /// The tensors of the model; names are unique.
    pub tensors: Vec<Tensor>,
    /// The run's seed.
    pub seed: u64,
    /// What to do about gradients that are not finite.
    pub on_non_finite: OnNonFinite,
}

/// What to do about a step in which some rank's gradients are not finite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnNonFinite {
    /// Fail with an error that names the tensor.
    Refuse,
    /// Skip the step: roll back the residuals on all ranks and return NaN, for a trainer that then scales its losses
    /// down. All values of a buffer count, also padding and the places of other ranks' shards: let them be zeros. Costs, for
    /// each group, a message of one byte between any two ranks, and a second copy of the residuals.
    Skip,
}

/// The outcome of an average.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The values are the mean.
    Averaged,
    /// The step is skipped on all ranks: the values are NaN, and all residuals are as they were before it.
    Skipped,
}

impl ReducerConfig {
    /// The exchange that suits a policy: all-reduce if messages can be added; otherwise all-gather up to 8 ranks, and
    /// scatter-reduce beyond, because in an all-gather each rank receives `n − 1` messages.
    pub fn suitable(policy: &Policy, ranks: usize) -> Exchange {
        match policy.pushes().all(adds) {
            true => Exchange::AllReduce,
            false if ranks <= 8 => Exchange::AllGather,
            false => Exchange::ScatterReduce,
        }
    }

    /// The configuration of one group of tensors.
    pub(super) fn of_group<'a>(
        &'a self,
        tensors: &'a [Tensor],
        participation: &'a Participation,
    ) -> GroupConfig<'a> {
        GroupConfig {
            exchange: self.exchange,
            workers: participation.workers(),
            policy: &self.policy,
            participation,
            tensors,
            seed: self.seed,
            initial: &[],
        }
    }
}

/// Refuses exchanges that need the whole model at once.
pub(crate) fn check_by_groups(exchange: Exchange) -> Result<()> {
    let by_groups = [Exchange::AllReduce, Exchange::AllGather, Exchange::ScatterReduce];
    if by_groups.contains(&exchange) || exchange.is_sharded() {
        return Ok(());
    }
    refuse(format!(
        "groups of tensors are averaged by all-reduce, all-gather or scatter-reduce, not by '{exchange}'"
    ))
}
