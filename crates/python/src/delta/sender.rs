//! The sending end.

use gradwire_delta::{Absent, DiffOptions, Receiver, Sender, Share, Source, Tensor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::describe::{Description, described, description, run_id};
use super::folder::DeltaFolder;
use super::held::Base;
use super::held::copy;
use super::memory::Described;
use super::new_weights::{DescribedChanges, NewWeights};
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// Keeps the weights that receivers hold, and writes the changes to new ones.
#[pyclass(module = "gradwire._core")]
pub(crate) struct DeltaSender(Sender);

#[pymethods]
impl DeltaSender {
    /// Copies the base weights, and brings the copy to the newest version of a folder. `share` is
    /// the rank and the number of ranks that hold shards; `absent` is "refuse", "keep" or "remove".
    #[new]
    #[pyo3(signature = (base, folder, run, threads, portable, absent, share))]
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
        let sender = errors::detached(py, move || {
            let mut receiver = Receiver::new(base.copy()?, threads)?;
            if let Some(folder) = folder.filter(|folder| !matches!(folder.latest(), Ok(None))) {
                receiver.follow(&folder)?;
            }
            if let Some(run) = run {
                receiver = receiver.with_version(run, 0);
            }
            Ok(Sender::resume(receiver, options, threads))
        })?;
        Ok(Self(sender))
    }

    /// Run, version and hash of the weights that the receivers hold.
    #[getter]
    fn state(&self) -> (Option<String>, u64, String) {
        described(self.0.state())
    }

    /// Begins an update.
    fn begin(&mut self) -> PyResult<()> {
        Ok(self.0.begin().map_err(Failure::from)?)
    }

    /// The kept tensors, in order of their names.
    fn tensors(&self) -> Vec<Description> {
        self.0.tensors().tensors().iter().map(description).collect()
    }

    /// Copies a kept tensor to an address with room for all of it.
    fn copy(&self, py: Python<'_>, tensor: usize, address: usize) -> PyResult<()> {
        let kept = self.0.tensors();
        let len = kept.tensors().get(tensor).map(Tensor::byte_len);
        let missing = || Failure::config(format!("the sender has no tensor {tensor}"));
        let mut out = Bytes::new(address, len.ok_or_else(missing)?);
        Ok(errors::detached(py, move || copy(kept, tensor, out.get_mut()))?)
    }

    /// Writes some tensors of the new weights, given whole or by their changes; returns the bytes
    /// that are ready to be sent.
    fn add<'py>(
        &mut self,
        py: Python<'py>,
        whole: Vec<Described>,
        changed: Vec<DescribedChanges>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let new = NewWeights::new(whole, changed)?;
        self.written(py, move |sender, sink| sender.add_patched(&new.patched()?, sink))
    }

    /// Ends the update; returns the last bytes.
    fn finish<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.written(py, |sender, sink| sender.finish(sink).map(|_| ()))
    }

    /// All kept weights, for receivers that hold none or others.
    fn snapshot<'py>(&mut self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.written(py, |sender, sink| sender.snapshot(sink).map(|_| ()))
    }

    /// Advances the kept weights by the written update.
    fn commit(&mut self, py: Python<'_>) -> PyResult<()> {
        let sender = &mut self.0;
        Ok(errors::detached(py, || Ok(sender.commit().map(|_| ())?))?)
    }

    /// Forgets the update that was begun or written.
    fn rollback(&mut self) {
        self.0.rollback();
    }
}

impl DeltaSender {
    /// The bytes that `write` sends.
    fn written<'py>(
        &mut self,
        py: Python<'py>,
        write: impl FnOnce(
            &mut Sender,
            &mut dyn FnMut(&[u8]) -> std::io::Result<()>,
        ) -> Result<(), gradwire_delta::Error>
        + Send,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let sender = &mut self.0;
        let bytes = errors::detached(py, move || {
            let mut bytes = Vec::new();
            write(sender, &mut |frame| {
                bytes.extend_from_slice(frame);
                Ok(())
            })?;
            Ok(bytes)
        })?;
        Ok(PyBytes::new(py, &bytes))
    }
}
