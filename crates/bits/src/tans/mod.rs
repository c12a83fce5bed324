//! Tabled asymmetric numeral systems (tANS) of symbols below 2^10, in four streams.
//!
//! A [`Code`] divides 2^12 states among the symbols in proportion to their counts
//! ([`fit`](Code::fit)). A decoder is in a state: the state's symbol is the next symbol, and the
//! state and some bits of the stream give the next state. A symbol with q of 2^12 states takes
//! about 12 − log2 q bits, not always a whole number: unlike a Huffman code, it comes close to the
//! entropy for symbols that occur more often than not.
//!
//! - **Shares**: each symbol that occurs has at least one state. [`write`](Code::write) sends, for
//!   each such symbol in order, its distance from the previous one (the first from −1) and its
//!   share, both in Elias δ code. The shares end when their sum is 2^12.
//! - **States**: symbol by symbol, each as often as it has states, at places 0, 2563, 2·2563, …
//!   modulo 2^12. The k-th state of a symbol with q states, in increasing order from k = 0, has x =
//!   q + k: with n = 12 − ⌊log2 x⌋ it reads n bits and goes to state x·2^n − 2^12 plus their value.
//! - **Streams**: the first ⌈n/4⌉ of n symbols are the first stream, the next ⌈n/4⌉ the second, and
//!   so on; the lengths of the first three in bytes come first, a little-endian `u32` each. A
//!   stream is zeros, a one, and the first state in twelve bits, then the bits read by the states,
//!   the lowest first. The number of zeros, below eight, makes it end with a whole byte. The last
//!   symbol leads to state 0. Without symbols a stream has no bytes.
//!
//! Symbols of an alphabet of up to sixteen are encoded and decoded 1.5 to 3.6 times as fast as
//! [groups].
//!
//! Range: alphabets of up to 2^10 symbols. Cost: a few thousandths above the entropy of the shares,
//! and about three bytes for each stream. The tables have 16 KiB for decoding, 8 KiB and 8 bytes
//! per symbol of the alphabet for encoding, plus 2 bytes for each encoded symbol.
//!
//! Sources: Duda: "Asymmetric numeral systems: entropy coding combining speed of Huffman coding
//! with compression rate of arithmetic coding", arXiv:1311.2540; the order of states and the search
//! for the next one follow Collet's Finite State Entropy.
//!
//! ```
//! use gradwire_bits::tans::Code;
//!
//! let symbols: Vec<u16> = (0..8000).map(|i| u16::from(i % 20 == 0)).collect();
//! let mut code = Code::default();
//! code.fit(&[7600, 400]);
//! let mut bytes = Vec::new();
//! code.write(&mut bytes);
//! code.encode(&symbols, &mut bytes);
//! // The entropy is 0.286 bits, a Huffman code takes 1.
//! assert!(bytes.len() < 8000 * 30 / 100 / 8 + 20);
//!
//! let mut received = Code::default();
//! let used = received.read(&bytes, 2)?;
//! let mut back = vec![0; symbols.len()];
//! received.decode(&bytes[used..], &mut back)?;
//! assert_eq!(back, symbols);
//! # Ok::<(), gradwire_bits::DecodeError>(())
//! ```

pub mod groups;
mod shares;
mod streams;

use alloc::vec::Vec;

use crate::DecodeError;
use crate::kernels::{Entry, Transition};
use crate::quarters::{LENGTHS, STREAMS};
use crate::reserve::{room, try_room};
use shares::{STATE_BITS, STATES};

pub use shares::{MOST_SYMBOLS, entropy_bits};

/// The distance between two states of a symbol, modulo the number of states.
const STEP: usize = STATES * 5 / 8 + 3;

/// A code with its tables and working memory.
#[derive(Debug, Default, Clone)]
pub struct Code {
    /// By symbol: its number of states.
    shares: Vec<u16>,
    /// By state: the decoder's step from it.
    decoding: Vec<Entry>,
    /// By symbol: the encoder's step from a state to the next one.
    transitions: Vec<Transition>,
    /// The states of the symbols, symbol by symbol, each with 2^12 added.
    states: Vec<u16>,
    /// For each encoded symbol of the list: the bits to write and their number, in the form for
    /// [`join_entries`](crate::kernels::join_entries).
    entries: Vec<u16>,
}

