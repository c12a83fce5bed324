//! Chooses the form of a list: the shortest, judged by counts.

use gradwire_bits::huffman::{self as huffman_bits, STREAMS_BITS, STREAMS_EXTRA};
use gradwire_bits::tans::{MOST_SYMBOLS, entropy_bits};
use gradwire_bits::{DecodeError, fixed};

use super::alphabet::Alphabet;
use super::coding::{Coding, FIXED, List, MIN_STREAM};
use super::significance::{self, PutLists};
use super::{huffman, memory, tans};
use crate::Helpers;
use crate::wire::fields;
use crate::workspace::SymbolCoder;

/// A Huffman stream of this many bytes or more is written as four streams. They take 15 bytes more
/// at most, and are decoded faster.
const MIN_FOUR_STREAMS: u64 = 4096;
/// tANS of groups and significance maps are considered only if they can save more than one byte in
/// this many of the Huffman or fixed-width form, whichever is shorter.
const SAVE_ONE_IN: u64 = 100;
/// tANS of single symbols must save more than one byte in this many, because it is several times as
/// slow.
const SAVE_ONE_IN_BY_TANS: u64 = 50;
/// Forms other than Huffman code are considered only if the entropy is this many bytes below the
/// Huffman streams: their streams and shares may take as many bytes more.
const MIN_SAVED: u64 = 128;

/// The bytes of a list in the simpler forms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// One Huffman stream.
    stream: u64,
    /// The stream and its code lengths.
    huffman: u64,
    /// Fixed width.
    fixed: u64,
}

impl Lengths {
    /// Fits the Huffman code to a list, and returns the bytes of the list with it and without it.
    pub(super) fn fit(list: List<'_>, coder: &mut SymbolCoder) -> Self {
        let List { alphabet, symbols, counts } = list;
        let code = &mut coder.code;
        code.fit(counts, huffman_bits::limit(alphabet.symbols));
        let stream = code.len_bits(counts).div_ceil(8);
        let huffman = code.packed_bits().div_ceil(8) + stream;
        Self { stream, huffman, fixed: fixed::len(symbols.len(), alphabet.width()) as u64 }
    }

    /// The bytes of the shorter form.
    fn shorter(self) -> u64 {
        self.huffman.min(self.fixed)
    }

    /// The number of bits below which another form saves more than one byte in `one_in`.
    fn bits_that_save(self, one_in: u64) -> u64 {
        let bits = 8 * self.shorter();
        bits - bits / one_in
    }

    /// Whether a form of the entropy's length would save enough.
    pub(super) fn entropy_saves(self, counts: &[u32]) -> bool {
        let most_bits = 8 * self.stream.saturating_sub(MIN_SAVED);
        counts.len() <= MOST_SYMBOLS
            && self.stream >= MIN_STREAM
            && entropy_bits(counts) < self.bits_that_save(SAVE_ONE_IN).min(most_bits)
    }
}

impl Alphabet {
    /// Whether a list of this length may be in tANS or have a significance map.
    pub(super) fn may_be_shorter(self, elements: usize) -> bool {
        self.symbols <= MOST_SYMBOLS && self.fixed_len(elements) as u64 >= MIN_STREAM
    }

    /// Appends symbols in one list.
    pub(super) fn put_list(self, symbols: &[u16], coder: &mut SymbolCoder, message: &mut Vec<u8>) {
        if !self.is_coded || symbols.is_empty() {
            return self.put_fixed(symbols, message);
        }
        // Later lists may have any symbols of the alphabet.
        coder.counts.clear();
        coder.counts.reserve(self.symbols);
        coder.code.reserve(self.symbols);
        put_tagged(self, symbols, message, |message| self.put_coded(symbols, coder, message));
    }

    /// Appends symbols in the shortest coded form, without the byte of the form, and returns the
    /// form. Appends nothing and returns `None` if fixed width is as short.
    pub(crate) fn put_coded(
        self,
        symbols: &[u16],
        coder: &mut SymbolCoder,
        message: &mut Vec<u8>,
    ) -> Option<Coding> {
        if self.may_be_shorter(symbols.len()) {
            memory::reserve(memory::next_len(symbols.len()), coder);
        }
        let mut counts = std::mem::take(&mut coder.counts);
        counts.clear();
        counts.resize(self.symbols, 0);
        huffman_bits::count(symbols, &mut counts);
        let list = List { alphabet: self, symbols, counts: &counts };
        let coding = put_shortest(list, coder, message);
        coder.counts = counts;
        coding
    }

