//! Refusing configurations that cannot run.

use gradwire_models::tasks::{self, TaskConfig};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::settings::{Payload, TrainingSettings};
use crate::{elastic, overlap, svrg};

/// Refuses a configuration that cannot run, with the reason.
pub(crate) fn validate(config: &RunConfig) -> Result<(), TrainError> {
    config.settings.check().map_err(TrainError::Config)?;
    if config.send == Payload::Weights && config.compressor.first().entry().sparse {
        return Err(TrainError::Config(format!(
            "weights travel whole, and '{}' sends few elements; give send=updates, or a quantizer",
            config.compressor
        )));
    }
    if config.outer.is_some() && config.send != Payload::Updates {
        return Err(TrainError::Config(format!(
            "an outer optimizer applies the updates of local steps, and {} are sent; give send=updates, or no outer",
            config.send
        )));
    }
    svrg::check(config)?;
    overlap::check(config)?;
    elastic::check(config)?;
    tasks::check(&config.data, &task_config(config)).map_err(TrainError::Config)
}

/// The settings that the task depends on.
pub(crate) fn task_config(config: &RunConfig) -> TaskConfig {
    let TrainingSettings { model, workers, batch, .. } = config.settings;
    TaskConfig { model, workers, batch, augment: config.augments(), seed: config.seed }
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
