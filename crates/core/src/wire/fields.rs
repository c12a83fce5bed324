//! The fields of messages: little-endian numbers, and their bounds.

use gradwire_bits::DecodeError;
pub(crate) use gradwire_bits::expect_len;

use crate::Helpers;

/// Appends one number.
pub(crate) fn put_f32(value: f32, message: &mut Vec<u8>) {
    message.extend_from_slice(&value.to_le_bytes());
}

/// Appends numbers; on a little-endian processor, a copy of their memory.
pub(crate) fn put_f32s(values: &[f32], message: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        message.extend_from_slice(bytemuck::cast_slice(values));
    } else {
        values.iter().for_each(|&value| put_f32(value, message));
    }
}

/// Reads numbers; `bytes` holds exactly four bytes for each.
pub(crate) fn read_f32s(bytes: &[u8], values: &mut [f32]) {
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<4>().0) {
        *value = f32::from_le_bytes(*bytes);
    }
}

/// Adds `weight` times the numbers at increasing positions. The helpers share the work.
pub(crate) fn add_f32s_at(
    positions: &[u32],
    numbers: &[[u8; 4]],
    weight: f32,
    out: &mut [f32],
    helpers: &mut Helpers,
) {
    helpers.add_at(positions, numbers, out, |number| weight * f32::from_le_bytes(number));
}

/// Appends 16-bit patterns; on a little-endian processor, a copy of their memory.
pub(crate) fn put_u16s(values: &[u16], message: &mut Vec<u8>) {
    if cfg!(target_endian = "little") {
        message.extend_from_slice(bytemuck::cast_slice(values));
    } else {
        values.iter().for_each(|value| message.extend_from_slice(&value.to_le_bytes()));
    }
}

/// Reads 16-bit patterns; `bytes` holds exactly two bytes for each.
pub(crate) fn read_u16s(bytes: &[u8], values: &mut [u16]) {
    for (value, bytes) in values.iter_mut().zip(bytes.as_chunks::<2>().0) {
        *value = u16::from_le_bytes(*bytes);
    }
}

/// Splits `len` bytes off the front.
pub(crate) fn take<'a>(message: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (head, rest) = message.split_at_checked(len).ok_or(DecodeError::Truncated)?;
    *message = rest;
    Ok(head)
}

/// Splits an integer off the front.
pub(crate) fn take_u32(message: &mut &[u8]) -> Result<u32, DecodeError> {
    let (bytes, rest) = message.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *message = rest;
    Ok(u32::from_le_bytes(*bytes))
}

/// Splits a finite number off the front.
pub(crate) fn take_finite(message: &mut &[u8]) -> Result<f32, DecodeError> {
    let value = f32::from_bits(take_u32(message)?);
    value.is_finite().then_some(value).ok_or(DecodeError::Corrupt("a level is not finite"))
}

/// Splits a scale off the front: finite and not negative.
pub(crate) fn take_scale(message: &mut &[u8]) -> Result<f32, DecodeError> {
    let scale = take_finite(message)?;
    scale.is_sign_positive().then_some(scale).ok_or(DecodeError::Corrupt("the scale is negative"))
}