impl Code {
    /// Reserves memory for an alphabet and a number of symbols, so [`fit`](Self::fit) and
    /// [`encode`](Self::encode) allocate nothing.
    pub fn reserve(&mut self, alphabet: usize, symbols: usize) {
        room(&mut self.shares, alphabet);
        room(&mut self.transitions, alphabet);
        room(&mut self.states, STATES);
        room(&mut self.entries, symbols);
    }

    /// Reserves memory for an alphabet, so [`read`](Self::read) allocates nothing.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub fn try_reserve(&mut self, alphabet: usize) -> Result<(), DecodeError> {
        try_room(&mut self.shares, alphabet)?;
        try_room(&mut self.decoding, STATES)
    }

    /// Divides the states among symbols in proportion to their counts. Symbols with count 0 get
    /// none.
    ///
    /// # Panics
    /// If there are more than [`MOST_SYMBOLS`] counts, or all are 0.
    pub fn fit(&mut self, counts: &[u32]) {
        shares::fit(counts, &mut self.shares);
    }

    /// By symbol: its number of states.
    pub fn shares(&self) -> &[u16] {
        &self.shares
    }

    /// The estimated length of code for symbols with the given counts, in bits: the entropy
    /// relative to the shares, the starts of streams and the shares themselves.
    pub fn estimated_bits(&self, counts: &[u32]) -> u64 {
        let starts = (8 * LENGTHS + 20 * STREAMS) as u64;
        shares::cost_bits(counts, &self.shares) + starts + shares::len_bits(&self.shares)
    }

    /// Appends the shares.
    pub fn write(&self, out: &mut Vec<u8>) {
        shares::write(&self.shares, out);
    }

    /// Reads the shares of an alphabet of `symbols`, written by [`write`](Self::write), and returns
    /// the number of bytes read. The code must not be used after an error.
    ///
    /// # Errors
    /// `Truncated`, `OutOfMemory`, or `Corrupt` if the shares do not fit an alphabet.
    pub fn read(&mut self, bytes: &[u8], symbols: usize) -> Result<usize, DecodeError> {
        let used = shares::read(bytes, symbols, &mut self.shares)?;
        try_room(&mut self.decoding, STATES)?;
        self.decoding.clear();
        self.decoding.resize(STATES, Entry::default());
        self.fill_decoding();
        Ok(used)
    }

    /// Fills the decoding table, which has its length.
    fn fill_decoding(&mut self) {
        let symbols = self.symbols_of_states();
        let mut next = [0; MOST_SYMBOLS];
        next.iter_mut().zip(&self.shares).for_each(|(next, &share)| *next = u32::from(share));
        for (entry, symbol) in self.decoding.iter_mut().zip(symbols) {
            let x = next[usize::from(symbol)];
            next[usize::from(symbol)] += 1;
            let bits = STATE_BITS - x.ilog2();
            *entry = Entry::new(symbol.into(), (x << bits) - STATES as u32, bits);
        }
    }

    /// By state: its symbol.
    fn symbols_of_states(&self) -> [u16; STATES] {
        let (mut symbols, mut at) = ([0; STATES], 0);
        for (symbol, &share) in (0..).zip(&self.shares) {
            for _ in 0..share {
                symbols[at] = symbol;
                at = (at + STEP) % STATES;
            }
        }
        symbols
    }

    /// Fills the tables for encoding.
    fn fill_encoding(&mut self) {
        let symbols = self.symbols_of_states();
        let mut next = [0; MOST_SYMBOLS];
        self.transitions.clear();
        let mut before = 0u32;
        for (next, &share) in next.iter_mut().zip(&self.shares) {
            let share = u32::from(share);
            *next = before;
            // The most bits: for states from share·2^most up; one less for states below.
            let most = STATE_BITS - share.saturating_sub(1).checked_ilog2().unwrap_or(0);
            let add = (most << 16).wrapping_sub(share << most);
            self.transitions.push(Transition { add, find: before.wrapping_sub(share) });
            before += share;
        }
        self.states.clear();
        self.states.resize(STATES, 0);
        for (state, &symbol) in symbols.iter().enumerate() {
            let place = &mut next[usize::from(symbol)];
            self.states[*place as usize] = (STATES + state) as u16;
            *place += 1;
        }
    }
}

#[cfg(test)]
mod tests;
