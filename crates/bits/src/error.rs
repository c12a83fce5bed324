//! The error type of all decoders.

use alloc::collections::TryReserveError;
use alloc::vec::Vec;
use core::fmt;

/// The reason why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The bytes end before the message.
    Truncated,
    /// Bytes follow the end of the message.
    Trailing {
        /// The number of extra bytes.
        extra: usize,
    },
    /// The bytes break a rule of the format, as described.
    Corrupt(&'static str),
    /// There is no memory for the decoded content.
    OutOfMemory,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("it ends too early"),
            DecodeError::Trailing { extra } => write!(f, "{extra} bytes follow its end"),
            DecodeError::Corrupt(what) => f.write_str(what),
            DecodeError::OutOfMemory => f.write_str("there is not enough memory to decode it"),
        }
    }
}

impl core::error::Error for DecodeError {}

impl From<TryReserveError> for DecodeError {
    fn from(_: TryReserveError) -> Self {
        DecodeError::OutOfMemory
    }
}

/// Sets the length of a buffer to `len`, and fills new elements with `value`.
///
/// # Errors
/// [`DecodeError::OutOfMemory`]; the buffer is then as it was.
pub fn try_resize<T: Clone>(buffer: &mut Vec<T>, len: usize, value: T) -> Result<(), DecodeError> {
    buffer.try_reserve(len.saturating_sub(buffer.len()))?;
    buffer.resize(len, value);
    Ok(())
}

/// Checks that `bytes` has the expected length.
///
/// # Errors
/// [`DecodeError::Truncated`] or [`DecodeError::Trailing`] for another length.
pub fn expect_len(bytes: &[u8], expected: usize) -> Result<(), DecodeError> {
    match bytes.len() {
        len if len < expected => Err(DecodeError::Truncated),
        len if len > expected => Err(DecodeError::Trailing { extra: len - expected }),
        _ => Ok(()),
    }
}
