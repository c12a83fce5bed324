//! The arguments of a compressor.

use crate::{Context, Source, Workspace};

/// The arguments of [`Compressor::encode`](crate::Compressor::encode).
pub struct EncodeArgs<'a, 's> {
    /// The tensor.
    pub source: &'a mut Source<'s>,
    /// Seed, tensor, step and rank.
    pub context: &'a Context<'a>,
    /// Buffers.
    pub workspace: &'a mut Workspace,
    /// The bytes to append the message to.
    pub message: &'a mut Vec<u8>,
}

/// The arguments of [`Compressor::decode_add`](crate::Compressor::decode_add).
#[derive(Debug)]
pub struct DecodeArgs<'a> {
    /// The whole message.
    pub message: &'a [u8],
    /// Seed, tensor, step and the rank that sent the message.
    pub context: &'a Context<'a>,
    /// The weight of the message in the sum, a finite number.
    pub weight: f32,
    /// Buffers.
    pub workspace: &'a mut Workspace,
    /// The sum, of the tensor's length.
    pub out: &'a mut [f32],
}
