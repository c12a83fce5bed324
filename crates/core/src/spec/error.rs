//! Errors in spec strings.

use crate::printable;

/// Why a spec string does not name a compressor.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecError {
    /// The part before the colon names no registered compressor.
    #[error("unknown compressor '{id}'{near}; known ones: {known}", id = printable(.id))]
    UnknownCompressor {
        /// The given id.
        id: String,
        /// The ids that it may stand for, as [`suggestion`](crate::suggestion) gives them.
        near: String,
        /// The registered ids, separated by commas.
        known: String,
    },
    /// The part before the colon names a compressor of a crate that is not part of this program.
    #[error(
        "'{id}' is a compressor of the crate '{krate}', which this program does not contain; use a \
         program that registers it: gradwire_cli::main_with, gradwire::registry::register, or in \
         Python the module of that crate, imported before gradwire",
        id = printable(.id), krate = printable(.krate)
    )]
    Unlinked {
        /// The given id.
        id: String,
        /// The crate.
        krate: String,
    },
    /// A schedule of several compressors.
    #[error("'{text}' is a schedule, but one compressor belongs here; give one of its compressors", text = printable(.text))]
    Schedule {
        /// The given string.
        text: String,
    },
    /// Parameters that do not follow a colon.
    #[error("parameters follow a colon: write '{meant}'", meant = printable(.meant))]
    NoColon {
        /// The string that the user probably meant.
        meant: String,
    },
    /// A key that the compressor does not have.
    #[error("'{id}' has no parameter '{key}'{near}; it has: {known}", key = printable(.key))]
    UnknownKey {
        /// The compressor.
        id: &'static str,
        /// The key given.
        key: String,
        /// The keys that it may stand for, as [`suggestion`](crate::suggestion) gives them.
        near: String,
        /// The keys it has, separated by commas.
        known: String,
    },
    /// A key given more than once.
    #[error("'{id}': parameter '{key}' is given twice; give it once", key = printable(.key))]
    DuplicateKey {
        /// The compressor.
        id: &'static str,
        /// The key.
        key: String,
    },
    /// An item that is not of the form `key=value`.
    #[error("'{id}': '{item}' does not have the form key=value", item = printable(.item))]
    NotAPair {
        /// The compressor.
        id: &'static str,
        /// The given item.
        item: String,
    },
    /// A value that does not parse or lies outside the parameter's range.
    #[error("'{id}': {key}={value} is not allowed; give {expected}", key = printable(.key), value = printable(.value))]
    BadValue {
        /// The compressor.
        id: &'static str,
        /// The parameter.
        key: String,
        /// The given value.
        value: String,
        /// The allowed values, in words.
        expected: String,
    },
    /// Error feedback for a compressor whose residuals would grow without bound.
    #[error("'{id}': residuals would grow without bound with these parameters; give ef=off")]
    Feedback {
        /// The compressor.
        id: &'static str,
    },
    /// A common parameter that this compressor, or another parameter, rules out.
    #[error("'{id}': {key} is impossible, because {reason}; leave it out")]
    Impossible {
        /// The compressor.
        id: &'static str,
        /// The requested parameter.
        key: &'static str,
        /// Why it is impossible.
        reason: &'static str,
    },
}
