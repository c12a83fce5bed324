//! Weights in files of the safetensors format: one file, or a folder of several with an index.
//!
//! Weights stay on disk and are read and written in blocks, so memory is bounded by the callers'
//! blocks and the headers.

mod checkpoint;
mod header;
mod layout;
mod new_checkpoint;
#[cfg(test)]
pub(crate) mod tests;

pub use checkpoint::Checkpoint;
pub use header::{Entry, FileHeader};
pub use layout::Layout;
pub use new_checkpoint::NewCheckpoint;
