//! Refusing configurations that cannot run.

use gradwire::Spec;
use gradwire_exchange::Policy;
use gradwire_models::tasks::TaskConfig;

use crate::config::RunConfig;
use crate::error::TrainError;
use crate::rounds::Rounds;
use crate::settings::{Payload, TrainingSettings};
use crate::{overlap, svrg};

/// Refuses a configuration that cannot run, with the reason.
pub(crate) fn validate(config: &RunConfig) -> Result<(), TrainError> {
    config.settings.check().map_err(TrainError::Config)?;
    check_outer(config)?;
    check_momentum(config)?;
    check_median(config)?;
    check_budget(config)?;
    let alike = config.exchange.keeps_replicas_identical();
    if config.send == Payload::Weights && !alike {
        return Err(TrainError::Config(format!(
            "weights are averaged over all workers at once, but '{}' applies the weights of each \
             worker as they arrive; give send=updates, or another exchange",
            config.exchange
        )));
    }
    svrg::check(config)?;
    overlap::check(config)?;
    check_min_workers(config)?;
    check_task(config)
}

/// Refuses a model for other data, and settings and data that do not fit the task.
fn check_task(config: &RunConfig) -> Result<(), TrainError> {
    let task = config.model.task(&config.data).map_err(TrainError::Config)?;
    task.check(&task_config(config)).map_err(TrainError::Config)?;
    match task.examples() {
        0 => Err(TrainError::Config(format!(
            "the task of {} on data set '{}' has no training examples; a run needs at least one",
            config.model, config.data.name
        ))),
        _ => Ok(()),
    }
}

/// Refuses exchanges whose state does not fit another number of workers, or whose workers are at
/// different steps.
fn check_min_workers(config: &RunConfig) -> Result<(), TrainError> {
    let exchange = config.exchange;
    let fits = !exchange.leads() && config.backups() == 0 && exchange.keeps_replicas_identical();
    if config.min_workers.is_none() || fits {
        return Ok(());
    }
    Err(TrainError::Config(format!(
        "min_workers does not work with '{exchange}': residuals of leaders cannot be redistributed, and with backup or \
         asynchronous workers ranks are at different steps; use another exchange"
    )))
}

/// Refuses an outer optimizer without updates to apply, or without a mean of all workers.
fn check_outer(config: &RunConfig) -> Result<(), TrainError> {
    let reason = match config.outer {
        None if config.outer_rate != 1.0 => {
            "an outer learning rate needs an outer optimizer; give --outer, for example --outer nesterov"
                .to_owned()
        }
        Some(_) if config.send != Payload::Updates => format!(
            "an outer optimizer applies the updates of local steps, but {} are sent; give --send \
             updates, or no --outer",
            config.send
        ),
        Some(outer) if !outer.exchanges_gradients() => format!(
            "the outer optimizer {outer} would exchange its momentum, but it applies a mean \
             update; leave out exchange=momentum"
        ),
        Some(outer) if !config.exchange.keeps_replicas_identical() => format!(
            "the outer optimizer {outer} applies the mean of all workers, but '{}' applies the \
             update of each worker as it arrives; give another exchange",
            config.exchange
        ),
        _ => return Ok(()),
    };
    Err(TrainError::Config(reason))
}

/// Refuses an optimizer that exchanges its momentum if no rank has the whole momentum.
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

/// Refuses compressors that do not suit the other settings, at any stage of the schedule and in any
/// rule.
pub(crate) fn check_policy(
    config: &RunConfig,
    policy: &Policy,
    rounds: &Rounds,
) -> Result<(), TrainError> {
    overlap::check_rounds(config, rounds)?;
    svrg::check_rounds(config, rounds)?;
    for spec in policy.pushes() {
        check_weights(config, spec)?;
        check_squares(config, spec)?;
    }
    Ok(())
}

/// Refuses compressors that cannot send weights.
fn check_weights(config: &RunConfig, spec: &Spec) -> Result<(), TrainError> {
    if config.send != Payload::Weights {
        return Ok(());
    }
    if spec.entry().sparse {
        return Err(TrainError::Config(format!(
            "weights are sent whole, but '{spec}' sends few elements; give send=updates, or a quantizer"
        )));
    }
    if spec.own_memory(false).is_some() {
        return Err(TrainError::Config(format!(
            "weights are averaged without a memory, but '{spec}' has a memory for gradients; \
             leave out momentum and ef=ef21, or send gradients or updates"
        )));
    }
    Ok(())
}

/// Refuses compressors that compare a gradient with the squares of its parts, if the parts are not
/// separate gradients, or are not sent.
fn check_squares(config: &RunConfig, spec: &Spec) -> Result<(), TrainError> {
    if !spec.compressor().keeps_squares() {
        return Ok(());
    }
    let reason = if !config.optimizer.exchanges_gradients() {
        format!(
            "the optimizer '{}' sends its momentum; leave out exchange=momentum",
            config.optimizer
        )
    } else if config.svrg > 0 {
        "variance reduction (svrg) sends differences of gradients; leave svrg at 0".to_owned()
    } else if config.overlap {
        "each part has a backward pass of its own; leave overlap off".to_owned()
    } else {
        return Ok(());
    };
    Err(TrainError::Config(format!(
        "'{spec}' compares a gradient with the squares of its parts, but {reason}, or use another compressor"
    )))
}

/// Refuses a budget of bytes together with settings that send bytes that the budget does not count,
/// or change their number.
fn check_budget(config: &RunConfig) -> Result<(), TrainError> {
    let uncounted = [
        (
            config.svrg > 0,
            "variance reduction also sends the gradients of snapshots: leave svrg at 0",
        ),
        (config.median_clip, "clipping to the median also sends norms: leave median_clip off"),
        (
            config.min_workers.is_some(),
            "the budget sets the compressor for this number of workers: leave min_workers off",
        ),
    ];
    match uncounted.iter().find(|(is_set, _)| config.compressor.has_budget() && *is_set) {
        None => Ok(()),
        Some((_, reason)) => Err(TrainError::Config(format!(
            "'{}' has a budget of bytes, but {reason}, or give a compressor without a budget",
            config.compressor
        ))),
    }
}

/// Refuses clipping to the median if workers do not send updates, or there are no other norms for
/// comparison.
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
    let TrainingSettings { workers, batch, .. } = config.settings;
    TaskConfig { workers, batch, augment: config.augments(), seed: config.seed }
}

/// A warning of a configuration that can run but is likely a mistake.
pub(crate) fn warning(config: &RunConfig) -> Option<String> {
    let spec = config.compressor.first();
    let twice = config.optimizer.has_momentum() || config.send.is_local();
    (spec.applies_momentum() && twice).then(|| {
        format!(
            "'{spec}' already applies momentum in its memory, but it compresses the output of an optimizer with \
             momentum or of local steps; give --optimizer sgd with gradients, or momentum=0"
        )
    })
}
