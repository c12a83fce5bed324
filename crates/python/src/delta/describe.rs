//! What the Python package is told about weights and tensors.

use gradwire_delta::{State, Tensor};

/// A tensor: name, element type as in safetensors files, shape, and first and last row.
pub(super) type Description = (String, &'static str, Vec<u64>, (u64, u64));

pub(super) fn description(tensor: &Tensor) -> Description {
    let rows = tensor.rows();
    let shape = tensor.shape().to_vec();
    (tensor.name().to_owned(), tensor.element().name(), shape, (rows.start, rows.end))
}

/// Run, version and hash.
pub(super) fn described(state: State) -> (Option<String>, u64, String) {
    (state.run.map(|run| run.to_string()), state.version, state.hash.to_string())
}
