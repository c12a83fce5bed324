//! Symbols of one and of two bytes.

use alloc::vec::Vec;

use super::several::{fill_pairs, fill_sixes};
use crate::kernels::{LookUp, Several, ShortCodes, Singles, join_byte_codes, join_codes};
use crate::kernels::{look_up_bytes, look_up_pairs, look_up_singles, look_up_sixes};

/// A symbol that a [`Code`](super::Code) codes: a byte, or a number of two bytes. No other type can
/// be one, because the constants must fit the kernels.
pub trait Symbol: Copy + Into<usize> + sealed::Sealed {
    /// The symbol at a place in its alphabet.
    fn at(index: u16) -> Self;

    /// Joins the codes of each four symbols.
    const JOIN: fn(&[[Self; 4]], &ShortCodes, &mut [u64]);

    /// Decodes single symbols.
    const DECODE_SINGLES: LookUp<Singles, Self>;

    /// Several symbols are looked up in lists of at least this length, whose decoding takes longer
    /// than to fill the table.
    const LONG: usize;
    /// The same for the average number of symbols in an entry of the table of pairs: such lookups
    /// take longer.
    const WORTHWHILE: f32;

    /// Fills the table of several symbols an entry.
    const FILL_SEVERAL: fn(&Singles, &mut Vec<u64>);

    /// Decodes with the table of several symbols an entry.
    const DECODE_SEVERAL: LookUp<Several, Self>;
}

mod sealed {
    pub trait Sealed {}

    impl Sealed for u8 {}
    impl Sealed for u16 {}
}

impl Symbol for u16 {
    const JOIN: fn(&[[Self; 4]], &ShortCodes, &mut [u64]) = join_codes;
    const DECODE_SINGLES: LookUp<Singles, Self> = look_up_singles;
    const LONG: usize = 0;
    const WORTHWHILE: f32 = 1.6;
    const FILL_SEVERAL: fn(&Singles, &mut Vec<u64>) = fill_pairs;
    const DECODE_SEVERAL: LookUp<Several, Self> = look_up_pairs;

    #[inline(always)]
    fn at(index: u16) -> Self {
        index
    }
}

impl Symbol for u8 {
    const JOIN: fn(&[[Self; 4]], &ShortCodes, &mut [u64]) = join_byte_codes;
    const DECODE_SINGLES: LookUp<Singles, Self> = look_up_bytes;
    const LONG: usize = 1 << 15;
    const WORTHWHILE: f32 = 1.2;
    const FILL_SEVERAL: fn(&Singles, &mut Vec<u64>) = fill_sixes;
    const DECODE_SEVERAL: LookUp<Several, Self> = look_up_sixes;

    #[inline(always)]
    fn at(index: u16) -> Self {
        index as u8
    }
}
