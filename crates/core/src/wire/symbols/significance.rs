//! Significance maps: where one symbol occurs so often that Huffman code takes more than it should.
//!
//! The most frequent symbol comes first, as a `u16`. Then comes a list of two symbols, 1 for each symbol that is not the most
//! frequent one and 0 for the others, and a list of the symbols that are not. This list may be a significance map again, while
//! the first is not. The symbols that are not the most frequent one are two thirds of all at most. Without any, there is no list of them.
//!
//! Together they take the entropy of order 0: that of a choice in two steps is the sum of both (Shannon: "A Mathematical Theory of
//! Communication", section 6). Groups of the two symbols are encoded several times as fast as symbols of the alphabet in tANS. Coders
//! of images and videos code coefficients like this (Shapiro: "Embedded image coding using zerotrees of wavelet coefficients").

use gradwire_bits::{DecodeError, kernels, try_resize};

use super::choice::{LEAST_STREAM, saves};
use super::{Alphabet, Coding, tans};
use crate::Helpers;
use crate::wire::fields;
use crate::workspace::SymbolCoder;

/// The alphabet of maps.
const BINARY: usize = 2;
/// The most frequent symbol is at least one in this many.
const ONE_IN: usize = 3;
/// The fewest symbols of a list with a map. The map of fewer has less than [`LEAST_STREAM`] bytes, and nothing shortens it.
const LEAST_SYMBOLS: u64 = 8 * LEAST_STREAM;

/// The room for the other symbols of a list of `most`, for the others of these, and so on. Each list has at most two thirds of the
/// one before, so all have twice as many together. What is left is never shorter than the list whose others come next.
pub(super) fn room(most: usize) -> usize {
    most.saturating_mul(2)
}

/// Whether a list whose symbols occur this often can be written with a significance map.
pub(super) fn is_fit(symbols: usize, counts: &[u32]) -> bool {
    let most = counts.iter().max().map_or(0, |&most| most as usize);
    counts.len() > BINARY
        && symbols as u64 >= LEAST_SYMBOLS
        && most.saturating_mul(ONE_IN) >= symbols
}

/// Appends a list whose symbols occur this often, if it [fits](is_fit).
pub(super) fn put(
    alphabet: Alphabet,
    symbols: &[u16],
    counts: &[u32],
    coder: &mut SymbolCoder,
    message: &mut Vec<u8>,
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
        let kept = put_map(list, &mut left, (&mut marks, room), coder, message);
        (list, room) = split(room, kept);
        if list.is_empty() {
            break;
        }
        let lengths = alphabet.fit(kept, &left, coder);
        if saves(&left, lengths) && is_fit(kept, &left) {
            message.push(Coding::Significance as u8);
            continue;
        }
        alphabet.put_tagged(list, message, |message| {
            let in_tans = tans::put(list, &left, lengths, coder, message);
            if in_tans {
                Some(Coding::Tans)
            } else {
                alphabet.put_huffman(list, lengths, coder, message)
            }
        });
        break;
    }
    (coder.marks, coder.others, coder.left) = (marks, lists, left);
    true
}

/// Appends the most frequent symbol of a list and its map. Leaves the other symbols in the room and their counts, and returns their number.
fn put_map(
    list: &[u16],
    counts: &mut [u32],
    (marks, room): (&mut [u16], &mut [u16]),
    coder: &mut SymbolCoder,
    message: &mut Vec<u8>,
) -> usize {
    let most = (0..counts.len()).max_by_key(|&symbol| counts[symbol]);
    let common = most.expect("an alphabet has symbols");
    fields::put_u16s(&[common as u16], message);
    counts[common] = 0;
    let marks = &mut marks[..list.len()];
    let kept = kernels::separate(list, common as u16, marks, room);
    let counts = [list.len() - kept, kept].map(|count| count as u32);
    let binary = Alphabet::new(BINARY, true);
    binary.put_tagged(marks, message, |message| binary.put_counted(marks, &counts, coder, message));
    kept
}

/// The first symbols of the room, and what is left of it.
fn split(room: &mut [u16], symbols: usize) -> (&[u16], &mut [u16]) {
    let (list, room) = room.split_at_mut(symbols);
    (list, room)
}

/// Reads what [`put`] appends off the front of a message, and fills `out`.
pub(super) fn take(
    alphabet: Alphabet,
    message: &mut &[u8],
    coder: &mut SymbolCoder,
    out: &mut [u16],
) -> Result<(), DecodeError> {
    let mut lists = std::mem::take(&mut coder.others);
    let len = room(out.len()).max(lists.len());
    let taken = try_resize(&mut lists, len, 0)
        .and_then(|()| take_map(alphabet, message, coder, &mut lists, out));
    coder.others = lists;
    taken
}

/// Reads a map and the list of its other symbols, for which there is [`room`].
fn take_map(
    alphabet: Alphabet,
    message: &mut &[u8],
    coder: &mut SymbolCoder,
    room: &mut [u16],
    out: &mut [u16],
) -> Result<(), DecodeError> {
    let mut common = [0];
    fields::read_u16s(fields::take(message, 2)?, &mut common);
    alphabet.check(common[0])?;
    match Coding::of(fields::take(message, 1)?[0])? {
        Some(Coding::Significance) => {
            return Err(DecodeError::Corrupt("a significance map is in another"));
        }
        coding => take_list(Alphabet::new(BINARY, true), coding, message, coder, out)?,
    }
    let count = kernels::occurrences(out, 1) as usize;
    if (out.len() - count).saturating_mul(ONE_IN) < out.len() {
        return Err(DecodeError::Corrupt("a symbol is not frequent enough for its map"));
    }
    let (others, room) = room.split_at_mut(count);
    if !others.is_empty() {
        match Coding::of(fields::take(message, 1)?[0])? {
            Some(Coding::Significance) => take_map(alphabet, message, coder, room, others)?,
            coding => take_list(alphabet, coding, message, coder, others)?,
        }
    }
    kernels::put_back(out, common[0], others);
    Ok(())
}

/// Reads symbols in this code off the front of a message.
fn take_list(
    alphabet: Alphabet,
    coding: Option<Coding>,
    message: &mut &[u8],
    coder: &mut SymbolCoder,
    out: &mut [u16],
) -> Result<(), DecodeError> {
    match coding {
        Some(coding) => coding.take(message, alphabet.symbols, coder, out),
        None => alphabet.take_fixed(message, out, &mut Helpers::default()),
    }
}
