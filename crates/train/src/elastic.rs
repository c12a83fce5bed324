//! Runs that go on without workers that are lost, and with workers that join.
//!
//! A run with [`min_workers`](crate::TrainingSettings::min_workers) is a series of attempts. The
//! number of workers is fixed in each: an attempt ends when a worker is lost or when the observer
//! asks for another number. The first worker keeps the state after the last exchange in memory, and
//! the next attempt resumes from it as from a checkpoint. The workers of the next attempt repeat an
//! exchange that was in progress.

use std::num::NonZero;

use gradwire_exchange::ExchangeError;

use crate::checkpoint::Checkpoint;
use crate::config::RunConfig;
use crate::error::TrainError;
use crate::observer::Observer;
use crate::record::WorkersChanged;
use crate::resolution::check_attempt;
use crate::validation::validate;

/// A part of a run with a fixed number of workers.
pub(crate) struct Attempt {
    pub(crate) config: RunConfig,
    /// The state from which it resumes; `None` at the beginning.
    pub(crate) checkpoint: Option<Box<Checkpoint>>,
    /// The changes of the number of workers so far.
    pub(crate) changes: Vec<WorkersChanged>,
}

/// The reason why an attempt ended before the last step.
pub(crate) struct Interrupted {
    pub(crate) error: TrainError,
    /// The state after the last exchange: only in runs with `min_workers`, and in the process of
    /// the first worker.
    pub(crate) kept: Option<Box<Checkpoint>>,
    /// The number of workers that the observer has asked for, if that is the reason.
    pub(crate) workers: Option<NonZero<usize>>,
}

impl From<TrainError> for Interrupted {
    fn from(error: TrainError) -> Self {
        Self { error, kept: None, workers: None }
    }
}

impl Attempt {
    /// The first attempt, from the checkpoint that the run resumes from, which another number of
    /// workers may have written.
    pub(crate) fn first(config: &RunConfig, checkpoint: Option<Box<Checkpoint>>) -> Self {
        let mut changes = Vec::new();
        if let Some(saved) = &checkpoint {
            changes.clone_from(&saved.record.changes);
            if saved.saved_by != config.workers {
                let (step, workers) = (saved.step, config.workers);
                changes.push(WorkersChanged { step, workers, lost: None });
            }
        }
        Self { config: config.clone(), checkpoint, changes }
    }

    /// The attempt after this one, if workers are threads: a lost worker is one that panicked.
    ///
    /// # Errors
    /// The interruption's own error, if it ends the run: no worker was lost, or too few are left.
    pub(crate) fn next(
        self,
        Interrupted { error, kept, workers }: Interrupted,
        observer: &dyn Observer,
    ) -> Result<Self, TrainError> {
        let now = self.config.workers;
        let (workers, loss) = match (self.config.min_workers, error) {
            (Some(_), error @ TrainError::Stopped { .. }) => match workers {
                Some(workers) if !observer.stop() => (workers.get(), None),
                _ => return Err(error),
            },
            (Some(least), TrainError::Panicked { rank, message }) if now > least => {
                (now - 1, Some((rank, TrainError::Panicked { rank, message })))
            }
            (_, error) => return Err(error),
        };
        let checkpoint = kept.or_else(|| self.checkpoint.clone());
        self.resume_with(workers, checkpoint, loss.as_ref(), observer)
    }

    /// The attempt after this one, with this number of workers: after the loss of a rank, or on
    /// request.
    ///
    /// # Errors
    /// If the configuration does not allow this number.
    pub(crate) fn resume_with(
        &self,
        workers: usize,
        checkpoint: Option<Box<Checkpoint>>,
        loss: Option<&(usize, TrainError)>,
        observer: &dyn Observer,
    ) -> Result<Self, TrainError> {
        let config = config_for(&self.config, workers);
        validate(&config)?;
        let step = checkpoint.as_ref().map_or(0, |saved| saved.step);
        let on = format!("the run continues from step {step} with {workers} workers");
        observer.warned(&match loss {
            Some((rank, error)) => format!("rank {rank} is lost ({error}); {on}"),
            None => on,
        });
        // Changes after the resumed state have not happened.
        let mut changes = self.changes.clone();
        changes.retain(|change| change.step <= step);
        if workers != self.config.workers {
            changes.push(WorkersChanged { step, workers, lost: loss.map(|(rank, _)| *rank) });
        }
        Ok(Self { config, checkpoint, changes })
    }
}

/// The configuration with this number of workers.
pub(crate) fn config_for(config: &RunConfig, workers: usize) -> RunConfig {
    config.clone().with(|config| {
        config.workers = workers;
        config.straggler = config.straggler.filter(|of| of.worker < workers);
    })
}

/// Refuses the configurations that [`run`](crate::run()) refuses before it trains.
///
/// # Errors
/// The errors of [`run`](crate::run()) for a configuration that cannot work. Makes the model of one
/// worker; with `min_workers`, once for each number of workers.
pub fn check(config: &RunConfig) -> Result<(), TrainError> {
    check_attempt(config)?;
    check_fewer(config)
}

/// Refuses `min_workers` if the run could not go on with one of the numbers of workers that it
/// allows.
pub(crate) fn check_fewer(config: &RunConfig) -> Result<(), TrainError> {
    let Some(least) = config.min_workers else { return Ok(()) };
    (least..config.workers).try_for_each(|workers| {
        check_attempt(&config_for(config, workers)).map_err(|error| {
            TrainError::Config(format!(
                "with min_workers={least}, the run might have to continue with {workers} workers, \
                 but cannot: {error}; give another min_workers"
            ))
        })
    })
}

/// The other rank that is lost according to an error.
pub(crate) fn lost_peer(error: &TrainError) -> Option<usize> {
    match error {
        TrainError::Exchange { source, .. } | TrainError::Servers(source) => match source {
            ExchangeError::PeerLost { peer, .. } | ExchangeError::Deadline { peer, .. } => {
                Some(*peer)
            }
            _ => None,
        },
        _ => None,
    }
}
