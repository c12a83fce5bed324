//! Folders of published streams.

use std::io::Write;
use std::path::PathBuf;

use gradwire_delta::folder::{Folder, Keep, Publication};
use pyo3::prelude::*;

use super::describe::described;
use crate::errors::{self, Failure};

/// A folder through which a trainer publishes its updates.
#[pyclass(module = "gradwire._core")]
pub(crate) struct DeltaFolder(pub(super) Folder);

#[pymethods]
impl DeltaFolder {
    #[new]
    fn new(path: PathBuf) -> Self {
        Self(Folder::new(path))
    }

    /// Run, version and hash of the newest weights.
    fn latest(&self) -> PyResult<Option<(Option<String>, u64, String)>> {
        Ok(self.0.latest().map_err(Failure::from)?.map(described))
    }

    /// Begins to publish a stream.
    fn begin(&self) -> PyResult<DeltaPublication> {
        Ok(DeltaPublication(Some(self.0.begin().map_err(Failure::from)?)))
    }

    /// Whether a snapshot should be published.
    fn is_snapshot_due(&self, versions: u64, snapshot_every: u64) -> PyResult<bool> {
        let keep = Keep { versions, snapshot_every };
        Ok(self.0.is_snapshot_due(keep).map_err(Failure::from)?)
    }

    /// Removes streams that nobody needs.
    fn prune(&self, versions: u64, snapshot_every: u64) -> PyResult<usize> {
        let keep = Keep { versions, snapshot_every };
        Ok(self.0.prune(keep).map_err(Failure::from)?)
    }
}

/// A stream that is being written to a folder.
#[pyclass(module = "gradwire._core")]
pub(crate) struct DeltaPublication(Option<Publication>);

#[pymethods]
impl DeltaPublication {
    fn write(&mut self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        let publication = self.0.as_mut().ok_or_else(closed)?;
        let write = || Ok(publication.write_all(bytes).map_err(gradwire_delta::Error::from)?);
        Ok(errors::detached(py, write)?)
    }

    /// Checks the stream, syncs it, and makes it visible.
    fn finish(&mut self, py: Python<'_>) -> PyResult<()> {
        let publication = self.0.take().ok_or_else(closed)?;
        Ok(errors::detached(py, || Ok(publication.finish().map(|_| ())?))?)
    }

    /// Removes the stream, unless it is visible.
    fn close(&mut self) {
        self.0 = None;
    }
}

fn closed() -> Failure {
    Failure::config("the stream is closed")
}
