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
use super::watched::{Listener, refuse_watched, watched, watched_of};
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// Keeps the weights that receivers hold, and writes the changes to new ones.
///
/// Threads of Python that use it wait for each other without the interpreter's lock. A progress
/// function would wait for the operation that has called it: it may only read the state.
#[pyclass(module = "gradwire._core", frozen)]
pub(crate) struct DeltaSender {
    sender: Mutex<Sender>,
    /// That of the sender, for those who do not wait for it.
    state: Mutex<State>,
}

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
        Ok(Self { state: Mutex::new(sender.state()), sender: Mutex::new(sender) })
    }

    /// Run, version and hash of the weights that the receivers hold.
    #[getter]
    fn state(&self) -> (Option<String>, u64, String) {
        described(*lock(&self.state))
    }

    /// The bytes of the kept weights.
    #[getter]
    fn size(&self, py: Python<'_>) -> PyResult<u64> {
        self.with(py, |sender| Ok(bytes_of(sender.tensors())))
    }

    /// Begins an update.
    fn begin(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |sender| Ok(sender.begin()?))
    }

    /// The kept tensors, in order of their names.
    fn tensors(&self, py: Python<'_>) -> PyResult<Vec<Description>> {
        self.with(py, |sender| Ok(sender.tensors().tensors().iter().map(description).collect()))
    }

    /// Copies a kept tensor to an address with room for all of it.
    fn copy(&self, py: Python<'_>, tensor: usize, address: usize) -> PyResult<()> {
        self.with(py, |sender| {
            let kept = sender.tensors();
            let len = kept.tensors().get(tensor).map(Tensor::byte_len);
            let missing = || Failure::config(format!("the sender has no tensor {tensor}"));
            copy(kept, tensor, Bytes::new(address, len.ok_or_else(missing)?).get_mut())
        })
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
        self.written(py, &None, move |sender, sink| sender.add_patched(&new.patched()?, sink))
    }

    /// Ends the update; returns the last bytes.
    fn finish<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.written(py, &None, |sender, sink| sender.finish(sink).map(drop))
    }

    /// All kept weights, for receivers that hold none or others.
    fn snapshot<'py>(
        &self,
        py: Python<'py>,
        progress: Listener<'py>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.written(py, &progress, |sender, sink| sender.snapshot(sink).map(drop))
    }

    /// Advances the kept weights by the written update.
    fn commit(&self, py: Python<'_>, progress: Listener<'_>) -> PyResult<()> {
        watched_of(self, py, &progress, |_| Ok(lock(&self.sender).prove()?))?;
        self.with(py, |sender| {
            *lock(&self.state) = sender.commit()?;
            Ok(())
        })
    }

    /// Forgets the update that was begun or written.
    fn rollback(&self, py: Python<'_>) -> PyResult<()> {
        self.with(py, |sender| {
            sender.rollback();
            Ok(())
        })
    }
}

impl DeltaSender {
    /// Uses the sender, after other threads have ended their operations.
    fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Sender) -> Result<R, Failure> + Send,
    ) -> PyResult<R> {
        refuse_watched(self)?;
        Ok(errors::detached(py, || work(&mut lock(&self.sender)))?)
    }

    /// The bytes that `write` sends. After an exception of Ctrl-C an update is to be rolled back.
    fn written<'py>(
        &self,
        py: Python<'py>,
        progress: &Listener<'py>,
        write: impl FnOnce(
            &mut Sender,
            &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
        ) -> Result<(), gradwire_delta::Error>
        + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = watched_of(self, py, progress, move |_| {
            let mut bytes = Vec::new();
            write(&mut lock(&self.sender), &mut |frame| {
                bytes.extend_from_slice(frame);
                Ok(())
            })?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}

/// Call it for a sender without the interpreter's lock: another thread may use it for long.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
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
