//! The constants and errors of frames.

use gradwire_bits::DecodeError;

use super::element::ElementType;
use crate::{SpecError, printable};

/// The first bytes of every frame.
pub const MAGIC: [u8; 4] = *b"GWFR";
/// The version of frames with a message.
pub const VERSION: u8 = 1;
/// The version of frames without a message: stored tensors and metadata.
pub const STORED_VERSION: u8 = 2;
/// The largest number of dimensions of a tensor.
pub const MAX_DIMENSIONS: usize = 64;

/// Why bytes are not a frame, or a frame's message does not decode.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The bytes do not start as a frame does.
    #[error("it does not start with the bytes 'GWFR', so it is not a .gw file")]
    NotAFrame,
    /// A version this library does not know.
    #[error(
        "it has format version {0}, but this library reads versions {VERSION} and {STORED_VERSION}; update gradwire"
    )]
    Version(u8),
    /// The bytes end within the frame.
    #[error("the frame ends too early; copy it again")]
    Truncated,
    /// The bytes were changed in transit.
    #[error("the frame's checksum is {found:08x} instead of {expected:08x}; copy it again")]
    Checksum {
        /// The checksum in the frame.
        expected: u32,
        /// The checksum of its bytes.
        found: u32,
    },
    /// A field has an impossible value.
    #[error("{0}; it was written by a later version, or not by gradwire")]
    Malformed(&'static str),
    /// The tensor to write has a compressor that no reader would find.
    #[error(
        "tensor '{tensor}' has the compressor '{spec}', which is not in the registry, so nobody \
         could read the frame; add it with gradwire::registry::register",
        tensor = printable(.tensor), spec = printable(.spec)
    )]
    Unregistered {
        /// The tensor's name.
        tensor: String,
        /// The compressor.
        spec: String,
    },
    /// A frame without a message was read as a frame with one.
    #[error(
        "the frame holds {found} instead of a compressed tensor; read it with frame::Item::read, \
         or restore the file with the command gradwire decompress"
    )]
    NoMessage {
        /// The content of the frame.
        found: String,
    },
    /// The data of a tensor to store is longer or shorter than its elements.
    #[error(
        "tensor '{tensor}' of shape {shape:?} and type {element} does not have {bytes} bytes; \
         pass all of its elements, one after another",
        tensor = printable(.tensor)
    )]
    StoredLength {
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The type of its elements.
        element: ElementType,
        /// The number of given bytes.
        bytes: usize,
    },
    /// The configuration does not parse.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The shape has more elements than a message of this length can encode.
    #[error(
        "tensor '{tensor}' has shape {shape:?}, but its message can encode at most {limit} \
         elements; it was not written by gradwire",
        tensor = printable(.tensor)
    )]
    TooLarge {
        /// The tensor's name.
        tensor: String,
        /// Its shape.
        shape: Vec<usize>,
        /// The most elements possible.
        limit: usize,
    },
    /// The tensor is larger than the rest of the [`Budget`](super::Budget).
    #[error(
        "tensor '{tensor}' decodes to {bytes} bytes, but only {left} bytes are left of the limit \
         of {limit}; if you trust the file, raise the limit (--max-bytes, in Python max_bytes)",
        tensor = printable(.tensor)
    )]
    OverBudget {
        /// The tensor's name.
        tensor: String,
        /// Its size as `f32`, in bytes.
        bytes: u64,
        /// The rest of the budget, in bytes.
        left: u64,
        /// The whole budget, in bytes.
        limit: u64,
    },
    /// The system has not enough memory to decode the tensor.
    #[error(
        "there is not enough memory for the {bytes} bytes that tensor '{tensor}' decodes to; free \
         some memory, or use a larger machine",
        tensor = printable(.tensor)
    )]
    OutOfMemory {
        /// The tensor's name.
        tensor: String,
        /// Its size as `f32`, in bytes.
        bytes: u64,
    },
    /// The tensor to write has too many dimensions.
    #[error(
        "tensor '{tensor}' has {dimensions} dimensions, but a frame allows at most {MAX_DIMENSIONS}; reshape it",
        tensor = printable(.tensor)
    )]
    Dimensions {
        /// The tensor's name.
        tensor: String,
        /// Its number of dimensions.
        dimensions: usize,
    },
    /// The message is malformed.
    #[error("the message for tensor '{tensor}' is malformed: {source}", tensor = printable(.tensor))]
    Message {
        /// The tensor's name.
        tensor: String,
        /// What is wrong with it.
        source: DecodeError,
    },
}
