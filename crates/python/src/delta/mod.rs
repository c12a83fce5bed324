//! Deltas of weights: senders, receivers, and updates between them.
//!
//! The Python package describes tensors and passes their addresses. What it sends and receives are
//! bytes.

mod folder;
mod held;
mod memory;
mod new_weights;
mod receiver;
mod sender;
mod update;

use gradwire_delta::State;
use pyo3::prelude::*;

/// Adds the classes to the module.
pub(crate) fn add(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<folder::DeltaFolder>()?;
    module.add_class::<folder::DeltaPublication>()?;
    module.add_class::<sender::DeltaSender>()?;
    module.add_class::<receiver::DeltaReceiver>()?;
    module.add_class::<update::DeltaUpdate>()
}

/// Run, version and hash.
fn described(state: State) -> (Option<String>, u64, String) {
    (state.run.map(|run| run.to_string()), state.version, state.hash.to_string())
}
