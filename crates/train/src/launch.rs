//! A run whose workers are threads of this process.

use gradwire_exchange::{DistributedOptimizer, in_process, launch};

use crate::config::RunConfig;
use crate::coordination::ThreadGroup;
use crate::elastic::{Attempt, Interrupted, check_fewer};
use crate::error::TrainError;
use crate::memory::check_memory;
use crate::observer::Observer;
use crate::options::RunOptions;
use crate::record::RunRecord;
use crate::session::{Session, read_checkpoint};
use crate::validation::validate;

#[cfg(test)]
mod tests;

/// Trains, and evaluates at the end.
///
/// Deterministic: the same configuration gives the same bits on any number of cores, except with
/// backup or asynchronous workers. A run resumed from a checkpoint gives the bits of an
/// uninterrupted run.
///
/// # Errors
/// See [`TrainError`]. All threads have ended when it returns. If several fail, it returns the
/// error that explains the others.
pub fn run(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
) -> Result<RunRecord, TrainError> {
    run_wrapped(config, observer, options, &|_, exchange| exchange)
}

/// Replaces a worker's end of the exchange before it is used; tests inject failures here.
type Wrap<'a> = &'a dyn Fn(usize, Box<dyn DistributedOptimizer>) -> Box<dyn DistributedOptimizer>;

/// [`run`], with each worker's exchange wrapped.
fn run_wrapped(
    config: &RunConfig,
    observer: &dyn Observer,
    options: &RunOptions,
    wrap: Wrap<'_>,
) -> Result<RunRecord, TrainError> {
    validate(config)?;
    check_fewer(config)?;
    check_memory(config, config.workers)?;
    options.check_save()?;
    let checkpoint = match &options.resume {
        Some(path) => Some(Box::new(read_checkpoint(path, config, observer)?)),
        None => None,
    };
    let mut attempt = Attempt::first(config, checkpoint);
    loop {
        match train(&attempt, observer, options, wrap) {
            Ok(record) => return Ok(record),
            Err(interrupted) => attempt = attempt.next(interrupted, observer)?,
        }
    }
}

/// Trains with a fixed number of workers.
fn train(
    attempt: &Attempt,
    observer: &dyn Observer,
    options: &RunOptions,
    wrap: Wrap<'_>,
) -> Result<RunRecord, Interrupted> {
    let config = &attempt.config;
    let session = Session::new(attempt, observer, options);
    let mut resolution = session.resolve(0..config.workers)?;
    let transport =
        in_process::Options { deadline: resolution.deadline(config), link: options.link };
    let join = |transport| resolution.join(config, transport);
    let launched =
        launch(&resolution.group_config(config), transport, join).map_err(TrainError::Servers)?;
    let replicas = std::mem::take(&mut resolution.replicas);
    let workers = replicas
        .into_iter()
        .zip(launched.workers)
        .enumerate()
        .map(|(rank, (replica, exchange))| (rank, replica, wrap(rank, exchange)))
        .collect();
    let group = ThreadGroup::new(config.workers);
    let (recorder, parameters) =
        session.train(workers, &resolution, Some(&group), Some(launched.servers))?;
    Ok(session.record(recorder, &resolution, &parameters))
}
