//! Symbols, one for each element or byte, in a fixed number of bits or in Huffman code.
//!
//! An alphabet of n symbols has w = ⌈log2 n⌉ bits. With `code=fixed` each symbol has w bits, from the lowest up. With
//! `code=huffman` a byte comes first: 1 if packed code lengths and a stream follow, because they are shorter, else 0.
//! An empty list has no bytes.

use gradwire_bits::huffman;
use gradwire_bits::{DecodeError, fixed, try_resize};

use super::fields;
use crate::workspace::{SymbolCoder, Workspace};

/// Symbols that are packed at a time. They fill whole bytes, so that chunks follow each other without shifting.
const CHUNK: usize = 1024;

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
        self.of_device().take_fixed(form, elements, &mut workspace.symbols)?;
        self.check(&workspace.symbols)
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
        let Workspace { symbols, coder, .. } = workspace;
        self.put(symbols, coder, message);
    }

    /// Appends symbols.
    pub(crate) fn put(self, symbols: &[u16], coder: &mut SymbolCoder, message: &mut Vec<u8>) {
        if self.huffman && !symbols.is_empty() {
            self.reserve(coder);
            let tag = message.len();
            message.push(0);
            if self.put_coded(symbols, coder, message) {
                message[tag] = 1;
                return;
            }
        }
        self.put_fixed(symbols, message);
    }

    /// Appends the packed Huffman code lengths of symbols and their stream, if that is shorter than symbols of fixed
    /// width. Returns whether it is.
    pub(crate) fn put_coded(
        self,
        symbols: &[u16],
        SymbolCoder { counts, code }: &mut SymbolCoder,
        message: &mut Vec<u8>,
    ) -> bool {
        counts.clear();
        counts.resize(self.symbols, 0);
        for &symbol in symbols {
            let count = &mut counts[usize::from(symbol)];
            *count = count.saturating_add(1);
        }
        code.fit(counts, huffman::limit(self.symbols));
        let bytes = code.packed_bits().div_ceil(8) + code.len_bits(counts).div_ceil(8);
        let shorter = (bytes as usize) < fixed::len(symbols.len(), self.width());
        if shorter {
            code.write(message);
            code.encode(symbols, message);
        }
        shorter
    }

    /// Reads one symbol for each of `elements` elements off the front of a message into the workspace.
    pub(crate) fn read(
        self,
        message: &mut &[u8],
        elements: usize,
        workspace: &mut Workspace,
    ) -> Result<(), DecodeError> {
        let Workspace { symbols, coder, .. } = workspace;
        self.take(message, elements, symbols, coder)
    }

    /// Reads `elements` symbols off the front of a message.
    pub(crate) fn take(
        self,
        message: &mut &[u8],
        elements: usize,
        symbols: &mut Vec<u16>,
        coder: &mut SymbolCoder,
    ) -> Result<(), DecodeError> {
        symbols.clear();
        if self.huffman && elements > 0 {
            let code = &mut coder.code;
            match fields::take(message, 1)?[0] {
                0 => {}
                1 => {
                    let limit = huffman::limit(self.symbols);
                    let used = code.read(message, self.symbols, limit)?;
                    *message = &message[used..];
                    let used = code.decode(message, elements, symbols)?;
                    *message = &message[used..];
                    return Ok(());
                }
                _ => return Err(DecodeError::Corrupt("unknown code of symbols")),
            }
        }
        self.take_fixed(message, elements, symbols)
    }

    /// Appends symbols, all in the same number of bits.
    pub(crate) fn put_fixed(self, symbols: &[u16], message: &mut Vec<u8>) {
        let mut words = [0; CHUNK];
        for symbols in symbols.chunks(CHUNK) {
            match self.width() {
                8 => message.extend(symbols.iter().map(|&symbol| symbol as u8)),
                16 => fields::put_u16s(symbols, message),
                width => {
                    let words = &mut words[..symbols.len()];
                    words.iter_mut().zip(symbols).for_each(|(word, &s)| *word = u32::from(s));
                    fixed::pack(words, width, message);
                }
            }
        }
    }

    /// Reads `elements` symbols of one width off the front of a message.
    pub(crate) fn take_fixed(
        self,
        message: &mut &[u8],
        elements: usize,
        symbols: &mut Vec<u16>,
    ) -> Result<(), DecodeError> {
        let width = self.width();
        let bytes = fields::take(message, bytes(elements, width))?;
        symbols.clear();
        try_resize(symbols, elements, 0)?;
        let mut words = [0; CHUNK];
        let chunks = bytes.chunks(fixed::len(CHUNK, width));
        for (symbols, bytes) in symbols.chunks_mut(CHUNK).zip(chunks) {
            match width {
                8 => symbols.iter_mut().zip(bytes).for_each(|(s, &byte)| *s = u16::from(byte)),
                16 => fields::read_u16s(bytes, symbols),
                width => {
                    let words = &mut words[..symbols.len()];
                    fixed::unpack(bytes, width, words)?;
                    symbols.iter_mut().zip(words).for_each(|(s, word)| *s = *word as u16);
                }
            }
        }
        self.check(symbols)
    }

    /// Refuses symbols that are not of the alphabet.
    fn check(self, symbols: &[u16]) -> Result<(), DecodeError> {
        let largest = symbols.iter().fold(0, |largest, &symbol| symbol.max(largest));
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

    /// The most bytes that the symbols of `elements` elements take.
    pub(crate) fn max_len(self, elements: usize) -> usize {
        usize::from(self.huffman) + bytes(elements, self.width())
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
mod tests {
    use super::*;
    use crate::BLOCK;

    fn written(alphabet: Alphabet, symbols: &[u16]) -> Vec<u8> {
        let mut workspace = Workspace { symbols: symbols.to_vec(), ..Workspace::default() };
        let mut message = Vec::new();
        alphabet.write(&mut workspace, &mut message);
        message
    }

    fn read(
        alphabet: Alphabet,
        mut message: &[u8],
        elements: usize,
    ) -> Result<Vec<u16>, DecodeError> {
        let mut workspace = Workspace::default();
        alphabet.read(&mut message, elements, &mut workspace)?;
        fields::expect_len(message, 0).map(|()| workspace.symbols)
    }

    #[test]
    fn bytes_worked_by_hand() {
        // Three bits each: 001 100 010, from the lowest.
        let five = Alphabet::new(5, false);
        assert_eq!(written(five, &[1, 4, 2]), [0b1010_0001, 0]);
        assert_eq!(read(five, &[0b1010_0001, 0], 3), Ok(vec![1, 4, 2]));
        // Nothing is shorter than a byte; nor is Huffman code of two symbols with its lengths.
        assert_eq!(written(Alphabet::new(5, true), &[1, 4]), [0, 0b10_0001]);
        // Of one symbol there is no stream: lengths 0, 1, 0, 0, 0 are 1101, 11110000, 110011.
        let lengths = [1, 0b1111_1011, 0b0011_0000, 0b11];
        assert_eq!(written(Alphabet::new(5, true), &[1; 100]), lengths);
        assert_eq!(read(Alphabet::new(5, true), &lengths, 100), Ok(vec![1; 100]));
        assert!(written(Alphabet::new(5, true), &[]).is_empty());
    }

    #[test]
    fn every_width_returns_within_its_bounds() {
        for symbols in [2, 3, 4, 5, 129, 255, 256, 257, 511, 65_535, 65_536] {
            for len in [0, 1, 7, 8, 9, BLOCK, 2 * BLOCK + 13] {
                let all: Vec<u16> = (0..len).map(|i| (i * i * 7 % symbols) as u16).collect();
                for huffman in [false, true] {
                    let alphabet = Alphabet::new(symbols, huffman);
                    let message = written(alphabet, &all);
                    assert!(message.len() <= alphabet.max_len(len));
                    assert!(len <= alphabet.max_elements(message.len()));
                    assert_eq!(read(alphabet, &message, len).as_ref(), Ok(&all));
                }
            }
        }
    }

    #[test]
    fn what_is_not_of_the_alphabet_is_refused() {
        let five = Alphabet::new(5, false);
        assert!(matches!(read(five, &[5], 1), Err(DecodeError::Corrupt(_))));
        assert!(matches!(read(five, &[0b1000], 1), Err(DecodeError::Corrupt(_))));
        assert_eq!(read(five, &[0, 0], 1), Err(DecodeError::Trailing { extra: 1 }));
        let huffman = Alphabet::new(5, true);
        assert!(matches!(read(huffman, &[2, 0], 1), Err(DecodeError::Corrupt(_))));
        assert_eq!(read(huffman, &[], 1), Err(DecodeError::Truncated));
        assert_eq!(read(huffman, &[0], 0), Err(DecodeError::Trailing { extra: 1 }));
    }
}
