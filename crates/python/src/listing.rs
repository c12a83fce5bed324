//! The registry for Python.

use gradwire::{Entry, registry};
use gradwire_exchange::CompressionSchedule;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;

/// Every compressor as a dict, with the keys of `gradwire list --json`; `parameters` is a dict by
/// name, and includes the parameters that all compressors have.
#[pyfunction]
pub(crate) fn compressors(py: Python<'_>) -> PyResult<Vec<Bound<'_, PyDict>>> {
    let describe = |entry: &Entry| {
        let dict = PyDict::new(py);
        dict.set_item("id", entry.id)?;
        dict.set_item("summary", entry.summary)?;
        dict.set_item("formula", entry.formula)?;
        dict.set_item("payload", entry.payload)?;
        dict.set_item("unbiased", entry.default_guarantee().is_unbiased())?;
        dict.set_item("guarantee", entry.default_guarantee().to_string())?;
        dict.set_item("lossless", entry.lossless)?;
        dict.set_item("family", entry.family.name())?;
        dict.set_item("aggregation", entry.compressor().aggregation().name())?;
        dict.set_item("error_feedback", entry.error_feedback)?;
        dict.set_item("reference", entry.reference)?;
        let parameters = PyDict::new(py);
        for parameter in entry.all_parameters() {
            let described = PyDict::new(py);
            described.set_item("default", parameter.kind.default().to_string())?;
            described.set_item("values", parameter.kind.expected())?;
            described.set_item("help", parameter.help)?;
            parameters.set_item(parameter.key, described)?;
        }
        parameters.get_item("ef")?.map_or(Ok(()), |ef| {
            ef.set_item("default", if entry.error_feedback { "on" } else { "off" })
        })?;
        dict.set_item("parameters", parameters)?;
        Ok(dict)
    };
    registry::all().map(describe).collect()
}

/// A spec string or schedule as gradwire prints it: the parameters that differ from their defaults,
/// in order.
#[pyfunction]
pub(crate) fn canonical(spec: &str) -> PyResult<String> {
    let schedule: CompressionSchedule = spec.parse().map_err(Failure::config)?;
    Ok(schedule.to_string())
}
