//! The states of reducers that share a model: every rank of a node or a site averages its own parts
//! of the tensors with the ranks that have the same parts on other nodes or sites.

use std::collections::BTreeSet;

use gradwire::{State, StateError};

use crate::error::refuse;
use crate::{ExchangeError, Result};

/// The place of a reducer among those that share a model, because the ranks of a node, or of a site
/// with a sharded replica, divide it among themselves. The ranks of the reducer are nodes or sites.
///
/// The reducer has a tensor for each tensor of the model: its [part](gradwire::Tensor::part), which
/// may have no elements, or all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// The number of this rank among the ranks of its node or site.
    pub number: usize,
    /// The number of ranks of a node or site.
    pub columns: usize,
}

const NUMBER: &str = "column";
const COLUMNS: &str = "columns";

/// The states of earlier reducers, in the form that a reducer restores.
#[derive(Debug)]
pub(super) struct Restored {
    pub(super) states: Vec<State>,
    /// Whether they are states of whole nodes, which must be cut into the parts of a column.
    pub(super) joined: bool,
}

/// Adds the place of a column to the state of its reducer.
pub(super) fn mark(state: &mut State, column: Option<Column>) {
    if let Some(column) = column {
        state.set_number(NUMBER, column.number as u64);
        state.set_number(COLUMNS, column.columns as u64);
    }
}

/// The states of a reducer's own column. If the states were saved with another number of ranks a
/// node, the states of whole nodes.
///
/// # Errors
/// `Config` if states of some columns are missing; `State` for states of different numbers of
/// columns.
pub(super) fn of_column(states: Vec<State>, own: Option<Column>) -> Result<Restored> {
    let kept_nothing = states.iter().all(|state| state.floats_under("").next().is_none());
    if kept_nothing && states.iter().any(|state| state.number(COLUMNS).is_ok()) {
        return Ok(Restored { states: of_any_column(states), joined: false });
    }
    let place = own.map_or((0, 1), |column| (column.number as u64, column.columns as u64));
    let places: Vec<_> = states.iter().map(place_of).collect::<Result<_>>()?;
    let Some(&(_, columns)) = places.first() else {
        return Ok(Restored { states, joined: false });
    };
    if places.iter().any(|&(_, other)| other != columns) {
        let what = "its nodes or sites had different numbers of ranks".to_owned();
        return Err(ExchangeError::from(StateError::Damaged(what)));
    }
    if columns != place.1 {
        return Ok(Restored { states: join(states, columns)?, joined: true });
    }
    let pairs = places.into_iter().zip(states);
    let states: Vec<_> =
        pairs.filter(|&(found, _)| found == place).map(|(_, state)| state).collect();
    if states.is_empty() {
        return refuse(format!(
            "the state is not of rank {} of a node or site, which needs its own state: save one file for each rank, or the \
             states of all ranks in one (in Python with state_dict(all_ranks=True))",
            place.0
        ));
    }
    Ok(Restored { states, joined: false })
}

/// One state of each rank, without its column, given states that keep nothing. The states of all
/// columns are then alike.
fn of_any_column(states: Vec<State>) -> Vec<State> {
    let mut ranks = BTreeSet::new();
    let mut first = |state: &State| ranks.insert(state.number("rank").ok());
    let mut states: Vec<_> = states.into_iter().filter(|state| first(state)).collect();
    for state in &mut states {
        state.retain(|key| key != NUMBER && key != COLUMNS);
    }
    states
}

/// The column that saved a state, and the number of columns.
fn place_of(state: &State) -> Result<(u64, u64)> {
    let (Ok(number), Ok(columns)) = (state.number(NUMBER), state.number(COLUMNS)) else {
        return Ok((0, 1));
    };
    if number < columns {
        return Ok((number, columns));
    }
    let what = format!("it says that rank {number} of {columns} of a node or site saved it");
    Err(ExchangeError::from(StateError::Damaged(what)))
}

