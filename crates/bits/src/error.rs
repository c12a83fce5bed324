//! The error type of all decoders.

use core::fmt;

/// The reason why bytes cannot be decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end before the message does.
    Truncated,
    /// Bytes follow the end of the message.
    Trailing {
        /// The number of extra bytes.
        extra: usize,
    },
    /// The bytes break a rule of the format, as described.
    Corrupt(&'static str),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DecodeError::Truncated => f.write_str("it ends too early"),
            DecodeError::Trailing { extra } => write!(f, "{extra} bytes follow its end"),
            DecodeError::Corrupt(what) => f.write_str(what),
        }
    }
}

impl core::error::Error for DecodeError {}

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
