//! Files: written whole or not at all.

pub(crate) mod disk;
mod error;
mod lock;
pub(crate) mod names;
mod new_file;

pub use error::FileError;
pub(crate) use error::shown;
pub(crate) use lock::{lock_within, open_lock};
pub(crate) use names::refuse_outside;
pub use new_file::NewFile;
pub(crate) use new_file::{open_if_there, open_regular, temporary_name};
