//! A staged update.

use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use gradwire_delta::part::{Content, apply};
use gradwire_delta::{Patch, State, Tensor, Update};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::describe::{Description, described, description};
use crate::buffer::Bytes;
use crate::errors::{self, Failure};

/// An update that was decoded and proven, and that has changed nothing yet.
///
/// Threads of Python may read it and commit it at the same time. They wait for each other without
/// the interpreter's lock.
#[pyclass(module = "gradwire._core", frozen)]
pub(crate) struct DeltaUpdate {
    update: RwLock<Update>,
    /// The tensors of the receiver for which it was staged.
    tensors: Arc<Vec<Tensor>>,
    /// The numbers of the tensors that have patches, with the first patch of each.
    changed: Vec<(usize, usize)>,
}

#[pymethods]
impl DeltaUpdate {
    /// Run, version and hash of the weights for which it was staged.
    #[getter]
    fn base(&self, py: Python<'_>) -> (Option<String>, u64, String) {
        described(py.detach(|| self.read().base()))
    }

    /// Run, version and hash of the weights that it gives.
    #[getter]
    fn target(&self, py: Python<'_>) -> (Option<String>, u64, String) {
        described(py.detach(|| self.read().target()))
    }

    /// Whether the weights were those of the target already when it was staged.
    #[getter]
    fn is_applied(&self, py: Python<'_>) -> bool {
        py.detach(|| self.read().is_applied())
    }

    /// The number of elements that change in tensors that keep type and shape.
    #[getter]
    fn changed_elements(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.read().changed_elements())
    }

    /// The tensors that change and keep type and shape: number and description.
    fn changed(&self) -> Vec<(usize, Description)> {
        let tensors = self.changed.iter().map(|&(tensor, _)| tensor);
        tensors.map(|tensor| (tensor, description(&self.tensors[tensor]))).collect()
    }

    /// Tensors that are new or have another type or shape.
    fn added(&self, py: Python<'_>) -> Vec<Description> {
        py.detach(|| self.read().added().map(|(tensor, _)| description(tensor)).collect())
    }

    /// Names of tensors that are gone.
    fn removed(&self, py: Python<'_>) -> Vec<String> {
        py.detach(|| {
            let update = self.read();
            let replaced: Vec<&str> = update.added().map(|(tensor, _)| tensor.name()).collect();
            let names = update.removed().iter().map(|&tensor| self.tensors[tensor].name());
            names.filter(|name| !replaced.contains(name)).map(str::to_owned).collect()
        })
    }

    /// Places of the changed elements of a tensor, as 64-bit integers that count from its first
    /// element here, and the new elements.
    fn patch<'py>(
        &self,
        py: Python<'py>,
        tensor: usize,
    ) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
        let joined = move || Ok(joined(self.patches(&self.read(), tensor)));
        let (places, values) = errors::detached(py, joined)?;
        Ok((PyBytes::new(py, &places), PyBytes::new(py, &values)))
    }

    /// Copies an added tensor, by its number in `added`, to an address with room for all of it.
    fn copy_added(&self, py: Python<'_>, tensor: usize, address: usize) -> PyResult<()> {
        let copy = || {
            let update = self.read();
            let Some((_, bytes)) = update.added().nth(tensor) else {
                return Err(Failure::config(format!("the update adds no tensor {tensor}")));
            };
            Bytes::new(address, bytes.len()).get_mut().copy_from_slice(bytes);
            Ok(())
        };
        Ok(errors::detached(py, copy)?)
    }
}

impl DeltaUpdate {
    pub(super) fn new(update: Update, tensors: Arc<Vec<Tensor>>) -> Self {
        let mut changed: Vec<(usize, usize)> =
            update.patches().enumerate().map(|(at, patch)| (patch.tensor, at)).collect();
        changed.dedup_by_key(|(tensor, _)| *tensor);
        Self { update: RwLock::new(update), tensors, changed }
    }

    /// Whether a receiver with these weights is before or after this update.
    pub(super) fn fits(&self, state: State, tensors: &Arc<Vec<Tensor>>) -> bool {
        let update = self.read();
        let is_here = state == update.base() || state == update.target();
        is_here && Arc::ptr_eq(&self.tensors, tensors)
    }

    /// The patches of a tensor.
    fn patches<'a>(
        &self,
        update: &'a Update,
        tensor: usize,
    ) -> impl Iterator<Item = Patch<'a>> + use<'a> {
        let found = self.changed.binary_search_by_key(&tensor, |&(tensor, _)| tensor);
        let first = found.map_or(usize::MAX, |at| self.changed[at].1);
        update.patches().skip(first).take_while(move |patch| patch.tensor == tensor)
    }

    /// Writes the changes of a tensor over its old content.
    pub(super) fn apply(&self, tensor: usize, content: &mut [u8]) {
        let element = self.tensors[tensor].element();
        for patch in self.patches(&self.read(), tensor) {
            let start = patch.first * element.width();
            let part = &mut content[start..start + patch.len * element.width()];
            apply(element, &patch.content, part);
        }
    }

    /// The update, for reading. Call it without the interpreter's lock: a commit may take long.
    fn read(&self) -> RwLockReadGuard<'_, Update> {
        self.update.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The update, for its commit. Call it without the interpreter's lock.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Update> {
        self.update.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Places and values of a tensor's changes.
fn joined<'a>(patches: impl Iterator<Item = Patch<'a>>) -> (Vec<u8>, Vec<u8>) {
    let (mut places, mut all) = (Vec::new(), Vec::new());
    let mut push = |place: usize| places.extend_from_slice(&(place as u64).to_le_bytes());
    for patch in patches {
        match patch.content {
            Content::Same => {}
            Content::Changes { positions, values } => {
                positions.iter().for_each(|&position| push(patch.first + position as usize));
                all.extend_from_slice(values);
            }
            Content::Whole(values) => {
                (0..patch.len).for_each(|position| push(patch.first + position));
                all.extend_from_slice(values);
            }
        }
    }
    (places, all)
}
