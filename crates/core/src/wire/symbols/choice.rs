//! Which code the symbols of a list are in: the shortest, as far as counts tell.

use gradwire_bits::tans::{MOST_SYMBOLS, entropy_bits};
use gradwire_bits::{fixed, huffman};

use super::{Alphabet, Coding, divided, memory, significance, tans};
use crate::workspace::SymbolCoder;

/// Huffman streams of this many bytes or more are written as four, which are decoded faster: 15 bytes more at most.
const LEAST_FOUR: u64 = 4096;
/// If Huffman streams have this many bytes or more, tANS and significance maps are considered.
pub(super) const LEAST_STREAM: u64 = 1024;
/// They are if the entropy is below the other forms by more than one part in this many,
pub(super) const LEAST_SAVING: u64 = 100;
/// and below Huffman streams by more bytes than this, which further streams and shares may take.
const LEAST_SAVED: u64 = 128;
/// tANS of symbols one by one, which is several times as slow, has to save more than one part in this many.
pub(super) const LEAST_SAVING_BY_ONE: u64 = 50;

/// The bytes of a list of symbols in other forms.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    /// A stream in Huffman code.
    stream: u64,
    /// The same with its code lengths.
    huffman: u64,
    /// Fixed width.
    fixed: u64,
}

impl Lengths {
    /// The bytes of the shorter one.
    fn least(self) -> u64 {
        self.huffman.min(self.fixed)
    }

    /// The bits that another form may have if it shall save more than one part in this many.
    pub(super) fn bits_that_save(self, one_in: u64) -> u64 {
        let bits = 8 * self.least();
        bits - bits / one_in
    }
}

impl Alphabet {
    /// Appends a code and the streams of symbols, if that is shorter than symbols of fixed width. Returns which code it
    /// is, or `None` if it is not shorter.
    pub(crate) fn put_coded(
        self,
        symbols: &[u16],
        coder: &mut SymbolCoder,
        message: &mut Vec<u8>,
    ) -> Option<Coding> {
        if self.may_be_shorter(symbols.len()) {
            // Later lists may be longer, but only those of `entropy-bits` are longer than a part.
            let most = symbols.len().next_power_of_two().min(divided::PART_SYMBOLS);
            memory::reserve(most.max(symbols.len()), coder);
        }
        let mut counts = std::mem::take(&mut coder.counts);
        counts.clear();
        counts.resize(self.symbols, 0);
        huffman::count(symbols, &mut counts);
        let coding = self.put_counted(symbols, &counts, coder, message);
        coder.counts = counts;
        coding
    }

    /// As [`put_coded`](Self::put_coded), of symbols that occur this often.
    pub(super) fn put_counted(
        self,
        symbols: &[u16],
        counts: &[u32],
        coder: &mut SymbolCoder,
        message: &mut Vec<u8>,
    ) -> Option<Coding> {
        let lengths = self.fit(symbols.len(), counts, coder);
        self.put_shorter(symbols, counts, lengths, coder, message)
            .or_else(|| self.put_huffman(symbols, lengths, coder, message))
    }

    /// Fits the Huffman code to counts, and returns the bytes of the list with it and without it.
    pub(super) fn fit(self, symbols: usize, counts: &[u32], coder: &mut SymbolCoder) -> Lengths {
        let code = &mut coder.code;
        code.fit(counts, huffman::limit(self.symbols));
        let stream = code.len_bits(counts).div_ceil(8);
        let huffman = code.packed_bits().div_ceil(8) + stream;
        Lengths { stream, huffman, fixed: fixed::len(symbols, self.width()) as u64 }
    }

    /// Appends a form that may take less than a bit for a symbol, if it saves enough. Returns which form it is.
    fn put_shorter(
        self,
        symbols: &[u16],
        counts: &[u32],
        lengths: Lengths,
        coder: &mut SymbolCoder,
        message: &mut Vec<u8>,
    ) -> Option<Coding> {
        if !saves(counts, lengths) {
            return None;
        }
        let start = message.len();
        for coding in [Coding::Groups, Coding::Significance, Coding::Tans] {
            let is_put = match coding {
                Coding::Groups => tans::put_groups(symbols, counts, lengths, coder, message),
                Coding::Significance => significance::put(self, symbols, counts, coder, message),
                _ => tans::put(symbols, counts, lengths, coder, message),
            };
            // Lengths were estimated.
            if is_put && ((message.len() - start) as u64) < lengths.least() {
                return Some(coding);
            }
            message.truncate(start);
        }
        // A significance map has fitted the code to other lists.
        self.fit(symbols.len(), counts, coder);
        None
    }

    /// Appends the fitted Huffman code and the streams of symbols, if that is shorter than symbols of fixed width.
    pub(super) fn put_huffman(
        self,
        symbols: &[u16],
        lengths: Lengths,
        coder: &SymbolCoder,
        message: &mut Vec<u8>,
    ) -> Option<Coding> {
        let code = &coder.code;
        let four = lengths.stream >= LEAST_FOUR && code.longest() <= huffman::STREAMS_BITS;
        let extra = if four { huffman::STREAMS_EXTRA as u64 } else { 0 };
        if lengths.huffman + extra >= lengths.fixed {
            return None;
        }
        code.write(message);
        if four {
            code.encode_streams(symbols, message);
            Some(Coding::Four)
        } else {
            code.encode(symbols, message);
            Some(Coding::Single)
        }
    }
}

/// Whether a form that takes the entropy would save enough.
pub(super) fn saves(counts: &[u32], lengths: Lengths) -> bool {
    let most_bits = 8 * lengths.stream.saturating_sub(LEAST_SAVED);
    counts.len() <= MOST_SYMBOLS
        && lengths.stream >= LEAST_STREAM
        && entropy_bits(counts) < lengths.bits_that_save(LEAST_SAVING).min(most_bits)
}
