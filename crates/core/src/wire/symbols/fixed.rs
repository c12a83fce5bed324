//! Symbols of fixed width, in messages and in device forms.

use gradwire_bits::{DecodeError, fixed, kernels, try_resize};

use super::alphabet::Alphabet;
use crate::wire::fields;
use crate::{Helpers, Workspace};

/// Symbols that are packed at a time. They fill whole bytes, so chunks follow each other without
/// shifts.
const CHUNK: usize = 1024;

impl Alphabet {
    /// Appends symbols, all in the same number of bits.
    pub(crate) fn put_fixed(self, symbols: &[u16], message: &mut Vec<u8>) {
        let mut words = [0; CHUNK];
        for symbols in symbols.chunks(CHUNK) {
            match self.width() {
                1 => fixed::pack_bits(symbols, message),
                8 => {
                    let start = message.len();
                    message.resize(start + symbols.len(), 0);
                    kernels::narrow(symbols, &mut message[start..]);
                }
                16 => fields::put_u16s(symbols, message),
                width => {
                    let words = &mut words[..symbols.len()];
                    words.iter_mut().zip(symbols).for_each(|(word, &s)| *word = u32::from(s));
                    fixed::pack(words, width, message);
                }
            }
        }
    }

    /// Reads symbols of one width off the front of a message. The helpers share the work.
    pub(crate) fn take_fixed(
        self,
        message: &mut &[u8],
        symbols: &mut [u16],
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        let (elements, width) = (symbols.len(), self.width());
        let bytes = fields::take(message, self.fixed_len(elements))?;
        let parts = helpers.parts(elements, 8);
        if parts.is_one() {
            return self.unpack(bytes, symbols);
        }
        let bytes = bytes.chunks(fixed::len(parts.len(), width));
        let jobs = bytes.zip(symbols.chunks_mut(parts.len()));
        helpers.try_share(jobs, |(bytes, symbols)| self.unpack(bytes, symbols))
    }

    /// Reads symbols of one width from exactly these bytes.
    pub(super) fn unpack(self, bytes: &[u8], symbols: &mut [u16]) -> Result<(), DecodeError> {
        let width = self.width();
        if width == 8 {
            return self.check(kernels::widen(bytes, symbols));
        }
        let mut words = [0; CHUNK];
        let chunks = bytes.chunks(fixed::len(CHUNK, width));
        for (symbols, bytes) in symbols.chunks_mut(CHUNK).zip(chunks) {
            match width {
                1 => fixed::unpack_bits(bytes, symbols)?,
                16 => fields::read_u16s(bytes, symbols),
                width => {
                    let words = &mut words[..symbols.len()];
                    fixed::unpack(bytes, width, words)?;
                    symbols.iter_mut().zip(words).for_each(|(s, word)| *s = *word as u16);
                }
            }
        }
        if self.has_every_number() { Ok(()) } else { self.check(kernels::max_symbol(symbols)) }
    }

    /// The alphabet in which a device writes and reads symbols. Symbols of 1, 2, 4, 8 or 16 bits
    /// keep their width, so no symbol straddles bytes. Others get 8 bits if that is enough, else
    /// 16.
    fn of_device(self) -> Self {
        let symbols = match self.width() {
            1 | 2 | 4 | 8 | 16 => self.symbols,
            3 | 5..8 => 1 << 8,
            _ => 1 << 16,
        };
        Self::new(symbols, false)
    }

    /// Reads `elements` symbols off the front of a [device form](crate::device) into the workspace.
    pub(crate) fn take_form(
        self,
        form: &mut &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { symbols, helpers, .. } = workspace;
        try_resize(symbols, elements, 0)?;
        self.of_device().take_fixed(form, symbols, helpers)?;
        self.check(kernels::max_symbol(&workspace.symbols))
    }

    /// Bits of a symbol in a device form; `None` if messages have lists that are coded.
    pub(crate) fn form_bits(self) -> Option<u32> {
        self.value_bits().map(|_| self.of_device().width())
    }

    /// Appends the symbols in the workspace to a device form.
    pub(crate) fn put_form(
        self,
        workspace: &Workspace,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        form.try_reserve(self.of_device().fixed_len(workspace.symbols.len()))?;
        self.of_device().put_fixed(&workspace.symbols, form);
        Ok(())
    }
}
