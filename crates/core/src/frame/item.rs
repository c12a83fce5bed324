//! Frames of all kinds, as files hold them.

use super::Frame;
use super::error::{FrameError, STORED_VERSION, VERSION};
use super::metadata::{self, Metadata};
use super::stored::{self, StoredTensor};
use super::wire::{self, take_array, take_bytes};
use crate::printable;

/// The content of a frame in a file.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Item<'a> {
    /// A compressor's message.
    Message(Frame<'a>),
    /// A tensor, stored bit for bit.
    Stored(StoredTensor<'a>),
    /// Texts about the file.
    Metadata(Metadata),
}

impl<'a> Item<'a> {
    /// Reads the frame, of any kind, at the front of `input`, and moves `input` past it. Messages
    /// are not decoded, and allocations are no larger than the frame itself.
    ///
    /// # Errors
    /// As for [`Frame::read`]; `input` is then unchanged.
    pub fn read(input: &mut &'a [u8]) -> Result<Self, FrameError> {
        match wire::version(input)? {
            VERSION => Frame::read_message(input).map(Item::Message),
            STORED_VERSION => {
                let (fields, rest) = wire::checked(input, fields)?;
                let item = interpret(fields)?;
                *input = rest;
                Ok(item)
            }
            version => Err(FrameError::Version(version)),
        }
    }

    /// Appends the frame to `out`.
    ///
    /// # Errors
    /// As for [`Frame::write`].
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), FrameError> {
        match self {
            Item::Message(frame) => frame.write(out),
            Item::Stored(stored) => stored.write(out),
            Item::Metadata(metadata) => {
                metadata.write(out);
                Ok(())
            }
        }
    }

    /// The content of the frame, for errors.
    fn describe(&self) -> String {
        match self {
            Item::Message(frame) => {
                format!("a message for tensor '{}'", printable(frame.tensor.name()))
            }
            Item::Stored(stored) => {
                let name = printable(stored.tensor().name());
                format!("the uncompressed tensor '{name}' of type {}", stored.element())
            }
            Item::Metadata(_) => "metadata".to_owned(),
        }
    }
}

impl<'a> Frame<'a> {
    /// Reads the frame at the front of `input`, and moves `input` past it. The message is not
    /// decoded, and allocations are no larger than the frame's header.
    ///
    /// # Errors
    /// [`FrameError::NotAFrame`], [`FrameError::Version`], [`FrameError::Truncated`],
    /// [`FrameError::Checksum`], [`FrameError::Malformed`], [`FrameError::Spec`],
    /// [`FrameError::TooLarge`], or [`FrameError::NoMessage`] for a frame without a message, which
    /// [`Item::read`] accepts; `input` is then unchanged.
    pub fn read(input: &mut &'a [u8]) -> Result<Frame<'a>, FrameError> {
        let mut rest = *input;
        match Item::read(&mut rest)? {
            Item::Message(frame) => {
                *input = rest;
                Ok(frame)
            }
            other => Err(FrameError::NoMessage { found: other.describe() }),
        }
    }
}

/// The first bytes of a frame of [`STORED_VERSION`], and its body.
type Fields<'a> = ([u8; 8], &'a [u8]);

fn fields<'a>(rest: &mut &'a [u8]) -> Result<Fields<'a>, FrameError> {
    Ok((take_array(rest)?, take_bytes(rest)?))
}

/// Interprets the fields, whose checksum is verified.
fn interpret<'a>((head, body): Fields<'a>) -> Result<Item<'a>, FrameError> {
    let [.., kind, zero, zero_too] = head;
    if [zero, zero_too] != [0, 0] {
        return Err(FrameError::Malformed("the reserved bytes are not zero"));
    }
    let item = match kind {
        stored::KIND => StoredTensor::of_body(body).map(Item::Stored),
        metadata::KIND => Metadata::of_body(body).map(Item::Metadata),
        _ => Err(FrameError::Malformed("this version does not know the frame's kind")),
    };
    // The frame itself is complete.
    item.map_err(|error| match error {
        FrameError::Truncated => FrameError::Malformed("a field is longer than the frame"),
        error => error,
    })
}

#[cfg(test)]
mod tests;
