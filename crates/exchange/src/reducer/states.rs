//! Saving and restoring the state of a reducer.

use std::collections::{BTreeMap, HashSet};

use gradwire::{State, StateError};

use super::Reducer;
use super::columns::{Restored, mark, of_column};
use crate::error::refuse;
use crate::state::{PUSH, check_arrays, keep, reshard, split, take_kept};
use crate::transport::{PART, parts};
use crate::{Exchange, ExchangeError, Result};

impl Reducer {
    /// Adds the state of all tensors to `state`.
    pub(crate) fn save_into(&self, state: &mut State) {
        self.codecs.save(PUSH, state);
    }

    /// Restores the state that a rank of the same exchange saved.
    ///
    /// # Errors
    /// `State` for the state of another configuration.
    pub(crate) fn restore_from(&mut self, state: &State) -> Result<()> {
        // A state of whole tensors is cut into this exchange's slices.
        let mut split = split(state, self.codecs.names());
        if self.column.is_some() {
            // The state of another column, or of a whole node, names compressors of other parts.
            let own: HashSet<&str> = self.codecs.names().collect();
            keep(&mut split, |name| own.contains(name));
        }
        self.codecs.restore(PUSH, &split)?;
        self.step = None;
        Ok(())
    }

    /// The state of this rank, for a resumed run.
    pub fn save(&self) -> State {
        let mut state = State::new();
        self.save_into(&mut state);
        state.set_setting("exchange", self.exchange.to_string());
        state.set_number("workers", self.transport.size() as u64);
        state.set_number("rank", self.transport.rank() as u64);
        mark(&mut state, self.column);
        state
    }

