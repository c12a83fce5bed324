//! The device form of a message: the bytes that an accelerator writes for a tensor, and reads to
//! add a message to a sum.
//!
//! On an accelerator, the pass over the tensor is fast and the lossless codes are slow. So a device
//! computes the residual, quantizes or selects, and packs. The host codes the form, and sends the
//! same message as a host that did all of the work. In the other direction, the host checks a
//! message and decodes it to the same form, and the device adds it.
//!
//! Numbers are little-endian. Most forms are of two kinds:
//!
//! - **Dense**: the message without lossless codes (zero-run, Huffman, tANS, Elias, significance
//!   maps). It consists of numbers as f32 or 16-bit patterns, bits, quartic bytes, and symbols of
//!   1, 2, 4, 8 or 16 bits, from the lowest bit up. Symbols of 3 and of 5 to 7 bits have a byte
//!   each, wider ones two.
//! - **Pairs**: positions and values of the elements of a sparse message.
//!
//! A method in [rounds](crate::MultiRound) has [other forms](DeviceRounds): the host tells the
//! device by which factor to multiply, and all-reduce averages the products.
//!
//! The doc comment of each implementation lists the fields.

pub(crate) mod dense;
pub(crate) mod pairs;

use gradwire_bits::DecodeError;

pub use crate::multi_round::DeviceRounds;
use crate::{Context, Coverage, Workspace};

/// Converts between messages and their device form.
pub trait DeviceForm {
    /// Appends the message that a device form stands for. For a sparse message the positions are
    /// then in the workspace.
    ///
    /// # Errors
    /// If the form is not of this tensor and configuration; then the message is unspecified behind
    /// its former end.
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError>;

    /// Checks a message as [`decode_add`](crate::Compressor::decode_add) does, and appends its
    /// device form. Packing this form gives the message again.
    ///
    /// # Errors
    /// As for `decode_add`; then the form is unspecified behind its former end.
    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError>;
}

/// The arguments of both conversions.
#[derive(Debug)]
pub struct DeviceArgs<'a> {
    /// The whole form, or the whole message.
    pub from: &'a [u8],
    /// The bytes to append the message or the form to.
    pub to: &'a mut Vec<u8>,
    /// Seed, tensor, step and the rank that sends the message.
    pub context: &'a Context<'a>,
    /// The number of elements of the tensor.
    pub elements: usize,
    /// Buffers.
    pub workspace: &'a mut Workspace,
}
