//! Why a run failed, where several workers do.

use std::any::Any;
use std::sync::{Mutex, PoisonError};

use gradwire_exchange::ExchangeError;

use super::TrainError;
use super::worker::Failure;

/// Why the run failed: the first of the failures that weigh most.
#[derive(Default)]
pub(super) struct Cause(Mutex<Option<Failure>>);

impl Cause {
    pub(super) fn note(&self, failure: Failure) {
        let mut cause = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if cause.as_ref().map_or(0, weight) < weight(&failure) {
            *cause = Some(failure);
        }
    }

    pub(super) fn take(&self) -> Option<Failure> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// How much a failure explains: an error of its own more than a stop that was asked for, since a checkpoint may
/// have failed to be written then; the loss of another rank, which follows from something else, least.
fn weight(failure: &Failure) -> u32 {
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

/// What a panic said.
pub(super) fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}
