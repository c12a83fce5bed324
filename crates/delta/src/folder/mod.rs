//! A folder through which a trainer publishes its updates, on a shared disk.
//!
//! Each stream is a file: `delta-0000000007-0000000008.gwd` leads from version 7 to 8,
//! `snapshot-0000000050.gwd` holds all weights of version 50. The file `latest` names the newest
//! version; it is replaced, all at once, after the stream is on the disk. So a reader sees complete
//! streams, whatever moment a trainer was killed at.

mod chain;
mod contents;
mod follow;
mod keep;
mod lock;
mod pointer;
mod prune;
mod publication;
mod refused;
#[cfg(test)]
mod tests;

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

pub use keep::Keep;
pub use publication::Publication;

use crate::files::FileError;
use crate::frame::{Kind, Sink};
use crate::{Error, State};
use contents::Item;
use lock::Lock;
use refused::Refused;

/// The time for which publishers wait for each other, by default.
const PATIENCE: Duration = Duration::from_secs(60);

/// A folder with published streams.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
    patience: Duration,
    refused: Refused,
}

impl Folder {
    /// Names a folder, which need not exist yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), patience: PATIENCE, refused: Refused::default() }
    }

    /// Sets how long publishing waits for another process that publishes: by default a minute.
    pub fn with_patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The newest published weights; `None` if there are none.
    ///
    /// # Errors
    /// Errors of the file system; a file `latest` that no publisher wrote.
    pub fn latest(&self) -> Result<Option<State>, Error> {
        Ok(pointer::read(&self.path)?)
    }

    /// Streams of the folder that a receiver has refused, with the reasons, while others led to the
    /// newest weights. They should be removed, or published again.
    pub fn refused(&self) -> Vec<String> {
        if !self.refused.is_empty() {
            // Whoever follows the folder gets the error if it cannot be read.
            let _ = self.streams();
        }
        self.refused.reasons()
    }

    /// The streams that are there. Forgets refused ones that are not.
    fn streams(&self) -> Result<Vec<Item>, FileError> {
        let items = contents::list(&self.path)?;
        self.refused.keep(&items);
        Ok(items)
    }

    /// Begins to publish a stream, which is then written frame by frame. Waits for another process
    /// that publishes.
    ///
    /// # Errors
    /// Errors of the file system; [`Error::Busy`] if the other process takes too long;
    /// [`Error::Stopped`] if the [progress](crate::Progress) is stopped meanwhile.
    pub fn begin(&self) -> Result<Publication, Error> {
        Publication::begin(&self.path, self.patience)
    }

    /// Publishes a delta; then a snapshot, if one is due; then removes streams that nobody needs.
    /// `snapshot` is called if a snapshot is due, and writes one of the version that the delta
    /// gives. Returns the newest weights.
    ///
    /// # Errors
    /// As [`Publication::finish`]. If only the snapshot or the removal fails, the delta is
    /// published nevertheless.
    pub fn publish(
        &self,
        mut delta: impl Read,
        keep: Keep,
        snapshot: impl FnOnce(&mut Sink<'_>) -> Result<(), Error>,
    ) -> Result<State, Error> {
        let mut publication = self.begin()?;
        io::copy(&mut delta, &mut publication).map_err(FileError::at(&self.path))?;
        let latest = publication.finish()?;
        if self.is_snapshot_due(keep)? {
            let mut publication = self.begin()?;
            snapshot(&mut |frame| io::Write::write_all(&mut publication, frame))?;
            publication.finish()?;
        }
        self.prune(keep)?;
        Ok(latest)
    }

    /// Whether the newest snapshot is [`Keep::snapshot_every`] versions old, or more. Without any
    /// snapshot the base model counts as one of version 0.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn is_snapshot_due(&self, keep: Keep) -> Result<bool, Error> {
        let Some(latest) = self.latest()? else { return Ok(false) };
        let items = contents::list(&self.path)?;
        let snapshots = items.iter().filter(|item| item.kind == Kind::Snapshot);
        let newest = snapshots.map(|item| item.target).max().unwrap_or(0);
        Ok(keep.snapshot_every > 0 && latest.version >= newest.saturating_add(keep.snapshot_every))
    }

    /// Removes streams that nobody needs, according to [`Keep::versions`]; returns their number.
    /// Waits for another process that publishes. Receivers need not wait: whatever they have read,
    /// they find a way to the newest version among the streams that stay, at worst by a snapshot.
    ///
    /// # Errors
    /// As for [`begin`](Self::begin).
    pub fn prune(&self, keep: Keep) -> Result<usize, Error> {
        if self.latest()?.is_none() {
            return Ok(0);
        }
        let lock = Lock::take(&self.path, self.patience)?;
        Ok(prune::prune(&lock, &self.path, keep)?)
    }
}
