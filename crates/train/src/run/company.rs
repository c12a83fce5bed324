//! How the workers of a run reach each other beside their exchange: through memory, or through messages.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::exam::{Exam, Subject};
use super::meeting::{Cancelled, Meeting};
use super::worker::{Failure, Worker};
use gradwire_models::models::Score;

/// Where the other workers are.
pub(super) enum Company {
    /// All are threads of this process.
    Here(Here),
    /// Each has a process of its own.
    Apart,
}

/// What the workers of one process share.
pub(super) struct Here {
    meeting: Meeting,
    exam: Exam,
    stop: Mutex<Stop>,
}

/// Where the run ends before its last step.
#[derive(Debug)]
struct Stop {
    /// No step from this one on is begun; [`GO_ON`] while nobody has asked to stop, or [`ABANDON`].
    at: u64,
    /// The end of the furthest round that a worker has begun: with rounds of some of the workers,
    /// others may be ahead of the first.
    furthest: u64,
}

/// Nobody has asked to stop.
const GO_ON: u64 = u64::MAX;
/// The run has failed: every worker leaves where it is.
const ABANDON: u64 = 0;

impl Company {
    /// Of so many workers in one process.
    pub(super) fn here(workers: usize) -> Self {
        Self::Here(Here {
            meeting: Meeting::new(workers),
            exam: Exam::default(),
            stop: Mutex::new(Stop { at: GO_ON, furthest: 0 }),
        })
    }

    /// Makes every worker of this process leave, those that wait for others included. Processes notice that
    /// another is gone by themselves.
    pub(super) fn abandon(&self) {
        if let Self::Here(here) = self {
            here.stop().at = ABANDON;
        }
        self.abandon_meeting();
    }

    /// Makes every worker leave that waits for others here.
    pub(super) fn abandon_meeting(&self) {
        if let Self::Here(here) = self {
            here.meeting.cancel();
        }
    }
}

impl Here {
    fn stop(&self) -> MutexGuard<'_, Stop> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a worker ends before a step of the round that ends at `end`. The first worker decides, when
    /// `asked`: all end when the furthest round that anyone has begun is over.
    pub(super) fn follow_stop(&self, step: u64, end: u64, asked: bool) -> Result<bool, Failure> {
        let mut stop = self.stop();
        if asked && stop.at == GO_ON {
            stop.at = stop.furthest.max(end);
        }
        match stop.at {
            ABANDON => Err(Failure::Cancelled),
            at if step < at => {
                stop.furthest = stop.furthest.max(end);
                Ok(false)
            }
            _ => Ok(true),
        }
    }
}

impl Worker<'_> {
    /// Evaluates with the other workers of this process. The first is told the score.
    pub(super) fn evaluate_here(
        &mut self,
        here: &Here,
        examples: usize,
        first: Option<usize>,
    ) -> Result<Option<Score>, Failure> {
        let Here { meeting, exam, .. } = here;
        if first == Some(self.rank) {
            exam.set_statistics(self.learner.statistics());
        }
        if self.rank == 0 {
            let global = self.exchange.global_model().map_err(|source| self.failed(source))?;
            let parameters = global.unwrap_or_else(|| self.parameters.clone());
            let subject = Subject { parameters, examples };
            exam.set(subject, self.learner.test_parts(examples));
        }
        meeting.wait()?;
        exam.work(&self.learner, &self.shared.gate);
        meeting.wait()?;
        Ok((self.rank == 0).then(|| exam.result()))
    }
}

impl From<Cancelled> for Failure {
    fn from(_: Cancelled) -> Self {
        Failure::Cancelled
    }
}
