//! Symbols, one per element or byte: of fixed width, or coded in the shortest form.
//!
//! An alphabet of n symbols has w = ⌈log2 n⌉ bits. With `code=fixed` each symbol has w bits, from
//! the lowest up. With `code=huffman` a byte says which form of the list follows:
//!
//! - 0: fixed width;
//! - 1: packed code lengths and a stream in Huffman code;
//! - 2: packed code lengths and four streams in Huffman code, if one stream would have 4096 bytes
//!   or more, when four take hardly more bytes.
//!
//! Huffman code takes at least one bit per symbol. Three other forms can take less. They are
//! considered if the entropy is more than 1 % below forms 0 and 1, and 128 bytes below a Huffman
//! stream. Writers use the first possible form of this list, if it is shorter than forms 0 and 1:
//!
//! - 4: the size of groups as a byte, then shares and four streams in tANS of
//!   [groups](gradwire_bits::tans::groups) of the symbols; for alphabets of up to six symbols;
//! - 6: a [significance map](significance), which marks the symbols other than the most frequent
//!   one, and a list of these symbols;
//! - 3: shares and four streams in tANS, if they save more than 2 %. This form is the slowest to
//!   encode.
//!
//! A list of more than 2^20 symbols begins with a 5. Then follow parts of 2^20 symbols (the last
//! may have fewer), each as its length in bytes, a `u32`, and a list as above. An empty list has no
//! bytes.

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
