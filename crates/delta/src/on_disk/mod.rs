//! Deltas and snapshots of checkpoints that stay on disk: no more than a few parts of each tensor
//! are in memory at once.
//!
//! Memory is 64 MiB a thread for writing; for reading 4 MiB of the stream a thread, and what its
//! records decode to: at most 64 MiB a record.

mod fold;
mod in_place;
mod input;
mod layout_after;
mod patch;
#[cfg(test)]
mod tests;
mod unpack;
mod write;
mod writer;

pub use fold::fold;
pub use in_place::patch_in_place;
pub use input::Input;
pub use patch::patch;
pub use unpack::unpack;
pub use write::{delta, pack};
