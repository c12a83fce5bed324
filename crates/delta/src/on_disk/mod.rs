//! Deltas and snapshots of checkpoints that stay on disk: no more than a few parts of each tensor
//! are in memory at once.
//!
//! A thread takes 20 MiB if few weights change, and at most about 150 MiB if all do, whatever the
//! size of the model.

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
