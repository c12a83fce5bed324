//! The command line `gradwire`.

use std::ffi::OsString;

use pyo3::prelude::*;

/// Runs the command line with the arguments of a process, the program's name first; returns the
/// exit code.
#[pyfunction]
pub(crate) fn main(py: Python<'_>, arguments: Vec<OsString>) -> u8 {
    py.detach(|| gradwire_cli::run(arguments))
}
