//! The receiving end.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradwire_delta::{FrameReader, Receiver, Source, Tensor, Update, check_ending};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::describe::{Description, Expected, described, description, is_as};
use super::folder::DeltaFolder;
use super::held::{Base, Held, copy};
use super::update::DeltaUpdate;
use super::watched::{Listener, refuse_watched, watched, watched_of};
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// Holds weights, and brings them from version to version.
///
/// Threads of Python may stage, read and commit at the same time. They wait for each other without
/// the interpreter's lock. A progress function would wait for the operation that has called it: it
/// may only read.
#[pyclass(module = "gradwire._core", frozen)]
pub(crate) struct DeltaReceiver {
    receiver: RwLock<Receiver<Held>>,
    /// The tensors in order; shared with updates, so the list is made once.
    tensors: RwLock<Arc<Vec<Tensor>>>,
}

#[pymethods]
impl DeltaReceiver {
    /// Copies the weights of a file or folder, or uses tensors of the user in place, and hashes
    /// them.
    #[new]
    #[pyo3(signature = (base, threads, max_bytes, progress))]
    fn new(
        py: Python<'_>,
        base: Base,
        threads: usize,
        max_bytes: Option<u64>,
        progress: Listener<'_>,
    ) -> PyResult<Self> {
        let receiver = watched(py, &progress, move |progress| {
            let mut receiver = Receiver::new(Held::new(base, progress)?, threads)?;
            if let Some(max_bytes) = max_bytes {
                receiver = receiver.with_max_bytes(max_bytes);
            }
            Ok(receiver)
        })?;
        let tensors = RwLock::new(Arc::new(receiver.tensors().tensors().to_vec()));
        Ok(Self { receiver: RwLock::new(receiver), tensors })
    }

    /// Run, version and hash of the weights.
    #[getter]
    fn state(&self, py: Python<'_>) -> (Option<String>, u64, String) {
        described(py.detach(|| self.read().state()))
    }

    /// All tensors, in order of their names.
    fn tensors(&self) -> Vec<Description> {
        self.list().iter().map(description).collect()
    }

    /// Copies the tensor of this number and description to an address with room for all of it.
    fn copy(
        &self,
        py: Python<'_>,
        tensor: usize,
        expected: Expected,
        address: usize,
    ) -> PyResult<()> {
        let write = || {
            let receiver = self.read();
            let found = receiver.tensors().tensors().get(tensor);
            let Some(found) = found.filter(|found| is_as(found, &expected)) else {
                let message = format!(
                    "another thread has committed an update that removed or replaced '{}'; \
                     call tensors() again",
                    expected.0
                );
                return Err(Failure::config(message));
            };
            copy(receiver.tensors(), tensor, Bytes::new(address, found.byte_len()).get_mut())
        };
        Ok(errors::detached(py, write)?)
    }

    /// Copies a tensor as it is after an update, by its number among those of the receiver, to an
    /// address with room for all of it.
    fn copy_updated(
        &self,
        py: Python<'_>,
        update: &DeltaUpdate,
        tensor: usize,
        address: usize,
    ) -> PyResult<()> {
        let write = || {
            let receiver = self.read();
            let list = self.list();
            if !update.fits(receiver.state(), &list) {
                let message = "the receiver has had another update since this one was staged; \
                    stage it again";
                return Err(Failure::config(message));
            }
            let found = list.get(tensor).map(Tensor::byte_len);
            let len = found
                .ok_or_else(|| Failure::config(format!("the receiver has no tensor {tensor}")))?;
            let mut out = Bytes::new(address, len);
            copy(receiver.tensors(), tensor, out.get_mut())?;
            update.apply(tensor, out.get_mut());
            Ok(())
        };
        Ok(errors::detached(py, write)?)
    }

    /// Decodes and proves an update: one stream, or all shares of it. Changes nothing.
    fn stage(
        &self,
        py: Python<'_>,
        streams: Vec<PyBackedBytes>,
        progress: Listener<'_>,
    ) -> PyResult<DeltaUpdate> {
        let streams: Vec<&[u8]> = streams.iter().map(|stream| &**stream).collect();
        watched_of(self, py, &progress, |progress| {
            for stream in &streams {
                FrameReader::new(*stream)?;
                // A truncated stream is refused before it is decoded.
                if let Some(ending) = stream.last_chunk() {
                    check_ending(*ending, stream.len() as u64)?;
                }
            }
            progress.expect(streams.iter().map(|stream| stream.len() as u64).sum());
            let receiver = self.read();
            Ok(DeltaUpdate::new(receiver.stage(streams)?, self.list()))
        })
    }

    /// Stages the next update on the way to the newest version of a folder; `None` if the weights
    /// are the newest.
    fn stage_next(
        &self,
        py: Python<'_>,
        folder: &DeltaFolder,
        progress: Listener<'_>,
    ) -> PyResult<Option<DeltaUpdate>> {
        let (folder, mut update) = (&folder.0, Update::default());
        watched_of(self, py, &progress, |_| {
            let receiver = self.read();
            let staged = receiver.stage_next(folder, &mut update)?;
            Ok(staged.then(|| DeltaUpdate::new(update, self.list())))
        })
    }

    /// Writes a staged update.
    fn commit(&self, py: Python<'_>, update: &DeltaUpdate) -> PyResult<()> {
        refuse_watched(self)?;
        let write = || {
            // Before the update: those who read both take them in this order.
            let mut receiver = self.write();
            receiver.commit(&mut update.write())?;
            let mut list = self.tensors.write().unwrap_or_else(PoisonError::into_inner);
            if receiver.tensors().tensors() != &***list {
                *list = Arc::new(receiver.tensors().tensors().to_vec());
            }
            Ok(())
        };
        Ok(errors::detached(py, write)?)
    }

    /// Hashes all weights again and compares.
    fn verify(&self, py: Python<'_>, progress: Listener<'_>) -> PyResult<()> {
        watched_of(self, py, &progress, |_| Ok(self.read().verify()?))
    }
}

impl DeltaReceiver {
    /// The weights, for reading. Call it without the interpreter's lock: a commit may take long.
    fn read(&self) -> RwLockReadGuard<'_, Receiver<Held>> {
        self.receiver.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Receiver<Held>> {
        self.receiver.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn list(&self) -> Arc<Vec<Tensor>> {
        self.tensors.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
