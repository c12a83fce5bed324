//! What a reducer is configured with, and the outcome of an average.

use gradwire::Tensor;

use crate::group_config::adds;
use crate::{Exchange, ExchangeError, Policy};

/// What all ranks of a reducer agree on.
#[derive(Debug, Clone)]
pub struct ReducerConfig {
    /// How ranks average: all-reduce, all-gather or scatter-reduce.
    pub exchange: Exchange,
    /// Which compressor each tensor is sent with.
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
    /// Take the step back on all ranks and give them NaN, for a trainer that scales its losses down then. Costs a message
    /// of one byte between any two ranks for each group, and a second copy of the residuals.
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
    /// The exchange that suits a policy: all-reduce where all messages add; else all-gather among few ranks, whose
    /// `n − 1` messages each rank receives, and scatter-reduce among many, where that number does not grow.
    pub fn suitable(policy: &Policy, ranks: usize) -> Exchange {
        match policy.pushes().all(adds) {
            true => Exchange::AllReduce,
            false if ranks <= 8 => Exchange::AllGather,
            false => Exchange::ScatterReduce,
        }
    }
}

/// Refuses exchanges that need the whole model at once.
pub(crate) fn check_by_groups(exchange: Exchange) -> Result<(), ExchangeError> {
    let by_groups = [Exchange::AllReduce, Exchange::AllGather, Exchange::ScatterReduce];
    if by_groups.contains(&exchange) {
        return Ok(());
    }
    Err(ExchangeError::Config(format!(
        "groups of tensors are averaged by all-reduce, all-gather or scatter-reduce, not by '{exchange}'"
    )))
}