    /// Reads symbols in one list. Later lists may have up to `most` symbols.
    pub(super) fn take_list(
        self,
        message: &mut &[u8],
        symbols: &mut [u16],
        most: usize,
        coder: &mut SymbolCoder,
        helpers: &mut Helpers,
    ) -> Result<(), DecodeError> {
        if self.is_coded && !symbols.is_empty() {
            if self.may_be_shorter(symbols.len()) {
                memory::try_reserve(most.max(symbols.len()), coder)?;
            }
            if let Some(coding) = Coding::of(fields::take(message, 1)?[0])? {
                return coding.take(message, self.symbols, coder, symbols);
            }
        }
        self.take_fixed(message, symbols, helpers)
    }
}

impl Coding {
    /// Reads symbols of an alphabet of `symbols` in this form off the front of a message, and fills
    /// `out`.
    pub(crate) fn take(
        self,
        message: &mut &[u8],
        symbols: usize,
        coder: &mut SymbolCoder,
        out: &mut [u16],
    ) -> Result<(), DecodeError> {
        let used = match self {
            Coding::Single => huffman::read(false, message, symbols, &mut coder.code, out)?,
            Coding::Four => huffman::read(true, message, symbols, &mut coder.code, out)?,
            Coding::Tans => tans::read(message, symbols, coder, out)?,
            Coding::Groups => tans::read_groups(message, symbols, coder, out)?,
            Coding::Significance => {
                let alphabet = Alphabet::new(symbols, true);
                return significance::take(alphabet, message, coder, out, take_in);
            }
        };
        *message = &message[used..];
        Ok(())
    }
}

/// Reads symbols in this form off the front of a message; `None` is fixed width.
fn take_in(
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

/// Appends the byte of a form, then the list by `put`; if `put` appends nothing, the list in fixed
/// width.
fn put_tagged(
    alphabet: Alphabet,
    symbols: &[u16],
    message: &mut Vec<u8>,
    put: impl FnOnce(&mut Vec<u8>) -> Option<Coding>,
) {
    let tag = message.len();
    message.push(FIXED);
    match put(message) {
        Some(coding) => message[tag] = coding as u8,
        None => alphabet.put_fixed(symbols, message),
    }
}

/// Appends a list in the shortest coded form, and returns the form; `None` if fixed width is as
/// short.
fn put_shortest(list: List<'_>, coder: &mut SymbolCoder, message: &mut Vec<u8>) -> Option<Coding> {
    let lengths = Lengths::fit(list, coder);
    if lengths.entropy_saves(list.counts) {
        let start = message.len();
        for coding in [Coding::Groups, Coding::Significance, Coding::Tans] {
            let is_put = match coding {
                Coding::Groups => {
                    tans::put_groups(list, lengths.bits_that_save(SAVE_ONE_IN), coder, message)
                }
                Coding::Significance => significance::put(list, coder, message, &LISTS_OF_MAPS),
                _ => put_tans(list, lengths, coder, message),
            };
            // The chosen form relied on estimates.
            if is_put && ((message.len() - start) as u64) < lengths.shorter() {
                return Some(coding);
            }
            message.truncate(start);
        }
        // For the significance map the code was fitted to other lists.
        Lengths::fit(list, coder);
    }
    put_huffman(list, lengths, coder, message)
}

/// Appends a list in tANS, if that is estimated to save enough.
fn put_tans(
    list: List<'_>,
    lengths: Lengths,
    coder: &mut SymbolCoder,
    message: &mut Vec<u8>,
) -> bool {
    tans::put(list, lengths.bits_that_save(SAVE_ONE_IN_BY_TANS), coder, message)
}

/// Appends a list in the fitted Huffman code, if that is shorter than fixed width.
fn put_huffman(
    list: List<'_>,
    lengths: Lengths,
    coder: &SymbolCoder,
    message: &mut Vec<u8>,
) -> Option<Coding> {
    let in_four = lengths.stream >= MIN_FOUR_STREAMS && coder.code.longest() <= STREAMS_BITS;
    let extra = if in_four { STREAMS_EXTRA as u64 } else { 0 };
    if lengths.huffman + extra >= lengths.fixed {
        return None;
    }
    huffman::put(in_four, list.symbols, &coder.code, message);
    Some(if in_four { Coding::Four } else { Coding::Single })
}

/// A significance map is a list in any form. The other symbols are a list in tANS, Huffman code or
/// fixed width, or have a significance map again.
pub(super) const LISTS_OF_MAPS: PutLists = PutLists {
    map: |list, coder, message| {
        put_tagged(list.alphabet, list.symbols, message, |message| {
            put_shortest(list, coder, message)
        });
    },
    others: |list, coder, message| {
        let lengths = Lengths::fit(list, coder);
        if lengths.entropy_saves(list.counts)
            && significance::is_fit(list.symbols.len(), list.counts)
        {
            message.push(Coding::Significance as u8);
            return false;
        }
        put_tagged(list.alphabet, list.symbols, message, |message| {
            if put_tans(list, lengths, coder, message) {
                return Some(Coding::Tans);
            }
            put_huffman(list, lengths, coder, message)
        });
        true
    },
};
