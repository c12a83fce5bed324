//! Cutting the entries of states into slices, and redistribution to another number of ranks.

use std::collections::{BTreeMap, BTreeSet};

use gradwire::{Encoder, Spec, State};

use super::names::{ArrayKey, PUSH, REDUCE, read_slice};

/// Cuts the entries of whole tensors into entries of `slices`, except `kept` arrays, which are
/// dropped. Other entries stay.
pub(crate) fn split<'a>(state: &State, slices: impl Iterator<Item = &'a str>) -> State {
    let (mut split, mut replaced) = (state.clone(), BTreeSet::new());
    for slice in slices {
        let Some((name, range)) = read_slice(slice) else { continue };
        let spec = Encoder::spec_key(PUSH, name);
        if let Ok(value) = state.setting(&spec) {
            split.set_setting(&Encoder::spec_key(PUSH, slice), value);
            replaced.insert(spec);
        }
        for (owner, kind) in
            [PUSH, REDUCE].into_iter().flat_map(|o| Encoder::KINDS.map(|kind| (o, kind)))
        {
            let key = format!("{owner}{kind}/{name}");
            let Ok(values) = state.floats(&key) else { continue };
            let part = values.get(range.clone()).filter(|part| !part.is_empty() && kind != "kept");
            if let Some(part) = part {
                split.set_floats(&format!("{owner}{kind}/{slice}"), part.to_vec());
            }
            replaced.insert(key);
        }
    }
    split.retain(|key| !replaced.contains(key));
    split
}

/// Keeps the arrays and compressors of tensors and slices with a wanted name. Other entries stay.
pub(crate) fn keep(state: &mut State, wanted: impl Fn(&str) -> bool) {
    state.retain(|key| {
        let name = [PUSH, REDUCE].iter().find_map(|owner| key.strip_prefix(owner)?.split_once('/'));
        name.is_none_or(|(_, name)| wanted(name))
    });
}

/// The state that rank `rank` of `workers` ranks starts from, given the states of all ranks of an
/// earlier run, in rank order.
///
/// The mean of the residuals over the ranks stays the same, so nothing that is still to be sent is
/// lost. Rank j takes over the residuals and velocities of the old ranks j, j + `workers`, j +
/// 2·`workers` …, added up and multiplied by `workers` / `states.len()`. If there are more ranks
/// than before, the additional ranks start with none. Slices of scatter-reduce are put together,
/// and an owner's second residual, which stands for all ranks, is weighted by the old number of
/// ranks. Everything else (sums of changes, statistics and factors that methods start from, an
/// optimizer's state, settings) comes from the old rank j modulo `states.len()`.
///
/// This holds for equal weights, and not for hierarchical exchanges. With the same number of ranks
/// and the same exchange, use each rank's own state, which is exact. [Check](crate::check_arrays)
/// states that come from a file first.
///
/// # Panics
/// If there are no states.
pub fn reshard(states: &[State], rank: usize, workers: usize) -> State {
    redistribute(states, states.len(), rank, workers)
}

/// One rank's state among `workers` ranks, with slices put together as [`reshard`] does. The mean
/// over the ranks of the values that are still to be sent stays the same.
pub(crate) fn join(state: &State, workers: usize) -> State {
    redistribute(std::slice::from_ref(state), workers, 0, workers)
}

/// As [`reshard`], for states that ranks among `before` ranks saved.
fn redistribute(states: &[State], before: usize, rank: usize, workers: usize) -> State {
    let mut own = states[rank % states.len()].clone();
    let specs: BTreeMap<String, String> = states.iter().rev().flat_map(specs_of_whole).collect();
    let is_spec = |key: &str| {
        [PUSH, REDUCE].iter().any(|owner| key.starts_with(&Encoder::spec_key(owner, "")))
    };
    own.retain(|key| {
        !is_spec(key) && ArrayKey::read(key).is_none_or(|key| key.is_kept_of_pushes())
    });
    specs.iter().for_each(|(key, spec)| own.set_setting(key, spec.clone()));
    let mut sums = BTreeMap::new();
    let estimates = |name: &str| {
        let spec =
            specs.get(&Encoder::spec_key(PUSH, name)).and_then(|spec| spec.parse::<Spec>().ok());
        spec.is_some_and(|spec| spec.sends_changes())
    };
    for state in states.iter().skip(rank).step_by(workers) {
        add_whole(state, before as f32, &estimates, &mut sums);
    }
    let factor = workers as f32 / before as f32;
    for (key, mut sum) in sums {
        sum.iter_mut().for_each(|value| *value *= factor);
        own.set_floats(&key, sum);
    }
    own
}

/// The compressors in a state, by tensor: a slice has the compressor of its tensor.
fn specs_of_whole(state: &State) -> Vec<(String, String)> {
    let of = |owner: &str| -> Vec<_> {
        let whole = |name| read_slice(name).map_or(name, |(whole, _)| whole);
        let specs = state.settings_under(owner);
        specs.map(|(name, spec)| (Encoder::spec_key(PUSH, whole(name)), spec.to_owned())).collect()
    };
    [of(&Encoder::spec_key(PUSH, "")), of(&Encoder::spec_key(REDUCE, ""))].concat()
}

