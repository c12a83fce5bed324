//! What averages keep for tensors, by name: how it is moved, cut and put together, and handed on to
//! another number of ranks.
//!
//! An [`Average`](crate::Average) saves entries such as `push/residual/fc.weight`; `velocity` and `kept`
//! stand where `residual` does, rules put `rule0/` before them, and scatter-reduce has entries of slices,
//! `fc.weight[0..512]`, those of the second stage under `reduce/`.

use std::collections::{BTreeMap, HashSet};
use std::ops::Range;

use gradwire::State;

/// What is kept for a tensor or a slice of one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry<'a> {
    /// `push/`, `reduce/`, `push/rule0/`.
    pub(crate) owner: &'a str,
    /// `residual`, `velocity` or `kept`.
    pub(crate) kind: &'a str,
    /// The tensor.
    pub(crate) name: &'a str,
    /// The slice of it; `None` for all.
    pub(crate) range: Option<Range<usize>>,
}

impl Entry<'_> {
    fn is_all_of(&self, name: &str) -> bool {
        self.range.is_none() && self.name == name
    }

    /// Whether it is what a method keeps for a whole tensor that is pushed.
    fn is_kept_of_pushes(&self) -> bool {
        self.kind == "kept" && self.range.is_none() && self.owner.starts_with("push/")
    }
}

const KINDS: [&str; 3] = ["residual", "velocity", "kept"];

/// The name of a slice.
pub(crate) fn slice_name(name: &str, range: &Range<usize>) -> String {
    format!("{name}[{}..{}]", range.start, range.end)
}

/// Reads the name of a slice.
fn read_slice(text: &str) -> Option<(&str, Range<usize>)> {
    let (name, range) = text.strip_suffix(']')?.rsplit_once('[')?;
    let (start, end) = range.split_once("..")?;
    Some((name, start.parse().ok()?..end.parse().ok()?))
}

impl<'a> Entry<'a> {
    /// Reads an entry's name; `None` for what an average does not keep.
    pub(crate) fn read(text: &'a str) -> Option<Self> {
        if !text.starts_with("push/") && !text.starts_with("reduce/") {
            return None;
        }
        let at = |kind: &'static str| text.find(&format!("/{kind}/")).map(|at| (at, kind));
        let (at, kind) = KINDS.into_iter().filter_map(at).min()?;
        let (owner, name) = (&text[..=at], &text[at + kind.len() + 2..]);
        Some(match read_slice(name) {
            Some((name, range)) => Self { owner, kind, name, range: Some(range) },
            None => Self { owner, kind, name, range: None },
        })
    }
}

/// The part of a state that belongs to some tensors, and all its settings.
pub(crate) fn of_tensors(mut state: State, wanted: impl Fn(&str) -> bool) -> State {
    state.retain_floats(|text| Entry::read(text).is_some_and(|entry| wanted(entry.name)));
    state
}

/// Gives the slices named what the state has for the whole of their tensors; for other tensors and slices,
/// what it has.
pub(crate) fn split<'a>(state: &State, slices: impl Iterator<Item = &'a str>) -> State {
    let (mut split, mut cut) = (state.clone(), HashSet::new());
    for slice in slices {
        let Some((name, range)) = read_slice(slice) else { continue };
        cut.insert(name);
        for (text, values) in state.floats_under("") {
            if let Some(entry) = Entry::read(text).filter(|entry| entry.is_all_of(name))
                && let Some(part) = values.get(range.clone())
                && entry.kind != "kept"
            {
                split.set_floats(&format!("{}{}/{slice}", entry.owner, entry.kind), part.to_vec());
            }
        }
    }
    split.retain_floats(|text| {
        !Entry::read(text).is_some_and(|entry| entry.range.is_none() && cut.contains(entry.name))
    });
    split
}

