//! Significance maps, for lists with a symbol so frequent that Huffman code wastes bits.
//!
//! The most frequent symbol comes first, as a `u16`. Then come two lists, each after the byte of
//! its form:
//!
//! - the map, a list of the two symbols 0 and 1: 0 stands for the most frequent symbol, 1 for any
//!   other;
//! - the other symbols, at most two thirds of all; no list if there are none. This list may have a
//!   significance map again; the map may not.
//!
//! Together the lists take the entropy of order 0, because the entropy of a choice in two steps is
//! the sum of the entropies of both steps (Shannon: "A Mathematical Theory of Communication",
//! section 6). Groups of two-valued symbols are encoded several times as fast as tANS encodes the
//! alphabet's symbols. Image and video coders code coefficients in this way (Shapiro: "Embedded
//! image coding using zerotrees of wavelet coefficients").

use gradwire_bits::{DecodeError, kernels, try_resize};

use super::alphabet::Alphabet;
use super::coding::{Coding, List, MIN_STREAM};
use crate::wire::fields;
use crate::workspace::SymbolCoder;

/// The alphabet of maps.
const BINARY: usize = 2;
/// At least one in this many symbols is the most frequent one.
const ONE_IN: usize = 3;
/// The fewest symbols of a list with a map. A map of fewer symbols has less than [`MIN_STREAM`]
/// bytes, and no code shortens it.
const MIN_SYMBOLS: u64 = 8 * MIN_STREAM;

/// The functions that append the lists of a map, each after the byte of its form.
pub(super) struct PutLists {
    /// Appends the map.
    pub(super) map: fn(List<'_>, &mut SymbolCoder, &mut Vec<u8>),
    /// Appends the list of the other symbols; or only the byte of a significance map, and returns
    /// false: then the caller appends this map.
    pub(super) others: fn(List<'_>, &mut SymbolCoder, &mut Vec<u8>) -> bool,
}

/// Reads symbols in a form off the front of a message; `None` is fixed width.
type TakeIn = fn(
    Alphabet,
    Option<Coding>,
    &mut &[u8],
    &mut SymbolCoder,
    &mut [u16],
) -> Result<(), DecodeError>;

/// The room for all nested lists of other symbols under a list of `most` symbols. Each list is at
/// most two thirds as long as the list before, so together they have at most twice as many symbols.
/// The rest of the room is never shorter than the list whose other symbols come next.
pub(super) fn room(most: usize) -> usize {
    most.saturating_mul(2)
}

/// Whether a list whose symbols occur this often can be written with a significance map.
pub(super) fn is_fit(symbols: usize, counts: &[u32]) -> bool {
    let most = counts.iter().max().map_or(0, |&most| most as usize);
    counts.len() > BINARY && symbols as u64 >= MIN_SYMBOLS && most.saturating_mul(ONE_IN) >= symbols
}

/// Appends the map and the other symbols of a list, if the list [fits](is_fit).
pub(super) fn put(
    List { alphabet, symbols, counts }: List<'_>,
    coder: &mut SymbolCoder,
    message: &mut Vec<u8>,
    put_lists: &PutLists,
) -> bool {
    if !is_fit(symbols.len(), counts) {
        return false;
    }
    let [mut marks, mut lists] = [&mut coder.marks, &mut coder.others].map(std::mem::take);
    let mut left = std::mem::take(&mut coder.left);
    marks.resize(symbols.len().max(marks.len()), 0);
    lists.resize(room(symbols.len()).max(lists.len()), 0);
    left.clear();
    left.extend_from_slice(counts);
    let (mut list, mut room) = (symbols, &mut lists[..]);
    loop {
        let common = most_frequent(&left);
        left[usize::from(common)] = 0;
        fields::put_u16s(&[common], message);
        let marks = &mut marks[..list.len()];
        let others = kernels::separate(list, common, marks, room);
        let counts = &[list.len() - others, others].map(|count| count as u32);
        let map = List { alphabet: Alphabet::new(BINARY, true), symbols: marks, counts };
        (put_lists.map)(map, coder, message);
        (list, room) = split(room, others);
        let others = List { alphabet, symbols: list, counts: &left };
        if list.is_empty() || (put_lists.others)(others, coder, message) {
            break;
        }
    }
    (coder.marks, coder.others, coder.left) = (marks, lists, left);
    true
}

/// The symbol with the largest count; the last of several.
fn most_frequent(counts: &[u32]) -> u16 {
    let symbol = (0..counts.len()).max_by_key(|&symbol| counts[symbol]);
    symbol.expect("an alphabet has symbols") as u16
}

/// The first symbols of the room, and the rest of it.
fn split(room: &mut [u16], symbols: usize) -> (&[u16], &mut [u16]) {
    let (list, room) = room.split_at_mut(symbols);
    (list, room)
}

/// Reads the output of [`put`] off the front of a message, and fills `out`.
pub(super) fn take(
    alphabet: Alphabet,
    message: &mut &[u8],
    coder: &mut SymbolCoder,
    out: &mut [u16],
    take_in: TakeIn,
) -> Result<(), DecodeError> {
    let mut lists = std::mem::take(&mut coder.others);
    let reader = Reader { alphabet, take_in };
    let len = room(out.len()).max(lists.len());
    let taken =
        try_resize(&mut lists, len, 0).and_then(|()| reader.take(message, coder, &mut lists, out));
    coder.others = lists;
    taken
}

/// Reads maps and their lists.
struct Reader {
    alphabet: Alphabet,
    take_in: TakeIn,
}

impl Reader {
    /// Reads a map and the list of its other symbols, for which there is [`room`].
    fn take(
        &self,
        message: &mut &[u8],
        coder: &mut SymbolCoder,
        room: &mut [u16],
        out: &mut [u16],
    ) -> Result<(), DecodeError> {
        let mut common = [0];
        fields::read_u16s(fields::take(message, 2)?, &mut common);
        self.alphabet.check(common[0])?;
        match take_coding(message)? {
            Some(Coding::Significance) => {
                return Err(DecodeError::Corrupt("a significance map is in another"));
            }
            coding => (self.take_in)(Alphabet::new(BINARY, true), coding, message, coder, out)?,
        }
        let count = kernels::occurrences(out, 1) as usize;
        if (out.len() - count).saturating_mul(ONE_IN) < out.len() {
            return Err(DecodeError::Corrupt("a symbol is too rare for a significance map"));
        }
        let (others, room) = room.split_at_mut(count);
        if !others.is_empty() {
            match take_coding(message)? {
                Some(Coding::Significance) => self.take(message, coder, room, others)?,
                coding => (self.take_in)(self.alphabet, coding, message, coder, others)?,
            }
        }
        kernels::put_back(out, common[0], others);
        Ok(())
    }
}

/// Reads the byte before a list.
fn take_coding(message: &mut &[u8]) -> Result<Option<Coding>, DecodeError> {
    Coding::of(fields::take(message, 1)?[0])
}
