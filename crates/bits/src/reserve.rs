//! Reserved memory of codes.

use alloc::vec::Vec;

use crate::DecodeError;

/// Makes the capacity at least this large.
pub(crate) fn room<T>(values: &mut Vec<T>, capacity: usize) {
    values.reserve(capacity.saturating_sub(values.len()));
}

/// The same for a capacity from a message.
///
/// # Errors
/// `OutOfMemory`.
pub(crate) fn try_room<T>(values: &mut Vec<T>, capacity: usize) -> Result<(), DecodeError> {
    Ok(values.try_reserve(capacity.saturating_sub(values.len()))?)
}
