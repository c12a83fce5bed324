//! What workers do together beside exchanging gradients: stop, evaluate, report their steps and save.
//!
//! A [`Coordinator`] is one worker's end of it. Workers that are threads share memory ([`ThreadGroup`]); those that are
//! processes send messages ([`ProcessCoordinator`]).

mod barrier;
mod coordinator;
mod evaluation;
mod processes;
mod threads;

pub(crate) use coordinator::{Coordinator, Participant};
pub(crate) use processes::ProcessCoordinator;
pub(crate) use threads::{ThreadCoordinator, ThreadGroup};
