//! The fields of messages: numbers, positions and symbols, as bytes and back.

pub(crate) mod fields;
pub(crate) mod levels;
pub(crate) mod positions;
pub(crate) mod symbols;
