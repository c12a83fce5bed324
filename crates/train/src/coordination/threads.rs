//! Coordination of workers that are threads of one process.

use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gradwire::State;
use gradwire_exchange::DistributedOptimizer;
use gradwire_models::models::Score;

use super::barrier::{Barrier, Cancelled};
use super::coordinator::{Coordinator, Participant};
use super::evaluation::SharedEvaluation;
use crate::config::RunConfig;
use crate::elastic::config_for;
use crate::error::TrainError;
use crate::events::{Event, Events, SavePoint};
use crate::failure::Failure;
use crate::observer::Observer;
use crate::permits::Permits;
use crate::record::Sample;
use crate::resolution::check_attempt;
use crate::settings::MOST_WORKERS;

/// The state that the workers of one process share.
pub(crate) struct ThreadGroup {
    barrier: Barrier,
    evaluation: SharedEvaluation,
    stop: Mutex<Stop>,
}

/// The step at which the run ends early.
#[derive(Debug)]
struct Stop {
    /// Workers end before this step; [`NEVER`] until a stop is asked for, or [`ABANDONED`].
    at: u64,
    /// The end of the furthest round that a worker has begun: if only some workers take part in a
    /// round, some may be ahead of the first.
    furthest: u64,
    /// The number of workers with which the run goes on after the stop, if that is its reason.
    workers: Option<usize>,
}

/// No stop has been asked for.
const NEVER: u64 = u64::MAX;
/// The run has failed: every worker ends at once.
const ABANDONED: u64 = 0;

impl ThreadGroup {
    /// A group of `workers` threads.
    pub(crate) fn new(workers: usize) -> Self {
        Self {
            barrier: Barrier::new(workers),
            evaluation: SharedEvaluation::default(),
            stop: Mutex::new(Stop { at: NEVER, furthest: 0, workers: None }),
        }
    }

    /// Ends every worker, including workers that wait at the barrier.
    pub(crate) fn abandon(&self) {
        self.lock().at = ABANDONED;
        self.barrier.cancel();
    }

    /// The requested number of workers, if the group's workers stopped because of it.
    pub(crate) fn wanted(&self) -> Option<usize> {
        self.lock().workers
    }

    fn lock(&self) -> MutexGuard<'_, Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One worker's end of a [`ThreadGroup`].
pub(crate) struct ThreadCoordinator<'a> {
    pub(crate) rank: usize,
    pub(crate) group: &'a ThreadGroup,
    pub(crate) config: &'a RunConfig,
    pub(crate) observer: &'a dyn Observer,
    pub(crate) permits: &'a Permits,
    pub(crate) events: Events,
    /// The last number of workers that the observer has asked for in vain.
    pub(crate) refused: Option<usize>,
}

impl ThreadCoordinator<'_> {
    /// Another number of workers with which the run should go on, and can.
    fn other_workers(&mut self) -> Option<usize> {
        let least = self.config.min_workers?;
        let possible = |workers: &usize| {
            ![Some(self.config.workers), self.refused].contains(&Some(*workers))
                && (least..=MOST_WORKERS).contains(workers)
        };
        let workers = self.observer.workers().filter(possible)?;
        match check_attempt(&config_for(self.config, workers)) {
            Ok(()) => Some(workers),
            Err(error) => {
                self.refused = Some(workers);
                self.events.tell(self.rank, Event::Refused(workers, error));
                None
            }
        }
    }
}

impl Coordinator for ThreadCoordinator<'_> {
    /// The first worker asks the observer; all end when the furthest round that any worker has
    /// begun is over.
    fn stops(
        &mut self,
        step: u64,
        round: Range<u64>,
        _: &mut dyn DistributedOptimizer,
    ) -> Result<bool, Failure> {
        let ends = self.rank == 0 && self.observer.stop();
        let workers = if self.rank == 0 && !ends { self.other_workers() } else { None };
        let mut stop = self.group.lock();
        if (ends || workers.is_some()) && stop.at == NEVER {
            (stop.at, stop.workers) = (stop.furthest.max(round.end), workers);
        }
        match stop.at {
            ABANDONED => Err(Failure::Cancelled),
            at if step < at => {
                stop.furthest = stop.furthest.max(round.end);
                Ok(false)
            }
            _ => Ok(true),
        }
    }

    fn report(&mut self, sample: Sample, next: u64) {
        self.events.tell(self.rank, Event::Step(sample, next));
    }

    fn evaluate(
        &mut self,
        examples: usize,
        statistics_of: Option<usize>,
        worker: Participant<'_>,
    ) -> Result<Option<Score>, Failure> {
        let Participant { replica, parameters, exchange } = worker;
        let ThreadGroup { barrier, evaluation, .. } = self.group;
        if statistics_of == Some(self.rank) {
            evaluation.subject().statistics = replica.statistics().to_vec();
        }
        // The gradients of all workers are in the global model now.
        barrier.wait()?;
        if self.rank == 0 {
            let global = exchange
                .global_model()
                .map_err(|source| TrainError::Exchange { rank: self.rank, source })?;
            evaluation.begin(replica.test_parts(examples));
            let mut subject = evaluation.subject();
            subject.parameters = global.unwrap_or_else(|| parameters.to_vec());
            subject.examples = examples;
        }
        barrier.wait()?;
        evaluation.work(replica, self.permits);
        barrier.wait()?;
        Ok((self.rank == 0).then(|| evaluation.result()))
    }

    fn save(
        &mut self,
        point: SavePoint,
        state: State,
        _: &mut dyn DistributedOptimizer,
    ) -> Result<(), Failure> {
        self.events.tell(self.rank, Event::Saved(point, Box::new(state)));
        Ok(())
    }

    fn abandon(&self) {
        self.group.abandon();
    }
}

impl From<Cancelled> for Failure {
    fn from(_: Cancelled) -> Self {
        Failure::Cancelled
    }
}
