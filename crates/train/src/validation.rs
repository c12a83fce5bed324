//! Refusing configurations that cannot run.

use gradwire_models::tasks::{self, TaskConfig};

use crate::config::{Payload, RunConfig};
use crate::error::TrainError;
use crate::{overlap, svrg};

/// Refuses a configuration that cannot run, with the reason.
pub(crate) fn validate(config: &RunConfig) -> Result<(), TrainError> {
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
    if config.send == Payload::Weights && config.compressor.first().entry().sparse {
        return Err(TrainError::Config(format!(
            "weights travel whole, and '{}' sends few elements; give send=updates, or a quantizer",
            config.compressor
        )));
    }
    if config.clip.is_some_and(|norm| !(norm > 0.0 && norm.is_finite())) {
        return refuse("the bound on the gradient's norm must be a positive number");
    }
    if let Some(straggler) = config.straggler.filter(|one| one.worker >= config.workers) {
        return Err(TrainError::Config(format!(
            "worker {} is to be held up, and there are workers 0 to {}; name one of those",
            straggler.worker,
            config.workers - 1
        )));
    }
    svrg::check(config)?;
    overlap::check(config)?;
    tasks::check(&config.data, &task_config(config)).map_err(TrainError::Config)
}

/// The settings that the task depends on.
pub(crate) fn task_config(config: &RunConfig) -> TaskConfig {
    let RunConfig { model, workers, batch, augment, seed, .. } = *config;
    TaskConfig { model, workers, batch, augment, seed }
}

/// A warning of a configuration that can run but is likely a mistake.
pub(crate) fn warning(config: &RunConfig) -> Option<String> {
    let spec = config.compressor.first();
    let compressor = spec.compressor();
    let memory = compressor.own_memory(spec.memory().is_some(), false);
    let corrects = memory.is_some_and(|memory| memory.replaces_momentum());
    let twice = config.optimizer.has_momentum() || config.send.is_local();
    (corrects && twice).then(|| {
        format!(
            "'{spec}' has the momentum in its memory already, and what it compresses has been through an \
             optimizer with momentum or through local steps; give --optimizer sgd with gradients, or momentum=0"
        )
    })
}