/// Replaces the `kept` arrays of the wanted tensors with the arrays in `from`. Multi-round methods
/// start from the same values on all ranks, but under other exchanges each rank has its own.
pub(crate) fn take_kept(state: &mut State, from: &State, wanted: impl Fn(&str) -> bool) {
    for (key, values) in from.floats_under("") {
        let is_wanted = |key: ArrayKey<'_>| key.is_kept_of_pushes() && wanted(key.name);
        if ArrayKey::read(key).is_some_and(is_wanted) {
            state.set_floats(key, values.to_vec());
        }
    }
}

/// Adds the residuals and velocities of a state to the sums of whole tensors. If `estimates` is
/// true for a tensor, it has estimates instead of residuals; they include the values that an owner
/// has yet to pass on.
fn add_whole(
    state: &State,
    workers: f32,
    estimates: &dyn Fn(&str) -> bool,
    sums: &mut BTreeMap<String, Vec<f32>>,
) {
    for (text, values) in state.floats_under("") {
        let Some(key) = ArrayKey::read(text).filter(|key| key.kind != "kept") else {
            continue;
        };
        let weight = match (key.owner == REDUCE, estimates(key.name)) {
            (false, _) => 1.0,
            (true, false) => workers,
            (true, true) => -workers,
        };
        let sum = sums.entry(format!("{PUSH}{}/{}", key.kind, key.name)).or_default();
        let start = key.range.map_or(0, |range| range.start);
        if sum.len() < start + values.len() {
            sum.resize(start + values.len(), 0.0);
        }
        for (sum, value) in sum[start..].iter_mut().zip(values) {
            *sum += weight * value;
        }
    }
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
    fn the_mean_of_what_is_to_be_sent_stays() {
        let old: Vec<State> = [[1.0, 2.0], [3.0, -4.0], [5.0, 6.0]]
            .iter()
            .map(|values| state(&[("push/residual/w", values), ("push/kept/w", &[values[0]])]))
            .collect();
        for workers in 1..6 {
            let new: Vec<State> = (0..workers).map(|rank| reshard(&old, rank, workers)).collect();
            let mut mean = [0.0; 2];
            for state in &new {
                for (mean, value) in
                    mean.iter_mut().zip(state.floats("push/residual/w").unwrap_or(&[0.0; 2]))
                {
                    *mean += value / workers as f32;
                }
            }
            assert!((mean[0] - 3.0).abs() < 1e-6 && (mean[1] - 4.0 / 3.0).abs() < 1e-6, "{mean:?}");
            assert_eq!(
                new[workers - 1].floats("push/kept/w").unwrap()[0],
                [1.0, 3.0, 5.0][(workers - 1) % 3]
            );
        }
    }

    #[test]
    fn velocities_are_redistributed_as_residuals_are() {
        let old = [[1.0, 2.0], [3.0, 4.0]].map(|values| state(&[("push/velocity/w", &values)]));
        let velocity = |rank, workers| {
            reshard(&old, rank, workers).floats("push/velocity/w").map(<[f32]>::to_vec).ok()
        };
        assert_eq!(velocity(0, 1), Some(vec![2.0, 3.0]));
        let four = [Some(vec![2.0, 4.0]), Some(vec![6.0, 8.0]), None, None];
        assert_eq!([0, 1, 2, 3].map(|rank| velocity(rank, 4)), four);
    }

    #[test]
    fn slices_are_put_together_with_the_owners_share_for_all() {
        let old = [
            state(&[
                ("push/residual/w[0..2]", &[1.0, 2.0]),
                ("push/residual/w[2..3]", &[3.0]),
                ("reduce/residual/w[0..2]", &[10.0, 20.0]),
            ]),
            state(&[
                ("push/residual/w[0..2]", &[5.0, 6.0]),
                ("push/residual/w[2..3]", &[7.0]),
                ("reduce/residual/w[2..3]", &[30.0]),
            ]),
        ];
        // For each element: the mean of both ranks' residuals, and the owner's.
        let one = reshard(&old, 0, 1);
        assert_eq!(one.floats("push/residual/w").unwrap(), [3.0 + 10.0, 4.0 + 20.0, 5.0 + 30.0]);
        assert_eq!(one.floats_under("").count(), 1);
        let sliced = split(&one, ["w[0..1]", "w[1..3]", "v"].into_iter());
        assert_eq!(sliced.floats("push/residual/w[1..3]").unwrap(), [24.0, 35.0]);
        assert_eq!(sliced.floats_under("").count(), 2);
        // The part of one rank of a node.
        let mut own = split(&one, ["w[1..3]", "w[3..3]"].into_iter());
        own.set_number("rank", 0);
        own.set_setting("push/spec/v", "none");
        keep(&mut own, |name| name == "w[1..3]");
        assert_eq!(own.floats("push/residual/w[1..3]").unwrap(), [24.0, 35.0]);
        assert!(own.floats_under("").count() == 1 && own.settings_under("").next().is_none());
        assert!(own.number("rank").is_ok());
    }
}
