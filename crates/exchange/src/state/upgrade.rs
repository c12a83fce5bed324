//! The upgrade of states from version 1.
//!
//! In version 1 a compressor belonged to a part of the policy: `push/spec` was that of all tensors without a rule; the
//! entries of rules were under `push/rule0/` and so on, in order.

use std::collections::BTreeSet;

use gradwire::{Encoder, State};

/// Upgrades a state of version 1, which names compressors and arrays by parts of a policy, to version 2, which names
/// them by tensor. Works under any prefix, such as `worker0/` or `server0/pull/`. States of the latest version stay as
/// they are.
pub fn upgrade(mut state: State) -> State {
    if state.version() != 1 {
        return state;
    }
    let is_spec = |key: &str| key == "spec" || key.ends_with("/spec");
    let specs: Vec<(String, String)> = state
        .settings_under("")
        .filter(|(key, _)| is_spec(key))
        .map(|(key, spec)| (key.to_owned(), spec.to_owned()))
        .collect();
    let mut replaced = BTreeSet::new();
    let mut arrays = Vec::new();
    for (key, spec) in specs {
        let part = &key[..key.len() - "spec".len()];
        let owner = without_rule(part);
        for kind in Encoder::KINDS {
            let under = format!("{part}{kind}/");
            for (name, values) in state.floats_under(&under) {
                let array = (format!("{owner}{kind}/{name}"), values.to_vec());
                arrays.push((array, (Encoder::spec_key(owner, name), spec.clone())));
                replaced.insert(format!("{under}{name}"));
            }
        }
        replaced.insert(format!("{part}phase"));
        replaced.insert(key);
    }
    state.retain(|key| !replaced.contains(key));
    for ((array, values), (setting, spec)) in arrays {
        state.set_floats(&array, values);
        state.set_setting(&setting, spec);
    }
    state.mark_upgraded();
    state
}

/// Removes the rule: `push/` for `push/rule0/`.
fn without_rule(part: &str) -> &str {
    let rule = part.trim_end_matches('/').rsplit_once("rule");
    match rule {
        Some((owner, number)) if owner.ends_with('/') && number.parse::<usize>().is_ok() => owner,
        _ => part,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_have_no_names_of_their_own() {
        assert_eq!(without_rule("worker0/push/rule12/"), "worker0/push/");
        assert_eq!(without_rule("push/"), "push/");
        assert_eq!(without_rule("server0/pull/"), "server0/pull/");
    }
}
