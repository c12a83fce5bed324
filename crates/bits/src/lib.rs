#![cfg_attr(not(feature = "std"), no_std)]
//! Lossless codes and vector kernels for compressed tensors.
//!
//! Each code is a module, usable alone: functions, a `Code` that is fitted to counts ([`huffman`],
//! [`tans`]), or an enum ([`elias`]). It appends to a `Vec<u8>`, and decodes untrusted bytes with
//! every bound checked. The coded length can be computed without coding; for tANS it is an
//! estimate. The crate knows nothing of tensors.
//!
//! Without the standard library (`default-features = false`) it needs `alloc`, and kernels use the
//! instructions that every processor of the architecture has.
//!
//! | code | for | cost |
//! |---|---|---|
//! | [`varint`] | lengths and counts | a byte for each 7 bits |
//! | [`fixed`] | numbers of one width | the width |
//! | [`bitmap`] | dense positions | 1 bit for each possible position |
//! | [`rice`] | sparse positions | about log2(1/p) + 1.5 bits for each position |
//! | [`elias`] | unbounded numbers, mostly small | about 2 log2 n + 1 bits (γ) to log2 n + 2 log2 log2 n (δ, ω) |
//! | [`huffman`] | symbols of uneven frequency | slightly above their entropy |
//! | [`tans`] | the same, some very frequent | their entropy |
//! | [`planes`] | floats and integers, dense | their exponents' entropy, signs and mantissas |
//! | [`quartic`] | trits | 1.6 bits each |
//! | [`zero_run`] | quartic bytes with many zeros | 1/14 to 1 byte for each byte |
//!
//! Bits fill bytes from the least significant up; numbers of several bytes are little-endian.

extern crate alloc;

mod bit_io;
pub mod bitmap;
pub mod elias;
mod error;
pub mod fixed;
mod gap_code;
mod group_writer;
pub mod huffman;
mod instruction_set;
#[cfg(feature = "std")]
pub mod io_error;
pub mod kernels;
pub mod planes;
mod quarters;
pub mod quartic;
mod reserve;
pub mod rice;
#[cfg(test)]
mod samples;
pub mod tans;
pub mod varint;
pub mod zero_run;

pub use bit_io::{BitReader, BitWriter};
pub use error::{DecodeError, expect_len, try_resize};
pub use instruction_set::instruction_set;
