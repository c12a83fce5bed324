//! The sending end.

use std::sync::{Mutex, MutexGuard, PoisonError};

use gradwire_delta::folder::Folder;
use gradwire_delta::{Absent, DiffOptions, Mirror, Receiver, Sender, Share, Source, State, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::describe::{Description, described, description, run_id};
use super::folder::DeltaFolder;
use super::held::{Base, bytes_of, copy};
use super::memory::Described;
use super::new_weights::{DescribedChanges, NewWeights};
use super::watched::{Listener, watched};
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// Keeps the weights that receivers hold, and writes the changes to new ones.
///
/// Threads of Python that use it wait for each other without the interpreter's lock.
#[pyclass(module = "gradwire._core", frozen)]
pub(crate) struct DeltaSender(Mutex<Sender>);

#[pymethods]
impl DeltaSender {
    /// Copies the base weights, and brings the copy to the newest version of a folder, if that has
    /// one. `share` is the rank and the number of ranks that hold shards, which are of the newest
    /// version already; `absent` is "refuse", "keep" or "remove".
    #[new]
    #[pyo3(signature = (base, folder, run, threads, portable, absent, share, progress))]
    #[expect(clippy::too_many_arguments, reason = "a Python function with keywords")]
    fn new(
        py: Python<'_>,
        base: Base,
        folder: Option<PyRef<'_, DeltaFolder>>,
        run: Option<&str>,
        threads: usize,
        portable: bool,
        absent: &str,
        share: (u64, u64),
        progress: Listener<'_>,
    ) -> PyResult<Self> {
        let absent = match absent {
            "refuse" => Absent::Refuse,
            "keep" => Absent::Keep,
            "remove" => Absent::Remove,
            other => {
                let message =
                    format!("absent={other:?} is unknown; give 'refuse', 'keep' or 'remove'");
                return Err(Failure::config(message).into());
            }
        };
        let share = Share { index: share.0, count: share.1 };
        let options = DiffOptions { portable, absent, share };
        let folder = folder.map(|folder| folder.0.clone());
        let run = run.map(run_id).transpose()?;
        let sender = watched(py, &progress, move |progress| {
            let mut receiver = Receiver::new(base.copy(progress)?, threads)?;
            if let Some(folder) = folder {
                receiver = at_newest(receiver, &folder, share)?;
            }
            if let Some(run) = run {
                receiver = receiver.with_version(run, 0);
            }
            Ok(Sender::resume(receiver, options, threads))
        })?;
        Ok(Self(Mutex::new(sender)))
    }

    /// Run, version and hash of the weights that the receivers hold.
    #[getter]
    fn state(&self, py: Python<'_>) -> (Option<String>, u64, String) {
        described(py.detach(|| self.sender().state()))
    }

    /// The bytes of the kept weights.
    #[getter]
    fn size(&self, py: Python<'_>) -> u64 {
        py.detach(|| bytes_of(self.sender().tensors()))
    }

    /// Begins an update.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        Ok(errors::detached(py, || Ok(self.sender().begin()?))?)
    }

    /// The kept tensors, in order of their names.
    fn tensors(&self, py: Python<'_>) -> Vec<Description> {
        let kept = |sender: &Sender| sender.tensors().tensors().iter().map(description).collect();
        py.detach(|| kept(&self.sender()))
    }

    /// Copies a kept tensor to an address with room for all of it.
    fn copy(&self, py: Python<'_>, tensor: usize, address: usize) -> PyResult<()> {
        let write = || {
            let sender = self.sender();
            let kept = sender.tensors();
            let len = kept.tensors().get(tensor).map(Tensor::byte_len);
            let missing = || Failure::config(format!("the sender has no tensor {tensor}"));
            copy(kept, tensor, Bytes::new(address, len.ok_or_else(missing)?).get_mut())
        };
        Ok(errors::detached(py, write)?)
    }

    /// Writes some tensors of the new weights, given whole or by their changes; returns the bytes
    /// that are ready to be sent.
    fn add<'py>(
        &self,
        py: Python<'py>,
        whole: Vec<Described>,
        changed: Vec<DescribedChanges>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let new = NewWeights::new(whole, changed)?;
        self.written(py, move |sender, sink| sender.add_patched(&new.patched()?, sink))
    }

    /// Ends the update; returns the last bytes.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.written(py, |sender, sink| sender.finish(sink).map(|_| ()))
    }

    /// All kept weights, for receivers that hold none or others.
    fn snapshot<'py>(
        &self,
        py: Python<'py>,
        progress: Listener<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = watched(py, &progress, |_| {
            let mut bytes = Vec::new();
            self.sender().snapshot(&mut |frame| {
                bytes.extend_from_slice(frame);
                Ok(())
            })?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// Advances the kept weights by the written update.
    fn commit(&self, py: Python<'_>, progress: Listener<'_>) -> PyResult<()> {
        watched(py, &progress, |_| Ok(self.sender().prove()?))?;
        Ok(errors::detached(py, || Ok(self.sender().commit().map(|_| ())?))?)
    }

    /// Forgets the update that was begun or written.
    fn rollback(&self, py: Python<'_>) {
        py.detach(|| self.sender().rollback());
    }
}

impl DeltaSender {
    /// Call it without the interpreter's lock: another thread may use the sender for long.
    fn sender(&self) -> MutexGuard<'_, Sender> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bytes that `write` sends. After an exception of Ctrl-C the update is to be rolled back.
    fn written<'py>(
        &self,
        py: Python<'py>,
        write: impl FnOnce(
            &mut Sender,
            &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
        ) -> Result<(), gradwire_delta::Error>
        + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = watched(py, &None, move |_| {
            let mut bytes = Vec::new();
            write(&mut self.sender(), &mut |frame| {
                bytes.extend_from_slice(frame);
                Ok(())
            })?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// Brings weights to the newest version of a folder. The rows of a rank cannot be proven alone:
/// they have to be of this version, and are compared when an update of all ranks is published.
fn at_newest(
    mut receiver: Receiver<Mirror>,
    folder: &Folder,
    share: Share,
) -> Result<Receiver<Mirror>, Failure> {
    match folder.latest()? {
        Some(State { run: Some(run), version, .. }) if share != Share::WHOLE => {
            Ok(receiver.with_version(run, version))
        }
        None if share != Share::WHOLE => {
            let folder = folder.path().to_owned();
            Err(gradwire_delta::Error::NothingPublished { folder }.into())
        }
        None => Ok(receiver),
        Some(_) => {
            receiver.follow(folder)?;
            Ok(receiver)
        }
    }
}