    /// The states that all ranks [save](Self::save), in rank order, on every rank. All ranks call
    /// it at the same time.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn save_all(&mut self) -> Result<Vec<State>> {
        self.alive()?;
        let saved = self.save().to_bytes().map_err(ExchangeError::from);
        // A rank that fails here must not leave the others waiting.
        let own = self.or_abort(saved)?;
        let all = self.gather_in_parts(&own, PART)?;
        let states = all.iter().map(|bytes| Ok(State::from_bytes(bytes)?)).collect();
        self.or_abort(states)
    }

    /// Returns the bytes of all ranks, which may be more than a message holds: they are sent in
    /// [`parts`] of `most` bytes.
    fn gather_in_parts(&mut self, own: &[u8], most: usize) -> Result<Vec<Vec<u8>>> {
        // Ranks may be at different steps: a rank that has restored a state has none.
        let step = 0;
        let mut own = parts(own, most);
        let mut all = vec![Vec::new(); self.transport.size()];
        loop {
            let gathered = self.gather(step, own.next().unwrap_or_default().to_vec())?;
            for (bytes, part) in all.iter_mut().zip(&gathered) {
                bytes.extend_from_slice(part);
            }
            // The last part of each rank is shorter; after it the rank sends empty ones.
            if gathered.iter().all(|part| part.len() < most) {
                return Ok(all);
            }
        }
    }

    /// Restores the state of an earlier run, given this rank's own state, or the states of all
    /// ranks. With another number of ranks, or another exchange, all states are needed, and
    /// [`reshard`](crate::reshard) describes the result. If nothing is kept, as with compressors
    /// without error feedback, the state of any rank is enough.
    ///
    /// A reducer of a [`Column`](crate::Column) needs the states of its column, or, with another
    /// number of columns, those of all ranks.
    ///
    /// # Errors
    /// `State` if states are missing or of another model or configuration; nothing has changed
    /// then.
    pub fn restore(&mut self, states: Vec<State>) -> Result<()> {
        self.alive()?;
        let Restored { states, joined } = of_column(states, self.column)?;
        let (ranks, states) = by_rank(states)?;
        let first = states.first().ok_or_else(|| ExchangeError::config("there is no state"))?;
        let workers = first.number("workers")? as usize;
        if workers == 0 {
            return Err(ExchangeError::from(StateError::Damaged(
                "it says that no ranks saved it".to_owned(),
            )));
        }
        states.iter().try_for_each(|state| check_arrays(state, "", &self.config.tensors))?;
        let saved = first.setting("exchange")?.to_owned();
        // The exchange of the step at which the state was saved.
        let of_state = self.exchanges().find(|exchange| exchange.to_string() == saved);
        let other = of_state.filter(|exchange| *exchange != self.exchange);
        let changed = other.map(|exchange| self.change(exchange)).transpose()?;
        let restored = self.restore_saved(&ranks, states, joined);
        if let (Err(_), Some(before)) = (&restored, changed) {
            self.put_back(before);
        }
        restored
    }

    /// Restores checked states of `workers` ranks.
    fn restore_saved(&mut self, ranks: &[u64], mut states: Vec<State>, joined: bool) -> Result<()> {
        let first = &states[0];
        let workers = first.number("workers")? as usize;
        let (rank, size) = (self.transport.rank(), self.transport.size());
        let exchange = self.exchange.to_string();
        let same = !joined && workers == size && first.setting("exchange")? == exchange;
        let own = ranks.binary_search(&(rank as u64)).ok().filter(|_| same);
        let complete = ranks.iter().take(workers).copied().eq(0..workers as u64);
        // Ranks that keep nothing have the same state.
        let alike = states.iter().all(|state| state.floats_under("").next().is_none());
        let state = match own {
            Some(at) => states.swap_remove(at),
            None if complete || alike => self.reshard(&states[..workers.min(states.len())]),
            None => return self.refuse_incomplete(first, ranks),
        };
        self.restore_from(&state)
    }

    /// Says which states are missing.
    fn refuse_incomplete(&self, first: &State, ranks: &[u64]) -> Result<()> {
        // Another compressor often comes with another exchange, and the remedy for the exchange
        // would not help.
        self.codecs.check_specs(first)?;
        let (rank, size) = (self.transport.rank(), self.transport.size());
        let (workers, saved) = (first.number("workers")? as usize, first.setting("exchange")?);
        let came = ranks.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
        let came = format!("of rank{} {came}", if ranks.len() == 1 { "" } else { "s" });
        let exchange = self.exchange.to_string();
        if workers == size && saved == exchange {
            return refuse(format!(
                "the state is {came}, but rank {rank} needs its own state: save one file for each rank, or the states \
                 of all ranks in one (in Python with state_dict(all_ranks=True))"
            ));
        }
        let remedy = if workers == size { ", or use the exchange of the state" } else { "" };
        refuse(format!(
            "{workers} ranks saved the state with '{saved}', and rank {rank} of {size} restores \
             it with '{exchange}', which needs the states of all {workers} ranks, but only the \
             state {came} was given; give all states{remedy}"
        ))
    }

    /// This rank's state, made from the states of all ranks of an earlier run.
    fn reshard(&self, states: &[State]) -> State {
        let (rank, size) = (self.transport.rank(), self.transport.size());
        let mut state = reshard(states, rank, size);
        take_kept(&mut state, &states[0], |name| {
            self.by_name.get(name).is_some_and(|&index| self.codecs.may_have_rounds(index))
        });
        state
    }

    /// Restores the state that this worker saved as a rank of another group, of any size: survivors
    /// of a lost rank keep their residuals. Only for all-gather: there, a rank's state is its own
    /// and covers whole tensors.
    ///
    /// # Errors
    /// `Config` for another exchange, or for `ef=ef21`; `State` for the state of another model or
    /// configuration. Nothing has changed then.
    pub fn adopt(&mut self, state: &State) -> Result<()> {
        self.alive()?;
        let saved = state.setting("exchange")?;
        for exchange in self.exchanges().map(|own| own.to_string()).chain([saved.to_owned()]) {
            if exchange != Exchange::AllGather.to_string() {
                return refuse(format!(
                    "with '{exchange}', a rank's state depends on the other ranks of its group; use all-gather"
                ));
            }
        }
        if let Some(spec) = self.config.policy.pushes().find(|spec| spec.sends_changes()) {
            return refuse(format!(
                "'{spec}' sends changes, and their sum contains the changes of ranks that are gone; use ef=on"
            ));
        }
        check_arrays(state, "", &self.config.tensors)?;
        self.restore_from(state)
    }
}

