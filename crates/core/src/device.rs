//! The device form of a message: what an accelerator makes of a tensor, and what it needs to add a message to a sum.
//!
//! On an accelerator the pass over the tensor is fast and the lossless codes are slow. So a device computes the residual,
//! quantizes or selects, and packs; the host codes what it gets, and sends the same message as a host that did all of it. On
//! the way back the host checks and decodes the message to the same form, and the device adds it.
//!
//! Numbers are little-endian. Most forms are of two kinds:
//!
//! - **Dense**: the message without zero-run, Huffman, tANS and Elias code and significance maps: numbers as f32 or 16-bit patterns, bits, quartic bytes,
//!   and symbols of 1, 2, 4, 8 or 16 bits, from the lowest bit up. Symbols of 3 and 5 to 7 bits have a byte each, wider ones two.
//! - **Pairs**: positions and values of the elements of a sparse message.
//!
//! A method in [rounds](crate::MultiRound) has other forms, [`DeviceRounds`]: the host tells the device what to multiply by, and
//! all-reduce averages what the device returns.
//!
//! The doc comment of each implementation lists the fields.

pub(crate) mod pairs;
mod rounds;

use gradwire_bits::DecodeError;

pub(crate) use pairs::Pairs;
pub use rounds::DeviceRounds;

use crate::{Context, Sent, Workspace};

/// Converts between messages and their device form.
pub trait DeviceForm {
    /// Appends the message that a device form stands for. For a sparse message the positions are then in the workspace.
    ///
    /// # Errors
    /// If the form is not of this tensor and configuration; then `message` is unspecified behind its former end.
    fn pack(
        &self,
        form: &[u8],
        args: DeviceArgs<'_>,
        message: &mut Vec<u8>,
    ) -> Result<Sent, DecodeError>;

    /// Checks a message as [`decode_add`](crate::Compressor::decode_add) does, and appends its device form. Packing that
    /// gives the message again.
    ///
    /// # Errors
    /// As for `decode_add`; then `form` is unspecified behind its former end.
    fn unpack(
        &self,
        message: &[u8],
        args: DeviceArgs<'_>,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError>;
}

/// What both conversions need to know.
#[derive(Debug)]
pub struct DeviceArgs<'a> {
    /// Seed, tensor, step and the rank that sends the message.
    pub context: &'a Context<'a>,
    /// The number of elements of the tensor.
    pub elements: usize,
    /// Buffers.
    pub workspace: &'a mut Workspace,
}

/// Appends bytes that are both message and form.
pub(crate) fn copy(from: &[u8], to: &mut Vec<u8>) -> Result<(), DecodeError> {
    to.try_reserve(from.len())?;
    to.extend_from_slice(from);
    Ok(())
}
