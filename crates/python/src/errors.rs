//! Errors as Python sees them. Every error passes through here.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradwire_exchange::ExchangeError;
use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;

create_exception!(gradwire, GradwireError, PyException, "Anything that gradwire refuses.");
create_exception!(gradwire, ConfigError, GradwireError, "A configuration that cannot work.");
create_exception!(gradwire, NonFiniteError, GradwireError, "A gradient with NaN or infinity.");
create_exception!(gradwire, MessageError, GradwireError, "Bytes that are no message, or damaged.");
create_exception!(gradwire, StateError, GradwireError, "A state that does not fit.");
create_exception!(gradwire, PeerLostError, GradwireError, "Another rank has ended.");
create_exception!(gradwire, DeadlineError, GradwireError, "Another rank does not answer.");

/// An error that can be raised more than once.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    kind: Kind,
    message: String,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Config,
    NonFinite,
    Message,
    State,
    PeerLost,
    Deadline,
    /// A fault of gradwire itself.
    Panic,
}

/// Runs `work` without the interpreter's lock. A panic becomes an error, too: Python code does not expect one that
/// derives from `BaseException`.
pub(crate) fn detached<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, Failure> + Send,
) -> Result<R, Failure> {
    let caught = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    caught.unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let message = format!("gradwire has a fault and panicked: {said}; please report it");
        Err(Failure { kind: Kind::Panic, message })
    })
}

impl Failure {
    /// A configuration that cannot work.
    pub(crate) fn config(message: impl Into<String>) -> Self {
        Self { kind: Kind::Config, message: message.into() }
    }
}

impl From<&ExchangeError> for Failure {
    fn from(error: &ExchangeError) -> Self {
        let kind = match error {
            ExchangeError::PeerLost { .. } => Kind::PeerLost,
            ExchangeError::Deadline { .. } => Kind::Deadline,
            ExchangeError::Protocol { .. } => Kind::Message,
            ExchangeError::Config(_) => Kind::Config,
            ExchangeError::Codec(error) => of_codec(error),
            ExchangeError::State(_) => Kind::State,
        };
        Self { kind, message: error.to_string() }
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        Self::from(&error)
    }
}

impl From<gradwire::Error> for Failure {
    fn from(error: gradwire::Error) -> Self {
        Self { kind: of_codec(&error), message: error.to_string() }
    }
}

impl From<gradwire::frame::FrameError> for Failure {
    fn from(error: gradwire::frame::FrameError) -> Self {
        Self { kind: Kind::Message, message: error.to_string() }
    }
}

impl From<gradwire::StateError> for Failure {
    fn from(error: gradwire::StateError) -> Self {
        gradwire::Error::from(error).into()
    }
}

impl From<gradwire::SpecError> for Failure {
    fn from(error: gradwire::SpecError) -> Self {
        gradwire::Error::from(error).into()
    }
}

fn of_codec(error: &gradwire::Error) -> Kind {
    match error {
        gradwire::Error::NonFinite { .. } => Kind::NonFinite,
        gradwire::Error::Message { .. } => Kind::Message,
        gradwire::Error::State(_) => Kind::State,
        gradwire::Error::Spec(_)
        | gradwire::Error::WrongLength { .. }
        | gradwire::Error::TooLarge { .. } => Kind::Config,
    }
}

impl From<Failure> for PyErr {
    fn from(Failure { kind, message }: Failure) -> Self {
        match kind {
            Kind::Config => ConfigError::new_err(message),
            Kind::NonFinite => NonFiniteError::new_err(message),
            Kind::Message => MessageError::new_err(message),
            Kind::State => StateError::new_err(message),
            Kind::PeerLost => PeerLostError::new_err(message),
            Kind::Deadline => DeadlineError::new_err(message),
            Kind::Panic => GradwireError::new_err(message),
        }
    }
}

/// Adds the exceptions to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add("GradwireError", py.get_type::<GradwireError>())?;
    module.add("ConfigError", py.get_type::<ConfigError>())?;
    module.add("NonFiniteError", py.get_type::<NonFiniteError>())?;
    module.add("MessageError", py.get_type::<MessageError>())?;
    module.add("StateError", py.get_type::<StateError>())?;
    module.add("PeerLostError", py.get_type::<PeerLostError>())?;
    module.add("DeadlineError", py.get_type::<DeadlineError>())
}
