//! The Python module `gradwire._core`: compressors, averages over a PyTorch process group, and
//! deltas of weights.
//!
//! The Python package checks tensors and passes their addresses. This crate turns the addresses
//! into slices in one place, and converts errors to exceptions in one place. It releases the
//! interpreter's lock while it works.

mod advice;
mod buffer;
mod channel;
mod codec;
mod command_line;
mod delta;
mod device;
mod errors;
mod frames;
mod listing;
mod policy;
mod reducer;

use gradwire::{Entry, registry};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;

/// Keeps an object until the process ends, and never runs its finalizer, which would wait for
/// threads that a forked process does not have.
#[pyfunction]
fn keep_forever(object: Py<PyAny>) {
    std::mem::forget(object);
}

#[pymodule]
fn _core(module: &Bound<'_, PyModule>) -> PyResult<()> {
    fill(module, &[])
}

/// Fills a module with all of `gradwire._core`, and registers compressors of other crates.
/// `examples/extension` has a Python package that takes the place of `gradwire._core`.
///
/// # Errors
/// An `ImportError` that names the compressor and the remedy, if one cannot be registered.
pub fn fill(module: &Bound<'_, PyModule>, entries: &[&'static Entry]) -> PyResult<()> {
    registry::register(entries).map_err(|error| PyImportError::new_err(error.to_string()))?;
    errors::add(module)?;
    delta::add(module)?;
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("MOST_THREADS", gradwire::Threads::MOST)?;
    module.add_class::<reducer::ReducerHandle>()?;
    module.add_class::<frames::Frame>()?;
    module.add_class::<codec::Codec>()?;
    module.add_function(wrap_pyfunction!(advice::advice, module)?)?;
    module.add_function(wrap_pyfunction!(advice::buckets, module)?)?;
    module.add_function(wrap_pyfunction!(command_line::main, module)?)?;
    module.add_function(wrap_pyfunction!(frames::encode, module)?)?;
    module.add_function(wrap_pyfunction!(keep_forever, module)?)?;
    module.add_function(wrap_pyfunction!(listing::compressors, module)?)?;
    module.add_function(wrap_pyfunction!(listing::canonical, module)?)?;
    Ok(())
}
