//! The state of an encoder: checkpoint and rollback, save and restore.

use super::kept::KINDS;
use super::{Encoder, Entry, entry_of};
use crate::{Spec, State, StateError};

impl Encoder {
    /// Copies the state of every tensor, for [`rollback`](Self::rollback). The buffers of the copies are reused.
    pub fn checkpoint(&mut self) {
        for Entry { kept, checkpoint, .. } in self.tensors.values_mut() {
            checkpoint.0.clone_from(&kept.0);
        }
    }

    /// Restores the state of the last [`checkpoint`](Self::checkpoint).
    pub fn rollback(&mut self) {
        for Entry { kept, checkpoint, .. } in self.tensors.values_mut() {
            kept.0.clone_from(&checkpoint.0);
        }
    }

    /// Adds the encoder's state to `state`, under keys that start with `prefix`: for every tensor that was encoded or
    /// has an assigned spec, the spec as the setting `spec/NAME`, and its arrays `residual/NAME`, `velocity/NAME` and
    /// `kept/NAME`. The number `encoder` says that an encoder was saved there, even if it has no tensors yet. The prefix is
    /// used as it is: let it end with a slash.
    pub fn save(&self, prefix: &str, state: &mut State) {
        state.set_number(&saved_key(prefix), 1);
        for (name, entry) in &self.tensors {
            let spec = self.specs.0[entry.spec].to_string();
            state.set_setting(&format!("{prefix}spec/{name}"), spec);
            for (kind, values) in KINDS.iter().zip(&entry.kept.0) {
                if let Some(values) = values {
                    state.set_floats(&format!("{prefix}{kind}/{name}"), values.clone());
                }
            }
        }
    }

    /// Replaces the encoder's state by the one that [`save`](Self::save) wrote under the same prefix. Specs are not
    /// restored: [assign](Self::assign) them before. An error leaves the encoder unchanged.
    ///
    /// # Errors
    /// [`StateError::Missing`] if no encoder was saved under the prefix, or an array without a spec, and
    /// [`StateError::Mismatch`] if a tensor was saved with another spec than it has now. An array of the wrong size is
    /// refused when its tensor is next encoded: only then is the size known.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        self.check_state(prefix, state)?;
        self.forget();
        for (at, kind) in KINDS.iter().enumerate() {
            for (name, values) in state.floats_under(&format!("{prefix}{kind}/")) {
                let entry = entry_of(&mut self.tensors, name);
                entry.kept.0[at] = Some(values.to_vec());
                entry.foreign = true;
            }
        }
        Ok(())
    }

    /// Whether [`restore`](Self::restore) would succeed; changes nothing.
    ///
    /// # Errors
    /// Those of [`restore`](Self::restore).
    pub fn check_state(&self, prefix: &str, state: &State) -> Result<(), StateError> {
        let specs = format!("{prefix}spec/");
        for (name, saved) in state.settings_under(&specs) {
            let configured = self.spec_of(name);
            // The string of an unregistered spec does not parse.
            if saved != configured.to_string() && saved.parse::<Spec>().as_ref() != Ok(configured) {
                return Err(StateError::Mismatch {
                    key: format!("the compressor of tensor '{name}'"),
                    found: saved.to_owned(),
                    expected: configured.to_string(),
                });
            }
        }
        for kind in KINDS {
            for (name, _) in state.floats_under(&format!("{prefix}{kind}/")) {
                state.setting(&format!("{specs}{name}"))?;
            }
        }
        // Earlier builds saved specs only.
        if state.settings_under(&specs).next().is_none() {
            state.number(&saved_key(prefix))?;
        }
        Ok(())
    }

    /// Forgets the state of all tensors, but not their specs.
    pub fn forget(&mut self) {
        for entry in self.tensors.values_mut() {
            *entry = Entry { spec: entry.spec, ..Entry::default() };
        }
    }
}

fn saved_key(prefix: &str) -> String {
    format!("{prefix}encoder")
}