/// The states of nodes, each from the states of all its columns.
fn join(states: Vec<State>, columns: u64) -> Result<Vec<State>> {
    let mut nodes: Vec<(u64, Vec<u64>, State)> = Vec::new();
    for state in states {
        if state.floats_under("push/sum/").next().is_some() {
            return refuse(
                "states of compressors with ef=ef21 continue only with the same number of ranks a node or site; use it, or ef=on",
            );
        }
        let (node, (number, _)) = (state.number("rank")?, place_of(&state)?);
        match nodes.iter_mut().find(|(other, _, _)| *other == node) {
            Some((_, found, joined)) => {
                found.push(number);
                joined.merge("", state);
            }
            None => nodes.push((node, vec![number], state)),
        }
    }
    for (node, found, joined) in &mut nodes {
        found.sort_unstable();
        if !found.iter().copied().eq(0..columns) {
            let numbers = found.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
            return refuse(format!(
                "the state was saved with {columns} ranks a node or site, and another number needs the states of all of them, but \
                 of node or site {node} there are only those of its ranks {numbers}; give the states of all ranks"
            ));
        }
        joined.retain(|key| key != NUMBER && key != COLUMNS);
    }
    Ok(nodes.into_iter().map(|(_, _, state)| state).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(node: u64, place: Option<(u64, u64)>, key: &str, values: &[f32]) -> State {
        let mut state = State::new();
        state.set_number("rank", node);
        if let Some((number, columns)) = place {
            state.set_number(NUMBER, number);
            state.set_number(COLUMNS, columns);
        }
        state.set_floats(key, values.to_vec());
        state
    }

    fn column(number: usize, columns: usize) -> Column {
        Column { number, columns }
    }

    fn of_two_nodes() -> Vec<State> {
        let state = |node, number, key| saved(node, Some((number, 2)), key, &[node as f32; 3]);
        let (first, second) = ("push/residual/w[0..3]", "push/residual/w[3..6]");
        vec![state(0, 0, first), state(0, 1, second), state(1, 0, first), state(1, 1, second)]
    }

    #[test]
    fn a_column_takes_its_own_states() {
        let found = of_column(of_two_nodes(), Some(column(1, 2))).unwrap();
        let keys = |state: &State| -> Vec<String> {
            state.floats_under("").map(|(key, _)| key.to_owned()).collect()
        };
        let expected = vec![vec!["push/residual/w[3..6]".to_owned()]; 2];
        assert!(!found.joined && found.states.iter().map(keys).collect::<Vec<_>>() == expected);
        let other = vec![saved(0, Some((0, 2)), "push/residual/w[0..3]", &[1.0; 3])];
        let error = of_column(other, Some(column(1, 2))).unwrap_err().to_string();
        assert!(error.contains("not of rank 1 of a node"), "{error}");
    }

    #[test]
    fn a_state_that_keeps_nothing_is_enough_for_all_columns() {
        let mut state = State::new();
        state.set_number("rank", 0);
        state.set_number(NUMBER, 0);
        state.set_number(COLUMNS, 2);
        for own in [None, Some(column(1, 2)), Some(column(2, 3))] {
            let found = of_column(vec![state.clone(), state.clone()], own).unwrap();
            assert!(!found.joined && found.states.len() == 1);
        }
    }

    #[test]
    fn other_columns_get_the_states_of_whole_nodes() {
        for own in [None, Some(column(2, 3))] {
            let found = of_column(of_two_nodes(), own).unwrap();
            assert!(found.joined && found.states.len() == 2);
            for (state, node) in found.states.iter().zip([0.0, 1.0]) {
                for slice in ["w[0..3]", "w[3..6]"] {
                    let key = format!("push/residual/{slice}");
                    assert_eq!(state.floats(&key).unwrap(), [node; 3]);
                }
            }
        }
        // Without columns, every rank is a node.
        let flat = vec![saved(0, None, "push/residual/w", &[1.0; 6])];
        assert!(of_column(flat.clone(), Some(column(1, 2))).unwrap().joined);
        assert!(!of_column(flat, None).unwrap().joined);
    }

    #[test]
    fn incomplete_and_impossible_states_are_refused() {
        let mut some = of_two_nodes();
        some.pop();
        let error = of_column(some, None).unwrap_err().to_string();
        assert!(error.contains("site 1 there are only those of its ranks 0"), "{error}");
        let impossible = vec![saved(0, Some((2, 2)), "push/residual/w", &[1.0; 6])];
        assert!(of_column(impossible, None).is_err());
        let mixed = vec![
            saved(0, Some((0, 2)), "push/residual/w", &[]),
            saved(1, None, "push/residual/w", &[]),
        ];
        assert!(of_column(mixed, None).is_err());
        let estimate = vec![saved(0, Some((0, 2)), "push/sum/w[0..3]", &[1.0; 3])];
        assert!(of_column(estimate, None).unwrap_err().to_string().contains("ef21"));
    }
}
