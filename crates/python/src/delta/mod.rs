//! Deltas of weights: senders, receivers, and updates between them.
//!
//! The Python package describes tensors and passes their addresses. What it sends and receives are
//! bytes.

mod describe;
mod folder;
mod held;
mod memory;
mod new_weights;
mod receiver;
mod sender;
mod update;
mod watched;

use gradwire_delta::DiffOptions;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::errors;
use held::{Base, bytes_of};
use watched::{Listener, watched};

/// Adds the classes to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(join_deltas, module)?)?;
    module.add_function(wrap_pyfunction!(fold_deltas, module)?)?;
    module.add_class::<folder::DeltaFolder>()?;
    module.add_class::<folder::DeltaPublication>()?;
    module.add_class::<sender::DeltaSender>()?;
    module.add_class::<receiver::DeltaReceiver>()?;
    module.add_class::<update::DeltaUpdate>()
}

/// One stream with the records of all shares of an update.
#[pyfunction]
fn join_deltas<'py>(py: Python<'py>, shares: Vec<PyBackedBytes>) -> PyResult<Bound<'py, PyBytes>> {
    let shares: Vec<&[u8]> = shares.iter().map(|share| &**share).collect();
    let joined = errors::detached(py, move || {
        let mut joined = Vec::new();
        gradwire_delta::join(shares, &mut |frame| {
            joined.extend_from_slice(frame);
            Ok(())
        })?;
        Ok(joined)
    })?;
    Ok(PyBytes::new(py, &joined))
}

/// One delta that leads from the base to where deltas lead one after another.
#[pyfunction]
fn fold_deltas<'py>(
    py: Python<'py>,
    base: Base,
    deltas: Vec<PyBackedBytes>,
    threads: usize,
    portable: bool,
    max_bytes: Option<u64>,
    progress: Listener<'py>,
) -> PyResult<Bound<'py, PyBytes>> {
    let deltas: Vec<&[u8]> = deltas.iter().map(|delta| &**delta).collect();
    let read: usize = deltas.iter().map(|delta| delta.len()).sum();
    let folded = watched(py, &progress, |progress| {
        let (base, mut folded) = (base.source()?, Vec::new());
        let options = DiffOptions { portable, ..DiffOptions::default() };
        // The base is copied, hashed and compared.
        progress.expect(3 * bytes_of(&*base) + read as u64);
        gradwire_delta::fold(&*base, deltas, &options, max_bytes, threads, &mut |frame| {
            folded.extend_from_slice(frame);
            Ok(())
        })?;
        Ok(folded)
    })?;
    Ok(PyBytes::new(py, &folded))
}
