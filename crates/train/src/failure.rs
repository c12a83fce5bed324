//! Why workers end early, and which of several failures explains the others.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use gradwire_exchange::ExchangeError;

use crate::error::TrainError;

/// Why a worker ends early.
pub(crate) enum Failure {
    /// Something is wrong at this worker.
    Error(TrainError),
    /// Another worker has failed, and has recorded why.
    Cancelled,
    /// The run was asked to stop, after this number of steps.
    Stopped(u64),
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        Failure::Error(error)
    }
}

/// The failure that explains why the run ended: the first one with the highest [`rank`].
#[derive(Default)]
pub(crate) struct FirstFailure(Mutex<Option<Failure>>);

impl FirstFailure {
    /// Records a failure.
    pub(crate) fn record(&self, failure: Failure) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().map_or(0, rank) < rank(&failure) {
            *first = Some(failure);
        }
    }

    /// Whether there was a failure.
    pub(crate) fn is_recorded(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Removes the failure, if there was one.
    pub(crate) fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How much a failure explains. An error ranks above a requested stop, because writing the stop's
/// checkpoint may have failed. The loss of another rank always has a cause elsewhere, so it ranks
/// lowest.
fn rank(failure: &Failure) -> u32 {
    match failure {
        Failure::Cancelled => 0,
        Failure::Error(
            TrainError::Exchange { source: ExchangeError::PeerLost { .. }, .. }
            | TrainError::Servers(ExchangeError::PeerLost { .. }),
        ) => 1,
        Failure::Stopped(_) => 2,
        Failure::Error(_) => 3,
    }
}

/// The message of a panic.
pub(crate) fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
