//! The device form of messages that have all elements.

use gradwire_bits::DecodeError;

use super::{DeviceArgs, DeviceForm};
use crate::wire::symbols::Alphabet;
use crate::{Coverage, Workspace};

/// The direction of a conversion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    /// From the form to the message.
    Pack,
    /// From the message to the form.
    Unpack,
}

/// A form with the same fields as the message, except perhaps the code of symbols: one function
/// converts both ways.
pub(crate) trait DenseForm {
    /// Checks the bytes, and appends the converted ones.
    fn convert(&self, direction: Direction, args: DeviceArgs<'_>) -> Result<(), DecodeError>;
}

impl<T: DenseForm> DeviceForm for T {
    fn pack(&self, args: DeviceArgs<'_>) -> Result<Coverage, DecodeError> {
        self.convert(Direction::Pack, args).map(|()| Coverage::All)
    }

    fn unpack(&self, args: DeviceArgs<'_>) -> Result<(), DecodeError> {
        self.convert(Direction::Unpack, args)
    }
}

impl Direction {
    /// Reads symbols off the front of the bytes to convert into the workspace.
    pub(crate) fn take(
        self,
        alphabet: Alphabet,
        from: &mut &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        match self {
            Direction::Pack => alphabet.take_form(from, elements, workspace),
            Direction::Unpack => alphabet.read(from, elements, workspace),
        }
    }

    /// Appends the symbols in the workspace to the converted bytes.
    pub(crate) fn put(
        self,
        alphabet: Alphabet,
        workspace: &mut Workspace,
        to: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        match self {
            Direction::Pack => alphabet.write(workspace, to),
            Direction::Unpack => alphabet.put_form(workspace, to)?,
        }
        Ok(())
    }
}

/// Appends bytes that are the same in the message and in the form.
pub(crate) fn copy(from: &[u8], to: &mut Vec<u8>) -> Result<(), DecodeError> {
    to.try_reserve(from.len())?;
    to.extend_from_slice(from);
    Ok(())
}
