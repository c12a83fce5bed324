//! Deltas of weights: senders, receivers, and updates between them.
//!
//! The Python package describes tensors and passes their addresses. What it sends and receives are
//! bytes.

mod held;
mod memory;
mod receiver;
mod sender;
mod update;

use gradwire_delta::{RunId, State};
use pyo3::prelude::*;

use crate::errors::Failure;

/// Adds the classes to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<sender::DeltaSender>()?;
    module.add_class::<receiver::DeltaReceiver>()?;
    module.add_class::<update::DeltaUpdate>()
}

/// The name of a run from 32 hexadecimal digits.
fn run_id(digits: &str) -> Result<RunId, Failure> {
    let number = u128::from_str_radix(digits, 16).ok().filter(|_| digits.len() == 32);
    let number = number.ok_or_else(|| {
        Failure::config(format!("run={digits:?} is not a run; give 32 hexadecimal digits"))
    })?;
    Ok(RunId(number.to_be_bytes()))
}

/// Run, version and hash.
fn described(state: State) -> (Option<String>, u64, String) {
    (state.run.map(|run| run.to_string()), state.version, state.hash.to_string())
}
