//! Options of a run: link and checkpoints.

use std::path::PathBuf;

use gradwire::{StateError, files};
use gradwire_exchange::Link;

use crate::{TrainError, rotation};

/// Settings that do not change the result of a run.
#[derive(Debug, Clone, Default)]
pub struct RunOptions {
    /// Throttles each rank to this link; `None` leaves memory speed.
    pub link: Option<Link>,
    /// Writes checkpoints.
    pub save: Option<Save>,
    /// Resumes from this checkpoint, of the same configuration; if it is damaged, from the newest
    /// good one before it.
    pub resume: Option<PathBuf>,
}

/// When and where checkpoints are written. A new one is written to `path`; the previous one is
/// renamed to `<path>.1`, the one before it to `<path>.2`, and so on.
#[derive(Debug, Clone)]
pub struct Save {
    /// The file.
    pub path: PathBuf,
    /// Steps between checkpoints, each written at the first exchange after the interval; 0: no such
    /// checkpoints. A checkpoint is also written when the run is stopped.
    pub every: u64,
    /// Whether to write one at the end. If that fails, the run has ended all the same: it returns
    /// its record, and tells [`Observer::unsaved`](crate::Observer::unsaved).
    pub at_end: bool,
    /// Number of checkpoints to keep, the newest included; 0 is taken for 1.
    pub keep: usize,
}

impl RunOptions {
    /// Checks that checkpoints can be written, before a run starts, and that none would replace
    /// another kind of file.
    pub(crate) fn check_save(&self) -> Result<(), TrainError> {
        let Some(Save { path, .. }) = &self.save else { return Ok(()) };
        let failed = |source| TrainError::Save { path: path.clone(), source };
        files::check_writable(path)
            .map_err(|source| failed(StateError::File { path: path.clone(), source }))?;
        // Files at the path that the run resumes from are its own checkpoints, even if none is
        // left.
        if self.resume.as_ref() == Some(path) {
            return Ok(());
        }
        match rotation::other_file(path).map_err(failed)? {
            None => Ok(()),
            Some(other) => Err(TrainError::Config(format!(
                "'{}' is not a checkpoint, and saving to '{}' could replace or remove it; choose \
                 another path with --save, or remove the file",
                other.display(),
                path.display()
            ))),
        }
    }
}
