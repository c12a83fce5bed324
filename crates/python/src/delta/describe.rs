//! What the Python package is told about weights and tensors.

use gradwire_delta::{RunId, State, Tensor};

use crate::errors::Failure;

/// A tensor: name, element type as in safetensors files, shape, and first and last row.
pub(super) type Description = (String, &'static str, Vec<u64>, (u64, u64));

pub(super) fn description(tensor: &Tensor) -> Description {
    let rows = tensor.rows();
    let shape = tensor.shape().to_vec();
    (tensor.name().to_owned(), tensor.element().name(), shape, (rows.start, rows.end))
}

/// A description as Python gives it back.
pub(super) type Expected = (String, String, Vec<u64>, (u64, u64));

/// Whether a tensor has this description.
pub(super) fn is_as(tensor: &Tensor, expected: &Expected) -> bool {
    let (name, element, shape, rows) = description(tensor);
    (&name, element, &shape, &rows) == (&expected.0, &expected.1, &expected.2, &expected.3)
}

/// Run, version and hash.
pub(super) fn described(state: State) -> (Option<String>, u64, String) {
    (state.run.map(|run| run.to_string()), state.version, state.hash.to_string())
}

/// The name of a run from 32 hexadecimal digits.
pub(super) fn run_id(digits: &str) -> Result<RunId, Failure> {
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32);
    let number = number.ok_or_else(|| {
        Failure::config(format!("run={digits:?} is not a name; give 32 hexadecimal digits"))
    })?;
    Ok(RunId(number.to_be_bytes()))
}
