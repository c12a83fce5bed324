//! Symbols, one for each element or byte, in a fixed number of bits or in Huffman code.
//!
//! An alphabet of n symbols has w = ⌈log2 n⌉ bits. With `code=fixed` each symbol has w bits, from the lowest up. With
//! `code=huffman` a byte comes first, which says what follows:
//!
//! - 0: fixed width;
//! - 1: packed code lengths and a stream in Huffman code;
//! - 2: the same in four streams, if one would have 4096 bytes or more, so that four take hardly more.
//!
//! Huffman code takes at least one bit for a symbol. Where the entropy is more than 1 % below 0 and 1, and 128 bytes below a stream, the first of these forms that is
//! possible is written, if it is shorter than they are:
//!
//! - 4: shares and four streams in tANS of [groups](gradwire_bits::tans::groups) of the symbols, after a byte with the size of
//!   groups; for alphabets of up to six symbols;
//! - 6: a [significance map](significance): which symbols are not the most frequent one, and a list of these;
//! - 3: shares and four streams in tANS, if it saves more than 2 %. It is the slowest to encode.
//!
//! A list of more than 2^20 symbols begins with a 5. Then follows each part of as many symbols: its length in bytes as a `u32`, and
//! a list as above. An empty list has no bytes.

mod choice;
mod divided;
pub(crate) mod memory;
mod quantize;
mod significance;
mod tans;
mod view;

use gradwire_bits::tans::MOST_SYMBOLS;
use gradwire_bits::{DecodeError, fixed, huffman, kernels, try_resize};

pub(crate) use self::quantize::fill_symbols;
pub(crate) use self::view::View;
#[cfg(any(test, feature = "testing"))]
pub(crate) use divided::PART_SYMBOLS;

use self::choice::LEAST_STREAM;
use super::fields;
use crate::Helpers;
use crate::workspace::{SymbolCoder, Workspace};

/// Symbols that are packed at a time. They fill whole bytes, so that chunks follow each other without shifting.
const CHUNK: usize = 1024;

/// The byte before symbols of fixed width.
const FIXED: u8 = 0;

/// An entropy code, and how its streams follow. The number is the byte that comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    /// Huffman code in one stream.
    Single = 1,
    /// Huffman code in four streams.
    Four = 2,
    /// tANS in four streams.
    Tans = 3,
    /// tANS of groups of symbols, in four streams.
    Groups = 4,
    /// A significance map, and a list of the symbols that are not the most frequent one.
    Significance = 6,
}

impl Coding {
    /// The code that a byte stands for; `None` for fixed width.
    fn of(byte: u8) -> Result<Option<Self>, DecodeError> {
        use Coding::{Four, Groups, Significance, Single, Tans};
        if byte == FIXED {
            return Ok(None);
        }
        let coding =
            [Single, Four, Tans, Groups, Significance].into_iter().find(|&code| code as u8 == byte);
        coding.map(Some).ok_or(DecodeError::Corrupt("unknown code of symbols"))
    }

    /// Reads the code of an alphabet of `symbols` off the front of a message, and fills `out` with symbols.
    pub(crate) fn take(
        self,
        message: &mut &[u8],
        symbols: usize,
        coder: &mut SymbolCoder,
        out: &mut [u16],
    ) -> Result<(), DecodeError> {
        let SymbolCoder { code, tans, .. } = &mut *coder;
        let limit = huffman::limit(symbols);
        let used = match self {
            Coding::Single => {
                let used = code.read(message, symbols, limit)?;
                used + code.decode(&message[used..], out)?
            }
            Coding::Four => {
                let used = code.read(message, symbols, limit)?;
                used + code.decode_streams(&message[used..], out)?
            }
            Coding::Tans => {
                let used = tans.read(message, symbols)?;
                used + tans.decode(&message[used..], out)?
            }
            Coding::Groups => tans::read_groups(message, symbols, coder, out)?,
            Coding::Significance => {
                return significance::take(Alphabet::new(symbols, true), message, coder, out);
            }
        };
        *message = &message[used..];
        Ok(())
    }
}

/// An alphabet, and the code of its symbols.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Alphabet {
    symbols: usize,
    huffman: bool,
}

impl Alphabet {
    /// The symbols below `symbols`, which is 2 to 2^16.
    pub(crate) fn new(symbols: usize, huffman: bool) -> Self {
        Self { symbols, huffman }
    }

    /// The same symbols in Huffman code, or another that is shorter.
    pub(crate) fn coded(self) -> Self {
        Self { huffman: true, ..self }
    }

    /// Bits of a symbol without Huffman code.
    fn width(self) -> u32 {
        (self.symbols - 1).ilog2() + 1
    }

    /// Bits of a symbol; `None` with Huffman code, where they vary.
    pub(crate) fn value_bits(self) -> Option<u32> {
        (!self.huffman).then(|| self.width())
    }

