//! Folders of published streams.

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use gradwire_delta::folder::{Folder, Keep, Publication};
use pyo3::prelude::*;

use super::describe::described;
use super::watched::watched;
use crate::errors::{self, Failure};

/// A folder through which a trainer publishes its updates.
#[pyclass(module = "gradwire._core")]
pub(crate) struct DeltaFolder(pub(super) Folder);

#[pymethods]
impl DeltaFolder {
    #[new]
    fn new(path: PathBuf, timeout: f64) -> PyResult<Self> {
        let patience = Duration::try_from_secs_f64(timeout).map_err(|_| {
            Failure::config(format!("timeout={timeout} is no time; give seconds, at least 0"))
        })?;
        Ok(Self(Folder::new(path).with_patience(patience)))
    }

    /// Run, version and hash of the newest weights.
    fn latest(&self, py: Python<'_>) -> PyResult<Option<(Option<String>, u64, String)>> {
        Ok(errors::detached(py, || Ok(self.0.latest()?))?.map(described))
    }

    /// Streams that receivers have refused while others helped, with the reasons.
    fn refused(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| self.0.refused())
    }

    /// Begins to publish a stream. Waits for another process that publishes.
    fn begin(&self, py: Python<'_>) -> PyResult<DeltaPublication> {
        Ok(DeltaPublication(Some(watched(py, &None, |_| Ok(self.0.begin()?))?)))
    }

    /// Whether a snapshot should be published.
    fn is_snapshot_due(
        &self,
        py: Python<'_>,
        versions: u64,
        snapshot_every: u64,
    ) -> PyResult<bool> {
        let keep = Keep { versions, snapshot_every };
        Ok(errors::detached(py, || Ok(self.0.is_snapshot_due(keep)?))?)
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

    /// Checks the stream, syncs it, and makes it visible; removes streams that nobody needs, if
    /// the number of versions to keep is given.
    fn finish(&mut self, py: Python<'_>, versions: Option<u64>) -> PyResult<()> {
        let publication = self.0.take().ok_or_else(closed)?;
        let finish = || {
            let finished = match versions {
                Some(versions) => {
                    publication.finish_and_prune(Keep { versions, ..Keep::default() })
                }
                None => publication.finish(),
            };
            Ok(finished.map(|_| ())?)
        };
        Ok(errors::detached(py, finish)?)
    }

    /// Removes the stream, unless it is visible.
    fn close(&mut self) {
        self.0 = None;
    }
}

fn closed() -> Failure {
    Failure::config("the stream is closed")
}