/// What rank `rank` of a run with `workers` ranks starts from, given what all ranks of an earlier run
/// saved, in rank order.
///
/// The rule loses nothing that is still to be sent: the mean of the residuals over the ranks stays what it
/// was. Rank j takes over the residuals and velocities of the old ranks j, j + `workers`, j + 2·`workers` …,
/// added up and multiplied by `workers` / `states.len()`; where there are more ranks than before, the new
/// ones start with none. Slices of scatter-reduce are put together, and an owner's second residual, which
/// stands for all ranks, counts that many times. All else (statistics and factors that methods start from,
/// an optimizer's state, settings) is that of the old rank j modulo `states.len()`.
///
/// Holds for equal shares, and where every rank sends for itself: not in a hierarchy. With as many ranks and the same
/// strategy as before a rank's own state serves better: it is exact.
///
/// # Panics
/// If there are no states.
pub fn reshard(states: &[State], rank: usize, workers: usize) -> State {
    let mut shared = states[rank % states.len()].clone();
    shared.retain_floats(|text| Entry::read(text).is_none_or(|entry| entry.is_kept_of_pushes()));
    let mut sums = BTreeMap::new();
    for state in states.iter().skip(rank).step_by(workers) {
        add_whole(state, states.len() as f32, &mut sums);
    }
    let factor = workers as f32 / states.len() as f32;
    for (text, mut sum) in sums {
        sum.iter_mut().for_each(|value| *value *= factor);
        shared.set_floats(&text, sum);
    }
    shared
}

/// Takes what is kept for these tensors from one state: what methods in rounds start from must be the same on all
/// ranks, and under other exchanges each rank has its own.
pub(crate) fn take_kept(state: &mut State, from: &State, wanted: impl Fn(&str) -> bool) {
    for (text, values) in from.floats_under("") {
        let is_wanted = |entry: Entry<'_>| entry.is_kept_of_pushes() && wanted(entry.name);
        if Entry::read(text).is_some_and(is_wanted) {
            state.set_floats(text, values.to_vec());
        }
    }
}

/// Adds the residuals and velocities of a state to those of whole tensors.
fn add_whole(state: &State, workers: f32, sums: &mut BTreeMap<String, Vec<f32>>) {
    for (text, values) in state.floats_under("") {
        let Some(entry) = Entry::read(text).filter(|entry| entry.kind != "kept") else { continue };
        let (rest, weight) = match entry.owner.strip_prefix("reduce/") {
            Some(rest) => (rest, workers),
            None => (&entry.owner["push/".len()..], 1.0),
        };
        let sum = sums.entry(format!("push/{rest}{}/{}", entry.kind, entry.name)).or_default();
        let start = entry.range.map_or(0, |range| range.start);
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

    #[test]
    fn entries_are_read_with_their_rules_and_slices() {
        let read = |text| Entry::read(text).map(|e| (e.owner, e.kind, e.name, e.range));
        assert_eq!(read("push/residual/a.b"), Some(("push/", "residual", "a.b", None)));
        assert_eq!(
            read("reduce/rule2/velocity/w[3..10]"),
            Some(("reduce/rule2/", "velocity", "w", Some(3..10)))
        );
        // Names that look like something else.
        assert_eq!(read("push/kept/x/residual/y"), Some(("push/", "kept", "x/residual/y", None)));
        assert_eq!(read("push/kept/w[a..b]"), Some(("push/", "kept", "w[a..b]", None)));
        assert_eq!([read("optimizer/residual/x"), read("push/phase")], [None, None]);
    }

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
        // Of each element: the mean of both ranks' residuals, and the owner's.
        let one = reshard(&old, 0, 1);
        assert_eq!(one.floats("push/residual/w").unwrap(), [3.0 + 10.0, 4.0 + 20.0, 5.0 + 30.0]);
        assert_eq!(one.floats_under("").count(), 1);
        let sliced = split(&one, ["w[0..1]", "w[1..3]", "v"].into_iter());
        assert_eq!(sliced.floats("push/residual/w[1..3]").unwrap(), [24.0, 35.0]);
        assert_eq!(sliced.floats_under("").count(), 2);
    }
}
