//! The receiving end.

use std::sync::Arc;

use gradwire_delta::{Receiver, Source, Tensor, Update};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;

use super::describe::{Description, described, description};
use super::folder::DeltaFolder;
use super::held::{Base, Held, copy};
use super::update::DeltaUpdate;
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// Holds weights, and brings them from version to version.
#[pyclass(module = "gradwire._core")]
pub(crate) struct DeltaReceiver {
    pub(super) receiver: Receiver<Held>,
    /// The tensors in order; shared with updates, so the list is made once.
    tensors: Arc<Vec<Tensor>>,
}

#[pymethods]
impl DeltaReceiver {
    /// Copies the weights of a file or folder, or uses tensors of the user in place, and hashes
    /// them.
    #[new]
    #[pyo3(signature = (base, threads, max_bytes))]
    fn new(py: Python<'_>, base: Base, threads: usize, max_bytes: Option<u64>) -> PyResult<Self> {
        let receiver = errors::detached(py, move || {
            let mut receiver = Receiver::new(Held::new(base)?, threads)?;
            if let Some(max_bytes) = max_bytes {
                receiver = receiver.with_max_bytes(max_bytes);
            }
            Ok(receiver)
        })?;
        let tensors = Arc::new(receiver.tensors().tensors().to_vec());
        Ok(Self { receiver, tensors })
    }

    /// Run, version and hash of the weights.
    #[getter]
    fn state(&self) -> (Option<String>, u64, String) {
        described(self.receiver.state())
    }

    /// All tensors, in order of their names.
    fn tensors(&self) -> Vec<Description> {
        self.tensors.iter().map(description).collect()
    }

    /// Copies a tensor to an address with room for all of it.
    fn copy(&self, py: Python<'_>, tensor: usize, address: usize) -> PyResult<()> {
        let len = self.tensor(tensor)?.byte_len();
        let (receiver, mut out) = (&self.receiver, Bytes::new(address, len));
        Ok(errors::detached(py, move || copy(receiver.tensors(), tensor, out.get_mut()))?)
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
        if !update.fits(self.receiver.state(), &self.tensors) {
            let message =
                "the receiver has had another update since this one was staged; stage it again";
            return Err(Failure::config(message).into());
        }
        let len = self.tensor(tensor)?.byte_len();
        let (held, update, mut out) = (self.receiver.tensors(), update, Bytes::new(address, len));
        let write = move || {
            copy(held, tensor, out.get_mut())?;
            update.write(tensor, out.get_mut());
            Ok(())
        };
        Ok(errors::detached(py, write)?)
    }

    /// Decodes and proves an update: one stream, or all shares of it. Changes nothing.
    fn stage(&self, py: Python<'_>, streams: Vec<PyBackedBytes>) -> PyResult<DeltaUpdate> {
        let receiver = &self.receiver;
        let streams: Vec<&[u8]> = streams.iter().map(|stream| &**stream).collect();
        let update = errors::detached(py, move || Ok(receiver.stage(streams)?))?;
        Ok(DeltaUpdate::new(update, self.tensors.clone()))
    }

    /// Stages the next update on the way to the newest version of a folder; `None` if the weights
    /// are the newest.
    fn stage_next(
        &mut self,
        py: Python<'_>,
        folder: &DeltaFolder,
    ) -> PyResult<Option<DeltaUpdate>> {
        let (receiver, folder) = (&mut self.receiver, &folder.0);
        let mut update = Update::default();
        let staged = errors::detached(py, || Ok(receiver.stage_next(folder, &mut update)?))?;
        Ok(staged.then(|| DeltaUpdate::new(update, self.tensors.clone())))
    }

    /// Writes a staged update.
    fn commit(&mut self, py: Python<'_>, update: &mut DeltaUpdate) -> PyResult<()> {
        let receiver = &mut self.receiver;
        let update = update.get_mut();
        errors::detached(py, move || Ok(receiver.commit(update).map(|_| ())?))?;
        if self.receiver.tensors().tensors() != &**self.tensors {
            self.tensors = Arc::new(self.receiver.tensors().tensors().to_vec());
        }
        Ok(())
    }

    /// Hashes all weights again and compares.
    fn verify(&self, py: Python<'_>) -> PyResult<()> {
        let receiver = &self.receiver;
        Ok(errors::detached(py, move || Ok(receiver.verify()?))?)
    }
}

impl DeltaReceiver {
    fn tensor(&self, tensor: usize) -> Result<&Tensor, Failure> {
        let found = self.tensors.get(tensor);
        found.ok_or_else(|| Failure::config(format!("the receiver has no tensor {tensor}")))
    }
}
