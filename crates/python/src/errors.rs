//! The conversion of all errors to Python exceptions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use gradwire_exchange::ExchangeError;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyOSError};
use pyo3::prelude::*;

create_exception!(gradwire, GradwireError, PyException, "Anything that gradwire refuses.");
create_exception!(gradwire, ConfigError, GradwireError, "A configuration that cannot work.");
create_exception!(
    gradwire,
    NonFiniteError,
    GradwireError,
    "A gradient or a scale of the loss with NaN or infinity, or a sum that overflows."
);
create_exception!(gradwire, MessageError, GradwireError, "Bytes that are no message, or damaged.");
create_exception!(gradwire, StateError, GradwireError, "A state that does not fit.");
create_exception!(gradwire, PeerLostError, GradwireError, "Another rank has ended.");
create_exception!(gradwire, DeadlineError, GradwireError, "Another rank does not answer.");

/// An error that can be raised more than once.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    raise: fn(String) -> PyErr,
    message: String,
    /// Whether the error is about a gradient with NaN or infinity, or a scale that makes it so.
    non_finite: bool,
}

/// Runs `work` without the interpreter's lock. A panic becomes an error, too, because Python code
/// does not expect an exception that derives from `BaseException`.
pub(crate) fn detached<R: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> Result<R, Failure> + Send,
) -> Result<R, Failure> {
    py.detach(|| caught(work))
}

/// Runs `work`; a panic becomes an error.
pub(crate) fn caught<R>(work: impl FnOnce() -> Result<R, Failure>) -> Result<R, Failure> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let said = panic.downcast_ref::<&str>().map(|said| (*said).to_owned());
        let said = said.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
        let message = format!("gradwire has a fault and panicked: {said}; please report it");
        Err(Failure::new(GradwireError::new_err, message))
    })
}

impl Failure {
    fn new(raise: fn(String) -> PyErr, message: impl ToString) -> Self {
        Self { raise, message: message.to_string(), non_finite: false }
    }

    /// A configuration that cannot work.
    pub(crate) fn config<M: ToString>(message: M) -> Self {
        Self::new(ConfigError::new_err, message)
    }

    /// The reason why an array cannot be compressed, without advice for training.
    pub(crate) fn of_array(error: gradwire::Error) -> Self {
        let gradwire::Error::NonFinite { tensor, index, value } = &error else {
            return error.into();
        };
        let message = format!(
            "array '{tensor}' has {value} at element {index}, but only finite numbers can be compressed; replace such elements, or save the \
             array uncompressed, for example with numpy.save or torch.save"
        );
        Self::new(NonFiniteError::new_err, message)
    }

    /// The same error; if it is about gradients that are not finite, with a remedy.
    pub(crate) fn with_remedy(mut self, remedy: &str) -> Self {
        if self.non_finite {
            self.message += remedy;
        }
        self
    }
}

impl From<ExchangeError> for Failure {
    fn from(error: ExchangeError) -> Self {
        let raise = match &error {
            ExchangeError::PeerLost { .. } => PeerLostError::new_err as fn(String) -> PyErr,
            ExchangeError::Deadline { .. } => DeadlineError::new_err,
            ExchangeError::Protocol { .. } => MessageError::new_err,
            ExchangeError::Config(_) | ExchangeError::Ended(_) => ConfigError::new_err,
            ExchangeError::Codec(error) => of_codec(error),
            ExchangeError::Scale(_) => NonFiniteError::new_err,
            ExchangeError::State(_) => StateError::new_err,
            _ => GradwireError::new_err,
        };
        let non_finite = matches!(
            error,
            ExchangeError::Codec(gradwire::Error::NonFinite { .. }) | ExchangeError::Scale(_)
        );
        Self { non_finite, ..Self::new(raise, error) }
    }
}

impl From<gradwire::Error> for Failure {
    fn from(error: gradwire::Error) -> Self {
        Self::new(of_codec(&error), error)
    }
}

impl From<gradwire::frame::FrameError> for Failure {
    fn from(error: gradwire::frame::FrameError) -> Self {
        Self::new(MessageError::new_err, error)
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

impl From<gradwire_delta::Error> for Failure {
    fn from(error: gradwire_delta::Error) -> Self {
        Self::new(of_delta(&error), error)
    }
}

fn of_delta(error: &gradwire_delta::Error) -> fn(String) -> PyErr {
    use gradwire_delta::Error;
    use gradwire_delta::files::FileError;
    match error {
        Error::Io(_) | Error::File(FileError::System { .. }) => {
            PyOSError::new_err as fn(String) -> PyErr
        }
        // The file describes them, not the caller.
        Error::Input { source, .. }
            if matches!(**source, Error::InvalidTensor { .. } | Error::Twice { .. }) =>
        {
            MessageError::new_err
        }
        Error::Input { source, .. } => of_delta(source),
        Error::NotADelta
        | Error::FormatVersion(_)
        | Error::Truncated(_)
        | Error::Damaged(_)
        | Error::DamagedPart(_)
        | Error::DamagedTensor { .. }
        | Error::WrongChange { .. }
        | Error::TooLarge { .. } => MessageError::new_err,
        Error::InvalidTensor { .. } | Error::Twice { .. } | Error::Length { .. } => {
            ConfigError::new_err
        }
        _ => StateError::new_err,
    }
}

impl From<gradwire_delta::files::FileError> for Failure {
    fn from(error: gradwire_delta::files::FileError) -> Self {
        Self::new(PyOSError::new_err, error)
    }
}

fn of_codec(error: &gradwire::Error) -> fn(String) -> PyErr {
    match error {
        gradwire::Error::NonFinite { .. } | gradwire::Error::Overflow { .. } => {
            NonFiniteError::new_err as fn(String) -> PyErr
        }
        gradwire::Error::Message { .. } => MessageError::new_err,
        gradwire::Error::State(_) => StateError::new_err,
        gradwire::Error::Spec(_)
        | gradwire::Error::WrongLength { .. }
        | gradwire::Error::TooLarge { .. }
        | gradwire::Error::NoDeviceForm { .. } => ConfigError::new_err,
        _ => GradwireError::new_err,
    }
}

impl From<Failure> for PyErr {
    fn from(Failure { raise, message, .. }: Failure) -> Self {
        raise(message)
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
