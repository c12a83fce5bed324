//! Symbols of one and of two bytes.

use alloc::vec::Vec;

use super::several::{fill_pairs, fill_sixes};
use crate::kernels::{Several, ShortCodes, Singles, join_byte_codes, join_codes};
use crate::kernels::{look_up_bytes, look_up_pairs, look_up_singles, look_up_sixes};
use crate::quarters::STREAMS;

pub(super) trait Symbol: Copy {
    /// The place in the alphabet.
    fn index(self) -> usize;

    /// The symbol at a place in its alphabet.
    fn at(index: u16) -> Self;

    /// [`join_codes`].
    fn join(symbols: &[[Self; 4]], codes: &ShortCodes, words: &mut [u64]);

    /// Decodes symbols of each stream while all have whole words left, and returns their numbers.
    fn decode_singles(
        table: &Singles,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS];

    /// Several symbols are looked up in lists of at least this length, whose decoding takes longer
    /// than to fill the table.
    const LONG: usize;
    /// The same for the average number of symbols in an entry of the table of pairs: such lookups
    /// take longer.
    const WORTHWHILE: f32;

    /// Fills the table of several symbols an entry.
    fn fill_several(singles: &Singles, table: &mut Vec<u64>);

    /// As [`decode_singles`](Self::decode_singles), with the table of several symbols an entry.
    fn decode_several(
        table: &Several,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS];
}

impl Symbol for u16 {
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }

    #[inline(always)]
    fn at(index: u16) -> Self {
        index
    }

    fn join(symbols: &[[Self; 4]], codes: &ShortCodes, words: &mut [u64]) {
        join_codes(symbols, codes, words);
    }

    fn decode_singles(
        table: &Singles,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS] {
        look_up_singles(table, bytes, positions, parts)
    }

    const LONG: usize = 0;
    const WORTHWHILE: f32 = 1.6;

    fn fill_several(singles: &Singles, table: &mut Vec<u64>) {
        fill_pairs(singles, table);
    }

    fn decode_several(
        table: &Several,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS] {
        look_up_pairs(table, bytes, positions, parts)
    }
}

impl Symbol for u8 {
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }

    #[inline(always)]
    fn at(index: u16) -> Self {
        index as u8
    }

    fn join(symbols: &[[Self; 4]], codes: &ShortCodes, words: &mut [u64]) {
        join_byte_codes(symbols, codes, words);
    }

    fn decode_singles(
        table: &Singles,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS] {
        look_up_bytes(table, bytes, positions, parts)
    }

    const LONG: usize = 1 << 15;
    const WORTHWHILE: f32 = 1.2;

    fn fill_several(singles: &Singles, table: &mut Vec<u64>) {
        fill_sixes(singles, table);
    }

    fn decode_several(
        table: &Several,
        bytes: &[u8],
        positions: &mut [u64; STREAMS],
        parts: &mut [&mut [Self]; STREAMS],
    ) -> [usize; STREAMS] {
        look_up_sixes(table, bytes, positions, parts)
    }
}