/// The ranks that saved these states, in order, with the state of each.
fn by_rank(given: Vec<State>) -> Result<(Vec<u64>, Vec<State>)> {
    let (count, mut ranks) = (given.len(), BTreeMap::new());
    for state in given {
        let rank = state.number("rank")?;
        if ranks.insert(rank, state).is_some() {
            return refuse(format!(
                "there are {count} states, two of them of rank {rank}, because several groups of ranks saved \
                 them; give the state that this rank saved, or the states of one group"
            ));
        }
    }
    Ok(ranks.into_iter().unzip())
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::thread;

    use gradwire::{Kept, Spec, Tensor};

    use super::*;
    use crate::{Column, KeptArray, KeptFor, OnNonFinite, Policy, ReducerConfig, in_process};

    fn reducer(transport: in_process::InProcess) -> Reducer {
        with_tensor(Tensor::new("t", &[1000]), transport)
    }

    /// Rank `rank` of `size`, whose other ranks are gone.
    fn reducer_of(tensor: Tensor, rank: usize, size: usize) -> Reducer {
        let transports = in_process::connect(size, in_process::Options::default());
        with_tensor(tensor, transports.into_iter().nth(rank).unwrap())
    }

    fn with_tensor(tensor: Tensor, transport: in_process::InProcess) -> Reducer {
        let config = ReducerConfig {
            exchange: Exchange::AllGather,
            policy: Policy::new("topk:ratio=0.1".parse::<Spec>().unwrap()),
            tensors: vec![tensor],
            seed: 0,
            on_non_finite: OnNonFinite::Refuse,
        };
        Reducer::new(Box::new(transport), config).unwrap()
    }

    #[test]
    fn long_states_are_sent_in_parts() {
        let states = [vec![], vec![1; 10], (0..30).collect()];
        let transports = in_process::connect(3, in_process::Options::default());
        thread::scope(|scope| {
            let gather = |(own, transport)| {
                let states = &states;
                let own: &Vec<u8> = own;
                scope.spawn(move || {
                    let found = reducer(transport).gather_in_parts(own, 10).unwrap();
                    assert_eq!(found, states);
                })
            };
            states.iter().zip(transports).map(gather).for_each(drop);
        });
    }

    #[test]
    fn two_states_of_a_rank_are_refused() {
        let transport = in_process::connect(1, in_process::Options::default()).remove(0);
        let mut reducer = reducer(transport);
        let state = reducer.save();
        let error = reducer.restore(vec![state.clone(), state]).unwrap_err().to_string();
        assert!(error.contains("two of them of rank 0"), "{error}");
    }

    fn residual_of(name: &str) -> KeptArray<'_> {
        KeptArray { name, kind: Kept::Residual, of: KeptFor::Gradients }
    }

    #[test]
    fn parts_move_to_reducers_with_other_parts() {
        let whole = Tensor::new("t", &[20, 60]);
        let part = |rows: &Range<usize>| whole.part(60 * rows.start, &[rows.len(), 60]);
        let reducer = |rows: &Range<usize>, place: [usize; 2], rank: usize, sites: usize| {
            let [number, columns] = place;
            reducer_of(part(rows), rank, sites).of_column(Column { number, columns })
        };
        let restored = |rows: Range<usize>, place, rank, sites, states: &[State]| {
            let mut reducer = reducer(&rows, place, rank, sites);
            reducer.restore(states.to_vec()).map(|()| reducer)
        };
        // Of two sites, each with 13 and 7 rows.
        let mut states = Vec::new();
        for (rank, rows, number) in [(0, 0..13, 0), (0, 13..20, 1), (1, 0..13, 0), (1, 13..20, 1)] {
            let mut saving = reducer(&rows, [number, 2], rank, 2);
            let values = (60 * rows.start..60 * rows.end).map(|at| (at + 5000 * rank) as f32);
            let array = Some(values.collect());
            saving.set_array(residual_of(part(&rows).name()), array).unwrap();
            states.push(saving.save());
        }
        let values =
            |reducer: &Reducer, name: &str| reducer.array(residual_of(name)).map(<[f32]>::to_vec);
        let expected =
            |range: Range<usize>, of: fn(usize) -> f32| Some(range.map(of).collect::<Vec<_>>());
        // The same rows, on the same and on another number of sites.
        let same = restored(0..13, [0, 2], 1, 2, &states[2..3]).unwrap();
        assert_eq!(values(&same, "t[0..780]"), expected(0..780, |at| (at + 5000) as f32));
        let fewer = restored(13..20, [1, 2], 0, 1, &states).unwrap();
        assert_eq!(values(&fewer, "t[780..1200]"), expected(780..1200, |at| (at + 2500) as f32));
        // Other rows; none, and all.
        let other = restored(5..15, [1, 3], 1, 2, &states).unwrap();
        assert_eq!(values(&other, "t[300..900]"), expected(300..900, |at| (at + 5000) as f32));
        let none = restored(20..20, [2, 3], 1, 2, &states).unwrap();
        assert!(values(&none, "t[1200..1200]").is_none_or(|values| values.is_empty()));
        let all = restored(0..20, [0, 1], 0, 1, &states).unwrap();
        assert_eq!(values(&all, "t"), expected(0..1200, |at| (at + 2500) as f32));
        let twice = [states[0].clone(), states[0].clone()];
        let error = restored(0..13, [0, 2], 0, 2, &twice).unwrap_err().to_string();
        assert!(error.contains("two of them"), "{error}");
    }

    #[test]
    fn crafted_states_are_refused_before_memory_is_taken() {
        let transport = in_process::connect(1, in_process::Options::default()).remove(0);
        let mut reducer = reducer(transport);
        let of = |workers: u64, key: &str, values: Vec<f32>| {
            let mut state = State::new();
            state.set_setting("exchange", "scatter-reduce");
            state.set_number("workers", workers);
            state.set_number("rank", 0);
            state.set_floats(key, values);
            state
        };
        let error = reducer.restore(vec![of(0, "push/residual/t", vec![0.0; 1000])]).unwrap_err();
        assert!(error.to_string().contains("no ranks saved it"), "{error}");
        // From another exchange, so slices are put together: one begins far beyond the tensor.
        for range in ["4000000000000..4000000000000", "4000000000000..0"] {
            let far = format!("push/residual/t[{range}]");
            assert!(reducer.restore(vec![of(1, &far, vec![])]).is_err(), "{range}");
        }
    }
}
