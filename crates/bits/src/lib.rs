#![cfg_attr(not(feature = "std"), no_std)]
//! Lossless codes and vector kernels.
#![allow(missing_docs)]
extern crate alloc;
mod error;
pub mod bitmap;
pub mod fixed;
pub mod kernels;
pub mod quartic;
pub mod rice;
pub mod varint;
pub mod zero_run;
pub use error::DecodeError;
