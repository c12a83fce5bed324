//! Building blocks: the primitives of the GRACE survey's programming interface, in pairs, for new
//! compressors in one file.
//!
//! The names in section 4 of the survey (Xu et al.: "GRACE: A Compressed Communication Framework
//! for Distributed Machine Learning") and their counterparts here:
//!
//! | the survey | here |
//! |---|---|
//! | `compress` Q | [`Compressor::encode`](crate::Compressor::encode) |
//! | `decompress` Q⁻¹ | [`Compressor::decode_add`](crate::Compressor::decode_add), which adds instead of storing |
//! | `ctx` | [`Context`](crate::Context): shape, seed, step and rank; anything else is in the message |
//! | `memory_compensate` φ = β·m + γ·g | [`Source`](crate::Source), which shows the sum block by block; β and γ are in [`Residual`](crate::Residual) |
//! | `memory_update` ψ = φ − decoded | the block after the closure of [`Source::take`](crate::Source::take) |
//! | other φ and ψ | [`Memory`](crate::Memory), by [`Compressor::memory`](crate::Compressor::memory) |
//! | `aggregate` Agg | the weighted mean; for votes then the function of [`Aggregation::Vote`](crate::Aggregation::Vote) |
//! | communication strategy | [`Compressor::aggregation`](crate::Compressor::aggregation) |
//! | `quantize`, `dequantize` | [`quantize`], [`dequantize`] to evenly spaced [`Grid`] numbers |
//! | `sparsify`, `desparsify` | [`sparsify`], [`desparsify`] by a [`Selection`] |
//! | `pack`, `unpack` | [`pack`], [`unpack`] for symbols; [`pack_coded`], [`unpack_coded`] in an entropy code; [`pack_positions`], [`unpack_positions`] for positions |
//!
//! The registered compressors use the same functions. `quantize` and `sparsify` leave their errors
//! in their input, so compressors built from them have error feedback. `unpack`, `unpack_coded`,
//! `unpack_positions` and [`Grid::read`] check the bytes that they read off the front of a message.
//! For other values and codes see the [`kernels`](gradwire_bits::kernels) and the modules of
//! [`gradwire_bits`].
//!
//! ```
//! use gradwire::tools::{Grid, Rounding, dequantize, pack, quantize, unpack};
//!
//! // Seven numbers, −3 … 3 times a step of 0.5.
//! let grid = Grid::up_to(1.5, 3);
//! let (mut values, mut symbols) = ([1.5, -0.4, 0.1, -1.5], Vec::new());
//! quantize(&mut values, grid, Rounding::Nearest, &mut symbols);
//! assert_eq!(symbols, [6, 2, 3, 0]);
//! assert_eq!(values, [0.0, 0.5 - 0.4, 0.1, 0.0]);
//!
//! let mut message = Vec::new();
//! pack(&symbols, grid.numbers(), &mut message);
//! assert_eq!(message, [0b11_010_110, 0b000_0]);
//!
//! let mut decoded = [0.0; 4];
//! unpack(&mut &message[..], grid.numbers(), 4, &mut symbols)?;
//! dequantize(&symbols, grid, 1.0, &mut decoded);
//! assert_eq!(decoded, [1.5, -0.5, 0.0, -1.5]);
//! # Ok::<(), gradwire::DecodeError>(())
//! ```

mod pack;
mod quantize;
mod sparsify;

pub use pack::{
    pack, pack_coded, pack_positions, packed_coded_len, packed_len, packed_most,
    packed_positions_len, unpack, unpack_coded, unpack_positions,
};
pub use quantize::{Grid, Rounding, dequantize, quantize};
pub use sparsify::{Selection, desparsify, give_back, sparsify};
