//! Exchanging while gradients are still being computed: what goes with it, and which tensors travel together.

use gradwire_exchange::{End, Exchange, ExchangeError, Overlapped, Policy, Transport, fuse};

use super::learner::Learner;
use super::rounds::Rounds;
use super::session::Parts;
use super::{Payload, RunConfig, TrainError};
use gradwire_models::models::Task;

/// Bytes of gradients that travel together at least, as `f32`: a message costs about as much as so many on a fast
/// network.
const LEAST_BYTES: usize = 64 << 10;

/// Refuses what needs gradients whole, or from other than each step's backward pass.
pub(super) fn check(config: &RunConfig) -> Result<(), TrainError> {
    if !config.overlap {
        return Ok(());
    }
    let mut obstacles = obstacles(config).into_iter();
    obstacles.find(|(stands, _)| *stands).map_or(Ok(()), |(_, what)| refuse(&what))
}

/// What stands in the way, each with the remedy.
fn obstacles(config: &RunConfig) -> [(bool, String); 8] {
    let by_groups = [Exchange::AllReduce, Exchange::AllGather, Exchange::ScatterReduce];
    let task = config.model.task();
    [
        (
            !matches!(task, Task::Images | Task::Masks),
            format!("{} knows its gradients all at once; take a model of images", config.model),
        ),
        (
            !by_groups.contains(&config.exchange),
            format!(
                "'{}' takes a step's gradients whole; take all-reduce, all-gather or scatter-reduce",
                config.exchange
            ),
        ),
        (
            config.send != Payload::Gradients,
            format!("{} are known when a round is over; send gradients", config.send),
        ),
        (
            config.participation < 1.0 || config.dropout > 0.0,
            "every worker must take part in every round; leave participation at 1 and dropout at 0"
                .to_owned(),
        ),
        (
            config.compressor.has_budget(),
            "a budget is kept by sending less often; give a compressor and its ratio".to_owned(),
        ),
        (
            config.clip.is_some(),
            "the norm of a gradient is known when all of it is; leave clip off".to_owned(),
        ),
        (config.l1 > 0.0, "the ℓ1 penalty is added to whole gradients; leave l1 at 0".to_owned()),
        (
            config.svrg > 0,
            "variance reduction takes two backward passes for a gradient; leave svrg at 0"
                .to_owned(),
        ),
    ]
}

/// The same of what a plan of compressors came to.
pub(super) fn check_plan(
    config: &RunConfig,
    policy: &Policy,
    rounds: &Rounds,
) -> Result<(), TrainError> {
    if !config.overlap {
        return Ok(());
    }
    if rounds.longest() > 1 {
        return refuse(
            "a round of several steps sends their sum; leave out every, or give every=1",
        );
    }
    let later = policy.later.iter().map(|(_, spec)| spec);
    let rules = policy.rules.iter().map(|rule| &rule.spec);
    let mut specs = std::iter::once(&policy.push).chain(later).chain(rules);
    match specs.find(|spec| spec.compressor().keeps_squares()) {
        None => Ok(()),
        Some(spec) => refuse(&format!(
            "'{spec}' goes by the parts of a batch, each of which has a backward pass of its own; take another \
             compressor"
        )),
    }
}

fn refuse<R>(what: &str) -> Result<R, TrainError> {
    let begins = "with overlap gradients leave one after the other while others are computed";
    Err(TrainError::Config(format!("{begins}, and {what}, or leave overlap off")))
}

impl Parts<'_> {
    /// This rank's end of the exchange.
    pub(super) fn join(
        &self,
        config: &RunConfig,
        transport: Box<dyn Transport>,
    ) -> Result<End, ExchangeError> {
        let (setup, optimizer) = (self.setup(config), || self.optimizer(config));
        match &self.groups {
            None => End::join(transport, &setup, optimizer),
            Some(groups) => Overlapped::new(transport, &setup, groups.clone(), optimizer())
                .map(|exchange| End::Worker(Box::new(exchange))),
        }
    }
}

/// The groups in which a learner's tensors travel; `None` where all leave together.
pub(super) fn groups(config: &RunConfig, learner: &Learner<'_>) -> Option<Vec<Vec<usize>>> {
    config.overlap.then(|| fuse(&learner.order(), learner.tensors(), LEAST_BYTES))
}
