//! What an encoder has accumulated, to go back to and to save.

use super::Encoder;
use crate::{State, StateError};

impl Encoder {
    /// Keeps a copy of the state, for [`rollback`](Self::rollback). One copy of all residuals; buffers are
    /// reused from call to call.
    pub fn checkpoint(&mut self) {
        let Self { residuals, velocities, kept, before, .. } = self;
        for (now, before) in [residuals, velocities, kept].into_iter().zip(before) {
            for (name, values) in now.iter() {
                match before.get_mut(name) {
                    Some(copy) => copy.clone_from(values),
                    None => drop(before.insert(name.clone(), values.clone())),
                }
            }
        }
    }

    /// Takes back everything encoded since [`remember`](Self::checkpoint), as if it had never been.
    pub fn rollback(&mut self) {
        let Self { residuals, velocities, kept, before, .. } = self;
        for (now, before) in [residuals, velocities, kept].into_iter().zip(before) {
            now.retain(|name, _| before.contains_key(name));
            now.iter_mut().for_each(|(name, values)| values.clone_from(&before[name]));
        }
    }

    /// Adds everything a restored encoder needs to `state`, under keys that start with `prefix`.
    pub fn save(&self, prefix: &str, state: &mut State) {
        state.set_setting(&format!("{prefix}spec"), self.spec.to_string());
        let kinds =
            [("residual", &self.residuals), ("velocity", &self.velocities), ("kept", &self.kept)];
        for (kind, entries) in kinds {
            for (name, values) in entries {
                state.set_floats(&format!("{prefix}{kind}/{name}"), values.clone());
            }
        }
    }

    /// Takes back what [`save`](Self::save) wrote under the same prefix. After an error the
    /// encoder is as it was. A residual of the wrong size is refused when its tensor is encoded
    /// next: only then is the size known.
    pub fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        state.expect_setting(&format!("{prefix}spec"), &self.spec.to_string())?;
        let entries = |kind: &str| {
            let under = format!("{prefix}{kind}/");
            let entries = state.floats_under(&under);
            entries.map(|(name, values)| (name.to_owned(), values.to_vec())).collect()
        };
        (self.residuals, self.velocities) = (entries("residual"), entries("velocity"));
        self.kept = entries("kept");
        self.before = Default::default();
        Ok(())
    }
}
