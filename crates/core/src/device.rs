//! The device form of a message: the bytes that an accelerator writes to encode a tensor, and reads
//! to add a message.
//!
//! On an accelerator, the pass over the tensor is fast and the lossless codes are slow. So a device
//! computes the residual, quantizes or selects, and packs. The host codes the form into the same
//! message that it would encode alone. In the other direction, the host checks a message and
//! decodes it to the same form, and the device adds it.
//!
//! Numbers are little-endian. Most forms are of two kinds:
//!
//! - **Dense**: the message without lossless codes (zero-run, Huffman, tANS, Elias, significance
//!   maps). It consists of numbers as f32 or 16-bit patterns, bits, quartic bytes, and symbols of
//!   1, 2, 4, 8 or 16 bits, from the lowest bit up. Symbols of 3 or of 5 to 7 bits take one byte
//!   each, wider ones two.
//! - **Pairs**: positions and values of the elements of a sparse message.
//!
//! A method in [rounds](crate::MultiRound) has [other forms](DeviceRounds): the host sends the
//! factor to multiply by, and all-reduce averages the products.
//!
//! The doc comment of each implementation lists the fields.

pub(crate) mod dense;
pub(crate) mod pairs;

use gradwire_bits::DecodeError;

pub use crate::multi_round::DeviceRounds;
use crate::{Context, Coverage, Workspace};

/// Converts between messages and their device form.
pub trait DeviceForm {
    /// Appends the message for a device form. The positions of a sparse message are then in the
    /// workspace.
    ///
    /// # Errors
    /// If the form does not fit this tensor and configuration; the bytes that were added to the
    /// message are then unspecified.
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError>;

    /// Checks a message as [`decode_add`](crate::Compressor::decode_add) does, and appends its
    /// device form. Packing this form gives the message again.
    ///
    /// # Errors
    /// As for `decode_add`; the bytes that were added to the form are then unspecified.
    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError>;

    /// The bits of each element in a form, if symbols are wider there than in a message of fixed
    /// width.
    fn value_bits(&self) -> Option<u32> {
        None
    }
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
