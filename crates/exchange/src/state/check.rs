//! Whether a saved state fits a model.

use std::collections::HashMap;

use gradwire::{Encoder, State, StateError, Tensor};

use super::names::{ArrayKey, PUSH, REDUCE, read_slice};

/// Checks the state of a rank, whose keys start with `prefix`. Refuses compressors and arrays of
/// tensors that this model does not have, and residuals and velocities of the wrong size. Call it
/// before [`reshard`](crate::reshard), which allocates as many elements as the keys of slices name.
///
/// # Errors
/// [`StateError::Foreign`] and [`StateError::WrongSize`].
pub fn check_arrays(state: &State, prefix: &str, tensors: &[Tensor]) -> Result<(), StateError> {
    // The state of rows may also come from a run that had other rows of the tensors.
    let known = tensors.iter().flat_map(|tensor| [tensor.whole(), tensor]);
    let sizes: HashMap<&str, usize> = known.map(|t| (t.name(), t.elements())).collect();
    for owner in [PUSH, REDUCE] {
        let specs = Encoder::spec_key(&format!("{prefix}{owner}"), "");
        for (name, _) in state.settings_under(&specs) {
            let whole = read_slice(name).map_or(name, |(whole, _)| whole);
            if !sizes.contains_key(name) && !sizes.contains_key(whole) {
                return Err(StateError::Foreign(format!("{specs}{name}")));
            }
        }
    }
    for (text, values) in state.floats_under(prefix) {
        let Some(key) = ArrayKey::read(text) else { continue };
        let entry = || format!("{prefix}{text}");
        let whole = *sizes.get(key.name).ok_or_else(|| StateError::Foreign(entry()))?;
        let range = key.range.clone().unwrap_or(0..whole);
        let within = range.start <= range.end && range.end <= whole;
        if key.kind != "kept" && !(within && range.len() == values.len()) {
            let (found, expected) = (values.len(), range.len());
            return Err(StateError::WrongSize { entry: entry(), found, expected });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(entries: &[(&str, &[f32])]) -> State {
        let mut state = State::new();
        entries.iter().for_each(|(name, values)| state.set_floats(name, values.to_vec()));
        state
    }

    #[test]
    fn arrays_that_the_model_has_no_place_for_are_refused() {
        let check = |key: &str, values: &[f32]| {
            check_arrays(&state(&[(key, values)]), "worker1/", &[Tensor::new("w", &[2, 3])])
        };
        let six = [1.0; 6];
        for (key, values) in [
            ("worker1/push/residual/w", &six[..]),
            ("worker1/push/velocity/w[2..6]", &six[..4]),
            ("worker1/reduce/residual/w[3..3]", &[]),
            // The size of `kept` is the compressor's.
            ("worker1/push/kept/w", &six[..1]),
            // No arrays of this rank's encoders.
            ("worker0/push/residual/v", &six),
            ("worker1/optimizer/residual/v", &six),
        ] {
            check(key, values).unwrap_or_else(|error| panic!("{key}: {error}"));
        }
        let mut other = state(&[]);
        for (key, fits) in [
            ("worker1/push/spec/w", true),
            ("worker1/reduce/spec/w[0..2]", true),
            ("worker0/push/spec/v", true),
            ("worker1/push/spec/v", false),
        ] {
            other.set_setting(key, "none");
            let checked = check_arrays(&other, "worker1/", &[Tensor::new("w", &[2, 3])]);
            assert_eq!(checked.is_ok(), fits, "{key}");
        }
        for key in ["worker1/push/residual/v", "worker1/reduce/kept/v[0..1]"] {
            assert!(matches!(check(key, &[1.0]), Err(StateError::Foreign(name)) if name == key));
        }
        for key in ["w", "w[0..2]", "w[6..7]", "w[5..4]", "w[18446744073709551615..0]"] {
            let key = format!("worker1/push/residual/{key}");
            assert!(matches!(check(&key, &[1.0]), Err(StateError::WrongSize { .. })), "{key}");
        }
        // Beyond the tensor, but without an element.
        assert!(check("worker1/push/residual/w[4000000000000..4000000000000]", &[]).is_err());
    }
}
