//! Alphabets of symbols.

use gradwire_bits::DecodeError;

/// The symbols below a number, and whether lists of them are coded.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Alphabet {
    /// The number of symbols.
    pub(super) symbols: usize,
    /// Whether a list is in its shortest form, after the byte of the form. Otherwise it is of fixed
    /// width.
    pub(super) is_coded: bool,
}

impl Alphabet {
    /// The symbols below `symbols`, which is 2 to 2^16.
    pub(crate) fn new(symbols: usize, is_coded: bool) -> Self {
        Self { symbols, is_coded }
    }

    /// The same symbols, coded.
    pub(crate) fn coded(self) -> Self {
        Self { is_coded: true, ..self }
    }

    /// Bits of a symbol of fixed width.
    pub(super) fn width(self) -> u32 {
        (self.symbols - 1).ilog2() + 1
    }

    /// Bits of a symbol; `None` if they vary, because lists are coded.
    pub(crate) fn value_bits(self) -> Option<u32> {
        (!self.is_coded).then(|| self.width())
    }

    /// Bytes of a list of fixed width.
    pub(super) fn fixed_len(self, elements: usize) -> usize {
        let bits = elements as u128 * u128::from(self.width());
        bits.div_ceil(8).min(usize::MAX as u128 / 2) as usize
    }

    /// Whether every number of the fixed width is a symbol.
    pub(super) fn has_every_number(self) -> bool {
        self.symbols == 1 << self.width()
    }

    /// Checks that the largest of some symbols is in the alphabet.
    pub(super) fn check(self, largest: u16) -> Result<(), DecodeError> {
        if usize::from(largest) < self.symbols {
            Ok(())
        } else {
            Err(DecodeError::Corrupt("a symbol is not in the alphabet"))
        }
    }
}
