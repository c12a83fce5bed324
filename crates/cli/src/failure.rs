//! Why a command failed, and its exit code.

use std::fmt;

use gradwire_exchange::ExchangeError;
use gradwire_testbed::TestbedError;
use gradwire_train::TrainError;

/// Why a command stopped. Messages name the cause and the remedy.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Bad usage or bad input.
    Input(String),
    /// A failure at run time.
    Run(String),
    /// Ctrl-C, or a request to terminate.
    Interrupted(String),
    /// The reader of the output has closed it, as `head` does; not an error.
    Closed,
}

impl Failure {
    /// The exit code: 2 for bad usage or input, 1 for a failure at run time, 130 after an
    /// interrupt. Under MPI the watchdog of `gradwire-mpi` ends a process that is stuck past its
    /// deadline, with 124.
    pub(crate) fn code(&self) -> u8 {
        match self {
            Failure::Input(_) => 2,
            Failure::Run(_) => 1,
            Failure::Interrupted(_) => 130,
            Failure::Closed => 0,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Input(text) | Failure::Run(text) => write!(f, "error: {text}"),
            Failure::Interrupted(text) => write!(f, "interrupted: {text}"),
            Failure::Closed => Ok(()),
        }
    }
}

impl From<gradwire::Error> for Failure {
    fn from(error: gradwire::Error) -> Self {
        Failure::Input(error.to_string())
    }
}

impl From<TrainError> for Failure {
    fn from(error: TrainError) -> Self {
        match error {
            TrainError::Stopped { .. } => Failure::Interrupted(error.to_string()),
            ref bad if is_input(bad) => Failure::Input(error.to_string()),
            _ => Failure::Run(error.to_string()),
        }
    }
}

impl From<TestbedError> for Failure {
    fn from(error: TestbedError) -> Self {
        let input = match &error {
            TestbedError::Stopped(done) => return Failure::Interrupted(done.clone()),
            TestbedError::Run { source, .. } => is_input(source),
            TestbedError::Write(..) => false,
            _ => true,
        };
        if input { Failure::Input(error.to_string()) } else { Failure::Run(error.to_string()) }
    }
}

/// Whether a run did not begin because of bad settings or files.
fn is_input(error: &TrainError) -> bool {
    matches!(
        error,
        TrainError::Config(_)
            | TrainError::Model(_)
            | TrainError::Resume { .. }
            | TrainError::Servers(ExchangeError::Config(_))
            | TrainError::Exchange { source: ExchangeError::Config(_), .. }
    )
}
