//! Refusing configurations that cannot run.

use gradwire_exchange::Policy;
use gradwire_models::tasks::{self, TaskConfig};

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::resolution::Resolution;
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
    let spec = config.compressor.first();
    if config.send == Payload::Weights && spec.own_memory(false).is_some() {
        return Err(TrainError::Config(format!(
            "weights are averaged as they are, and '{spec}' has a memory that is made for gradients; leave out momentum and \
             ef=ef21, or send gradients or updates"
        )));
    }
    check_outer(config)?;
    check_momentum(config)?;
    check_median(config)?;
    let alike = config.exchange.keeps_replicas_identical();
    if config.send == Payload::Weights && !alike {
        return Err(TrainError::Config(format!(
            "weights are averaged over all workers at once, and '{}' applies those of each as they come; give \
             send=updates, or another exchange",
            config.exchange
        )));
    }
    svrg::check(config)?;
    overlap::check(config)?;
    elastic::check(config)?;
    tasks::check(&config.data, &task_config(config)).map_err(TrainError::Config)
}

/// Refuses what [`run`](crate::run()) refuses before it trains.
///
/// # Errors
/// As there, for a configuration that cannot work. Makes the model of one worker.
pub fn check(config: &RunConfig) -> Result<(), TrainError> {
    validate(config)?;
    let resolution = Resolution::new(config, 0..1)?;
    resolution.group_config(config).validate().map_err(TrainError::Servers)
}

/// Refuses an outer optimizer that has nothing to apply, or no mean of all workers.
fn check_outer(config: &RunConfig) -> Result<(), TrainError> {
    let reason = match config.outer {
        None if config.outer_rate != 1.0 => {
            "the outer learning rate is that of an outer optimizer; give --outer, such as nesterov"
                .to_owned()
        }
        Some(_) if config.send != Payload::Updates => format!(
            "an outer optimizer applies the updates of local steps, and {} are sent; give --send updates, or no --outer",
            config.send
        ),
        Some(outer) if !outer.exchanges_gradients() => format!(
            "the outer optimizer {outer} would exchange its momentum, and it is given the mean update; leave out \
             exchange=momentum"
        ),
        Some(outer) if !config.exchange.keeps_replicas_identical() => format!(
            "the outer optimizer {outer} applies the mean of all workers, and '{}' applies the update of each as it \
             comes; give another exchange",
            config.exchange
        ),
        _ => return Ok(()),
    };
    Err(TrainError::Config(reason))
}

/// Refuses an optimizer that exchanges its momentum where no rank has the momentum of all.
fn check_momentum(config: &RunConfig) -> Result<(), TrainError> {
    let conditions = [
        (config.send == Payload::Gradients, "gradients: give --send gradients"),
        (config.exchange.servers() == 0, "an exchange without servers"),
        (!config.overlap, "no overlap: give --overlap off"),
        (config.svrg == 0, "no variance reduction: give --svrg 0"),
    ];
    let exchanges_momentum = !config.optimizer.exchanges_gradients();
    match conditions.iter().find(|(holds, _)| exchanges_momentum && !holds) {
        None => Ok(()),
        Some((_, need)) => {
            Err(TrainError::Config(format!("the optimizer '{}' needs {need}", config.optimizer)))
        }
    }
}

/// Refuses compressors that compare a gradient with the squares of its parts, where a momentum is sent.
pub(crate) fn check_squares(config: &RunConfig, policy: &Policy) -> Result<(), TrainError> {
    let keeps = policy.pushes().find(|spec| spec.compressor().keeps_squares());
    match keeps.filter(|_| !config.optimizer.exchanges_gradients()) {
        None => Ok(()),
        Some(spec) => Err(TrainError::Config(format!(
            "'{spec}' compares a gradient with the squares of its parts, and the optimizer '{}' sends its momentum; leave out \
             exchange=momentum, or take another compressor",
            config.optimizer
        ))),
    }
}

/// Refuses clipping to the median where there is no update of every worker, or nobody to compare norms with.
fn check_median(config: &RunConfig) -> Result<(), TrainError> {
    let everyone = config.participation == 1.0 && config.dropout == 0.0;
    let conditions = [
        (config.send == Payload::Updates, "updates: give --send updates"),
        (everyone, "every worker in every round"),
        (config.exchange.servers() == 0, "an exchange without servers"),
    ];
    match conditions.iter().find(|(holds, _)| config.median_clip && !holds) {
        None => Ok(()),
        Some((_, need)) => {
            Err(TrainError::Config(format!("clipping to the median norm needs {need}")))
        }
    }
}

/// The settings that the task depends on.
pub(crate) fn task_config(config: &RunConfig) -> TaskConfig {
    let TrainingSettings { model, workers, batch, .. } = config.settings;
    TaskConfig { model, workers, batch, augment: config.augments(), seed: config.seed }
}

/// A warning of a configuration that can run but is likely a mistake.
pub(crate) fn warning(config: &RunConfig) -> Option<String> {
    let spec = config.compressor.first();
    let twice = config.optimizer.has_momentum() || config.send.is_local();
    (spec.applies_momentum() && twice).then(|| {
        format!(
            "'{spec}' has the momentum in its memory already, and what it compresses has been through an \
             optimizer with momentum or through local steps; give --optimizer sgd with gradients, or momentum=0"
        )
    })
}
