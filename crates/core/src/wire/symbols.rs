//! Symbols, one for each element or byte, in a fixed number of bits or in Huffman code.
//!
//! An alphabet of n symbols has w = ⌈log2 n⌉ bits. With `code=fixed` each symbol has w bits, from the lowest up. With
//! `code=huffman` a byte comes first, which says what follows:
//!
//! - 0: fixed width;
//! - 1: packed code lengths and a stream in Huffman code;
//! - 2: the same in four streams, if one would have 4096 bytes or more, so that four take hardly more.
//!
//! Huffman code takes at least one bit for a symbol. Where the entropy is more than 1 % below 0 and 1, and 128 bytes below a stream, the first of these forms that is
//! possible is written, if it is shorter than they are:
//!
//! - 4: shares and four streams in tANS of [groups](gradwire_bits::tans::groups) of the symbols, after a byte with the size of
//!   groups; for alphabets of up to six symbols;
//! - 6: a [significance map](significance): which symbols are not the most frequent one, and a list of these;
//! - 3: shares and four streams in tANS, if it saves more than 2 %. It is the slowest to encode.
//!
//! A list of more than 2^20 symbols begins with a 5. Then follows each part of as many symbols: its length in bytes as a `u32`, and
//! a list as above. An empty list has no bytes.

mod alphabet;
mod choice;
mod coding;
mod divided;
mod fixed;
mod huffman;
mod lists;
pub(crate) mod memory;
mod quantize;
mod significance;
mod tans;
mod view;

#[cfg(test)]
mod tests;

pub(crate) use alphabet::Alphabet;
pub(crate) use coding::Coding;
#[cfg(any(test, feature = "testing"))]
pub(crate) use coding::PART_SYMBOLS;
pub(crate) use quantize::fill_symbols;
pub(crate) use view::View;
