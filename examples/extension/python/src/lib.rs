//! All of gradwire's Python module, with the compressors of this crate.

use pyo3::prelude::*;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    gradwire_python::fill(module, &[&acme::ENTRY])
}