    /// The alphabet in which a device writes and reads symbols: of the same width if that divides whole bytes or is one or
    /// two bytes, else of eight bits, or of sixteen.
    fn of_device(self) -> Self {
        let symbols = match self.width() {
            1 | 2 | 4 | 8 | 16 => self.symbols,
            3 | 5..8 => 1 << 8,
            _ => 1 << 16,
        };
        Self { symbols, huffman: false }
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

    /// Appends the symbols in the workspace to a device form.
    pub(crate) fn put_form(
        self,
        workspace: &Workspace,
        form: &mut Vec<u8>,
    ) -> Result<(), DecodeError> {
        form.try_reserve(self.of_device().max_len(workspace.symbols.len()))?;
        self.of_device().put_fixed(&workspace.symbols, form);
        Ok(())
    }

    /// Appends the symbols in the workspace.
    pub(crate) fn write(self, workspace: &mut Workspace, message: &mut Vec<u8>) {
        let Workspace { symbols, coder, helpers, .. } = workspace;
        // The list may be longer next time, up to its capacity.
        let most = symbols.capacity().min(divided::PART_SYMBOLS);
        if self.huffman && self.may_be_shorter(most) {
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
        if self.huffman && symbols.len() > divided::PART_SYMBOLS {
            message.push(divided::DIVIDED);
            return self.put_parts(symbols, coder, helpers, message);
        }
        self.put_list(symbols, coder, message);
    }

    /// Appends symbols in one list.
    fn put_list(self, symbols: &[u16], coder: &mut SymbolCoder, message: &mut Vec<u8>) {
        if self.huffman && !symbols.is_empty() {
            self.reserve(coder);
            return self
                .put_tagged(symbols, message, |message| self.put_coded(symbols, coder, message));
        }
        self.put_fixed(symbols, message);
    }

    /// Appends the byte of the code that `put` appends, or that of fixed width and the symbols if it appends none.
    fn put_tagged(
        self,
        symbols: &[u16],
        message: &mut Vec<u8>,
        put: impl FnOnce(&mut Vec<u8>) -> Option<Coding>,
    ) {
        let tag = message.len();
        message.push(FIXED);
        match put(message) {
            Some(coding) => message[tag] = coding as u8,
            None => self.put_fixed(symbols, message),
        }
    }

    /// Reads one symbol for each of `elements` elements off the front of a message into the workspace.
    pub(crate) fn read(
        self,
        message: &mut &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { symbols, coder, helpers, .. } = workspace;
        self.take(message, elements, symbols, coder, helpers)
    }

    /// Reads `elements` symbols off the front of a message. The helpers share the parts of a long list.
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
        if self.huffman
            && elements > divided::PART_SYMBOLS
            && message.first() == Some(&divided::DIVIDED)
        {
            *message = &message[1..];
            return self.take_parts(message, symbols, coder, helpers);
        }
        // The list may be longer next time, up to its capacity.
        let most = symbols.capacity().min(divided::PART_SYMBOLS);
        self.take_list(message, symbols, most, coder, helpers)
    }

    /// Reads symbols that are in one list. Later ones may have up to `most` symbols.
    fn take_list(
        self,
        message: &mut &[u8],
        symbols: &mut [u16],
        most: usize,
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        if self.huffman && !symbols.is_empty() {
            if self.may_be_shorter(symbols.len()) {
                memory::try_reserve(most.max(symbols.len()), coder)?;
            }
            if let Some(coding) = Coding::of(fields::take(message, 1)?[0])? {
                return coding.take(message, self.symbols, coder, symbols);
            }
        }
        self.take_fixed(message, symbols, helpers)
    }

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
        let bytes = fields::take(message, bytes(elements, width))?;
        let parts = helpers.parts(elements, 8);
        if parts.is_one() {
            return self.unpack(bytes, symbols);
        }
        let bytes = bytes.chunks(fixed::len(parts.len(), width));
        let jobs = bytes.zip(symbols.chunks_mut(parts.len()));
        helpers.try_share(jobs, |(bytes, symbols)| self.unpack(bytes, symbols))
    }

    /// Reads symbols of one width, which these bytes are.
    fn unpack(self, bytes: &[u8], symbols: &mut [u16]) -> Result<(), DecodeError> {
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
        // Of an alphabet of a power of two every number of this width is a symbol.
        if self.symbols == 1 << width { Ok(()) } else { self.check(kernels::max_symbol(symbols)) }
    }

    /// Checks that the largest of some symbols is in the alphabet.
    fn check(self, largest: u16) -> Result<(), DecodeError> {
        if usize::from(largest) < self.symbols {
            Ok(())
        } else {
            Err(DecodeError::Corrupt("a symbol is not of the alphabet"))
        }
    }

    /// Reserves memory for fitting any code, so that later messages allocate nothing.
    fn reserve(self, coder: &mut SymbolCoder) {
        coder.counts.clear();
        coder.counts.reserve(self.symbols);
        coder.code.reserve(self.symbols);
    }

    /// Whether a list of this length may be in tANS.
    fn may_be_shorter(self, elements: usize) -> bool {
        self.symbols <= MOST_SYMBOLS && bytes(elements, self.width()) as u64 >= LEAST_STREAM
    }

    /// The most bytes that the symbols of `elements` elements take.
    pub(crate) fn max_len(self, elements: usize) -> usize {
        let fixed = bytes(elements, self.width());
        if !self.huffman {
            return fixed;
        }
        let parts = if elements > divided::PART_SYMBOLS {
            elements.div_ceil(divided::PART_SYMBOLS)
        } else {
            0
        };
        fixed.saturating_add(1 + parts * divided::EXTRA)
    }

    /// The most elements whose symbols fit in `len` bytes.
    pub(crate) fn max_elements(self, len: usize) -> usize {
        if self.huffman {
            // A stream of one symbol takes no bits, however long it is; counts have 32 bits.
            if len == 0 { 0 } else { u32::MAX as usize }
        } else {
            (len as u128 * 8 / u128::from(self.width())).min(usize::MAX as u128) as usize
        }
    }
}

/// The bytes of `elements` symbols of `width` bits.
fn bytes(elements: usize, width: u32) -> usize {
    (elements as u128 * u128::from(width)).div_ceil(8).min(usize::MAX as u128 / 2) as usize
}

#[cfg(test)]
mod tests;
