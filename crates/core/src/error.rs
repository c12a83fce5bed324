//! Errors that name the problem and the remedy.

use std::path::PathBuf;

use gradwire_bits::DecodeError;

use crate::{Floats, NonFinite, Spec, SpecError, files, printable};

/// Why saved state cannot be restored.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StateError {
    /// The bytes are not a state file, or are damaged.
    #[error("the state is damaged, or is not gradwire state: {why}; resume from an earlier copy", why = printable(.0))]
    Damaged(String),
    /// The names, numbers and settings of the state exceed the limit of a file's header.
    #[error(
        "the state is too large: its names, numbers and settings take more than the 100 MB that a state file has for them; \
         use fewer tensors, or shorter names"
    )]
    TooLarge,
    /// The state file cannot be read or written.
    #[error("the state file {}: {source}{}", printable(path.display()), files::remedy(.source))]
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: std::io::Error,
    },
    /// An entry that the receiver needs is absent.
    #[error("the state has no entry '{name}'; the state belongs to another model or configuration", name = printable(.0))]
    Missing(String),
    /// An entry's size differs from the receiver's.
    #[error(
        "state entry '{entry}' has {found} elements instead of {expected}; the state belongs to another model",
        entry = printable(.entry)
    )]
    WrongSize {
        /// The entry's name.
        entry: String,
        /// Elements in the state.
        found: usize,
        /// Elements of the receiver's array.
        expected: usize,
    },
    /// An entry for a tensor that the receiver does not have.
    #[error(
        "state entry '{name}' is for a tensor that this model does not have; the state belongs to another model",
        name = printable(.0)
    )]
    Foreign(String),
    /// An entry has numbers that no encoder writes.
    #[error("state entry '{entry}' is damaged: {reason}; resume from an earlier copy", entry = printable(.entry))]
    OutOfRange {
        /// The entry's name.
        entry: String,
        /// The number, its place, and the allowed values.
        reason: String,
    },
    /// A setting in the state differs from the receiver's.
    #[error(
        "the state was saved with {key} = {found}, but this run has {expected}; configure {found} \
         to resume, or start a new run",
        found = printable(.found), key = printable(.key)
    )]
    Mismatch {
        /// The setting.
        key: String,
        /// The setting's value in the state.
        found: String,
        /// The receiver's value.
        expected: String,
    },
}

/// Errors between a tensor and its message.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A spec string does not parse.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// A tensor holds NaN or infinity. The sender's state is unchanged.
    #[error(
        "tensor '{tensor}' has {value} at element {index}, but only finite numbers can be \
         compressed; in training, lower the learning rate, clip the gradient or skip the step",
        tensor = printable(.tensor)
    )]
    NonFinite {
        /// The tensor's name.
        tensor: String,
        /// Flat index of the first such element.
        index: usize,
        /// The value there.
        value: f32,
    },
    /// The gradient is finite, but its sum with the residual, or with another kept array, is not.
    /// The sender's state is unchanged.
    #[error(
        "tensor '{tensor}' has {value} at element {index} after its finite gradient is added to the residual or \
         momentum of earlier steps; scale gradients down or clip them, and restore an earlier state",
        tensor = printable(.tensor)
    )]
    Overflow {
        /// The tensor's name.
        tensor: String,
        /// Flat index of the first such element.
        index: usize,
        /// The value there.
        value: f32,
    },
    /// A buffer does not have the tensor's number of elements.
    #[error(
        "tensor '{tensor}' has {expected} elements, but its buffer has {found}; pass one number per element",
        tensor = printable(.tensor)
    )]
    WrongLength {
        /// The tensor's name.
        tensor: String,
        /// Elements of the tensor.
        expected: usize,
        /// Elements of the buffer.
        found: usize,
    },
    /// A tensor has more elements than the compressor accepts.
    #[error(
        "tensor '{tensor}' has {elements} elements, but '{id}' takes at most {limit}; split the tensor",
        tensor = printable(.tensor)
    )]
    TooLarge {
        /// The tensor's name.
        tensor: String,
        /// Elements of the tensor.
        elements: usize,
        /// The compressor.
        id: &'static str,
        /// The most elements it takes.
        limit: usize,
    },
    /// A received message is malformed.
    #[error(
        "the message for tensor '{tensor}' from rank {rank} is malformed: {source}; were all ranks started with the same \
         version and compressor?",
        tensor = printable(.tensor)
    )]
    Message {
        /// The tensor's name.
        tensor: String,
        /// The sender.
        rank: u32,
        /// What is wrong with it.
        source: DecodeError,
    },
    /// The system has not enough memory to decode a received message.
    #[error(
        "there is not enough memory to decode the message for tensor '{tensor}' from rank {rank}; \
         free some memory, or use a larger machine",
        tensor = printable(.tensor)
    )]
    OutOfMemory {
        /// The tensor's name.
        tensor: String,
        /// The sender.
        rank: u32,
    },
    /// A device form was requested from a host-only method.
    #[error("'{spec}' has no device form; compress on the host")]
    NoDeviceForm {
        /// The compressor.
        spec: String,
    },
    /// Saved state cannot be restored.
    #[error(transparent)]
    State(#[from] StateError),
}

impl Error {
    /// The error of decoding the message of `rank`.
    pub(crate) fn decoding(tensor: &str, rank: u32, source: DecodeError) -> Self {
        let tensor = tensor.to_owned();
        match source {
            DecodeError::OutOfMemory => Error::OutOfMemory { tensor, rank },
            source => Error::Message { tensor, rank, source },
        }
    }

    pub(crate) fn no_device_form(spec: &Spec) -> Self {
        Error::NoDeviceForm { spec: spec.to_string() }
    }

    pub(crate) fn non_finite(tensor: &str, at: NonFinite) -> Self {
        Error::NonFinite { tensor: tensor.to_owned(), index: at.index, value: at.value }
    }

    /// The error of encoding a gradient if an element of it, or of its sum with a residual, is not
    /// finite.
    pub(crate) fn encoding(tensor: &str, gradient: Floats<'_>, at: NonFinite) -> Self {
        let NonFinite { index, value } = at;
        match gradient.block(index, &mut [0.0])[0].is_finite() {
            true => Error::Overflow { tensor: tensor.to_owned(), index, value },
            false => Self::non_finite(tensor, at),
        }
    }
}
