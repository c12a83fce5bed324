//! Changing files in place so that a crash leaves the old weights or the new ones, never a mixture.
//!
//! All new values are written to a log beside the files first, and synced. Once the log has its
//! final name, the patch counts as done: [`complete`] writes the values into the files, syncs them
//! and removes the log. The values are absolute, so writing them again does no harm. Whoever opens
//! the files with this crate completes an interrupted patch first.
//!
//! The log is a file `gradwire.redo` in the folder of the weights. It begins with [`MAGIC`]; then
//! come frames: kind (1 byte), length of the payload (4), CRC-32 of kind, length and payload (4),
//! payload. The first frame lists the files, the last one counts the others. All numbers are
//! little-endian.
//!
//! A process that patches holds a [`Lock`] from before it reads the weights to the end.

mod content;
mod frame;
mod lock;
mod log;
mod replay;
#[cfg(test)]
mod tests;

pub(crate) use content::{New, Patch};
pub(crate) use lock::{Lock, complete};
pub(crate) use log::Log;

/// The name of a complete log.
const NAME: &str = "gradwire.redo";
/// The name of the file that a process locks while it patches.
const LOCK: &str = "gradwire.lock";
/// The name of a log that is being written; without effect on the files.
const UNFINISHED: &str = "gradwire.redo.tmp";
