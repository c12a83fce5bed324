//! Lists of symbols as fields of a message.

use gradwire_bits::{DecodeError, try_resize};

use super::alphabet::Alphabet;
use super::coding::PART_SYMBOLS;
use super::{divided, memory};
use crate::Helpers;
use crate::workspace::{SymbolCoder, Workspace};

impl Alphabet {
    /// Appends the symbols in the workspace.
    pub(crate) fn write(self, workspace: &mut Workspace, message: &mut Vec<u8>) {
        let Workspace { symbols, coder, helpers, .. } = workspace;
        // The list may be longer next time, up to its capacity.
        let most = symbols.capacity().min(PART_SYMBOLS);
        if self.is_coded && self.may_be_shorter(most) {
            memory::reserve(most, coder);
        }
        self.put(symbols, coder, helpers, message);
    }

    /// Appends symbols. The helpers share the parts of a long list.
    pub(crate) fn put(
        self,
        symbols: &[u16],
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
        message: &mut Vec<u8>,
    ) {
        if self.is_coded && symbols.len() > PART_SYMBOLS {
            message.push(divided::DIVIDED);
            return self.put_parts(symbols, coder, helpers, message);
        }
        self.put_list(symbols, coder, message);
    }

    /// Reads one symbol for each of `elements` elements off the front of a message into the
    /// workspace.
    pub(crate) fn read(
        self,
        message: &mut &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { symbols, coder, helpers, .. } = workspace;
        self.take(message, elements, symbols, coder, helpers)
    }

    /// Reads `elements` symbols off the front of a message. The helpers share the parts of a long
    /// list.
    pub(crate) fn take(
        self,
        message: &mut &[u8],
        elements: usize,
        symbols: &mut Vec<u16>,
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        // Symbols left from an earlier message are overwritten.
        try_resize(symbols, elements, 0)?;
        if self.is_coded && elements > PART_SYMBOLS && message.first() == Some(&divided::DIVIDED) {
            *message = &message[1..];
            return self.take_parts(message, symbols, coder, helpers);
        }
        // The list may be longer next time, up to its capacity.
        let most = symbols.capacity().min(PART_SYMBOLS);
        self.take_list(message, symbols, most, coder, helpers)
    }

    /// The most bytes that the symbols of `elements` elements take.
    pub(crate) fn max_len(self, elements: usize) -> usize {
        let fixed = self.fixed_len(elements);
        if !self.is_coded {
            return fixed;
        }
        let parts = if elements > PART_SYMBOLS { elements.div_ceil(PART_SYMBOLS) } else { 0 };
        fixed.saturating_add(1 + parts * divided::EXTRA)
    }

    /// The most elements whose symbols fit in `len` bytes.
    pub(crate) fn max_elements(self, len: usize) -> usize {
        if self.is_coded {
            // A stream of one symbol takes no bits, however long it is; counts have 32 bits.
            if len == 0 { 0 } else { u32::MAX as usize }
        } else {
            (len as u128 * 8 / u128::from(self.width())).min(usize::MAX as u128) as usize
        }
    }
}
