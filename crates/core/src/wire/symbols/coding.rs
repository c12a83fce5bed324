//! Lists of symbols, and the names of their coded forms.

use gradwire_bits::DecodeError;

use super::alphabet::Alphabet;

/// The byte before a list of fixed width.
pub(super) const FIXED: u8 = 0;

/// A list is in tANS or has a significance map only if its Huffman stream would have this many
/// bytes or more.
pub(super) const MIN_STREAM: u64 = 1024;

/// A coded list of more symbols is in parts of this size. With parts a quarter as long, fitting
/// codes took a tenth of the time.
pub(crate) const PART_SYMBOLS: usize = 1 << 20;

/// The coded form of a list. The number is the byte before the list.
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
    /// The form of this byte; `None` for fixed width.
    pub(super) fn of(byte: u8) -> Result<Option<Self>, DecodeError> {
        use Coding::{Four, Groups, Significance, Single, Tans};
        if byte == FIXED {
            return Ok(None);
        }
        let coding =
            [Single, Four, Tans, Groups, Significance].into_iter().find(|&code| code as u8 == byte);
        coding.map(Some).ok_or(DecodeError::Corrupt("unknown symbol code"))
    }
}

/// A list to write.
#[derive(Debug, Clone, Copy)]
pub(super) struct List<'a> {
    pub(super) alphabet: Alphabet,
    pub(super) symbols: &'a [u16],
    /// How often each symbol of the alphabet occurs.
    pub(super) counts: &'a [u32],
}
