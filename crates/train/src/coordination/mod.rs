//! The operations that workers share apart from the exchange of gradients: stop, evaluate, report
//! steps and save.
//!
//! A [`Coordinator`] is one worker's access to it. Workers that are threads share memory
//! ([`ThreadGroup`]); workers that are processes send messages ([`ProcessCoordinator`]).

mod barrier;
mod coordinator;
mod evaluation;
mod processes;
mod threads;

pub(crate) use coordinator::{Coordinator, Participant};
pub(crate) use processes::ProcessCoordinator;
pub(crate) use threads::{ThreadCoordinator, ThreadGroup};
