//! The state of an encoder: checkpoint and rollback, save and restore.

use super::kept::{KEPT, KINDS};
use super::{Encoder, Entry, entry_of};
use crate::{Compressor, Spec, State, StateError};

impl Encoder {
    /// The kinds of arrays in saved states: the residual, a running sum or mean of gradients, and
    /// the compressor's own array.
    pub const KINDS: [&str; 3] = KINDS;

    /// The key of the spec of the tensor called `name` in a state that was [saved](Self::save)
    /// under `prefix`.
    pub fn spec_key(prefix: &str, name: &str) -> String {
        format!("{prefix}spec/{name}")
    }

    /// Whether an encoder was [saved](Self::save) under `prefix`.
    pub fn was_saved(prefix: &str, state: &State) -> bool {
        state.number(&saved_key(prefix)).is_ok()
    }

    /// Copies the state of every tensor, for [`rollback`](Self::rollback). The buffers of the
    /// copies are reused.
    pub fn checkpoint(&mut self) {
        for Entry { kept, checkpoint, .. } in self.tensors.values_mut() {
            checkpoint.0.clone_from(&kept.0);
        }
    }

    /// Restores the state of the last [`checkpoint`](Self::checkpoint): tensors first encoded after
    /// it lose their residual. [`restore`](Self::restore) and [`forget`](Self::forget) discard the
    /// checkpoint, so make a new one after them. Without a checkpoint, `rollback` discards the
    /// state of all tensors.
    pub fn rollback(&mut self) {
        for Entry { kept, checkpoint, .. } in self.tensors.values_mut() {
            kept.0.clone_from(&checkpoint.0);
        }
    }

    /// Adds the encoder's state to `state`, under keys that start with `prefix`: for every tensor
    /// that was encoded or has an assigned spec, the setting `spec/NAME` and the arrays
    /// `residual/NAME`, `velocity/NAME` and `kept/NAME`. The number `encoder` marks a saved
    /// encoder, even one without tensors. The prefix is used as it is: end it with a slash.
    pub fn save(&self, prefix: &str, state: &mut State) {
        state.set_number(&saved_key(prefix), 1);
        for (name, entry) in &self.tensors {
            let spec = self.specs.0[entry.spec].to_string();
            state.set_setting(&Self::spec_key(prefix, name), spec);
            for (kind, values) in Self::KINDS.iter().zip(&entry.kept.0) {
                if let Some(values) = values {
                    state.set_floats(&array_key(prefix, kind, name), values.clone());
                }
            }
        }
    }

    /// Replaces the encoder's state by the state that [`save`](Self::save) wrote under the same
    /// prefix. Specs are not restored: [assign](Self::assign) them first. An error leaves the
    /// encoder unchanged.
    ///
    /// # Errors
    /// [`StateError::Missing`] if no encoder was saved under the prefix, or an array without a
    /// spec; [`StateError::Mismatch`] if a tensor's spec has changed since;
    /// [`StateError::OutOfRange`] if an array has numbers that no encoder writes. An array of the
    /// wrong size is refused at the next encoding of its tensor, when the size is known.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        self.check_state(prefix, state)?;
        self.forget();
        for (at, kind) in Self::KINDS.iter().enumerate() {
            for (name, values) in state.floats_under(&array_key(prefix, kind, "")) {
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
    /// As for [`restore`](Self::restore).
    pub fn check_state(&self, prefix: &str, state: &State) -> Result<(), StateError> {
        if !Self::was_saved(prefix, state) {
            return Err(StateError::Missing(saved_key(prefix)));
        }
        for (name, saved) in state.settings_under(&Self::spec_key(prefix, "")) {
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
        for kind in Self::KINDS {
            for (name, values) in state.floats_under(&array_key(prefix, kind, "")) {
                state.setting(&Self::spec_key(prefix, name))?;
                let checked = check_values(kind, values, self.compressor_of(name));
                checked.map_err(|reason| StateError::OutOfRange {
                    entry: array_key(prefix, kind, name),
                    reason,
                })?;
            }
        }
        Ok(())
    }

    /// Forgets the state of one tensor. Returns whether it had any.
    pub fn forget_tensor(&mut self, name: &str) -> bool {
        let Some(entry) = self.tensors.get_mut(name) else { return false };
        let kept = entry.kept.0.iter().any(Option::is_some);
        *entry = Entry { spec: entry.spec, ..Entry::default() };
        kept
    }

    /// Forgets the state of all tensors, but not their specs.
    pub fn forget(&mut self) {
        for entry in self.tensors.values_mut() {
            *entry = Entry { spec: entry.spec, ..Entry::default() };
        }
    }
}

/// Refuses numbers that encoding never writes to an array of this kind. The error says what is
/// wrong.
fn check_values(kind: &str, values: &[f32], compressor: &dyn Compressor) -> Result<(), String> {
    let squares = kind == KEPT && compressor.keeps_squares();
    // Sums of finite squares may overflow.
    let belongs = |x: &f32| if squares { *x >= 0.0 } else { x.is_finite() };
    if let Some(at) = values.iter().position(|x| !belongs(x)) {
        let what = if squares { "a sum of squares" } else { "a finite number" };
        return Err(format!("element {at} is {} instead of {what}", values[at]));
    }
    match compressor.rounds().and_then(|rounds| rounds.kept()) {
        Some(kept) if kind == KEPT => kept.check(values),
        _ => Ok(()),
    }
}

fn array_key(prefix: &str, kind: &str, name: &str) -> String {
    format!("{prefix}{kind}/{name}")
}

fn saved_key(prefix: &str) -> String {
    format!("{prefix}encoder")
}
