//! Scatter-reduce: every rank averages one slice of the model, and compresses the average for all.
//!
//! The tensors, one behind the other, are cut in `n` runs of equal length; what a cut leaves of a
//! tensor is a tensor of its own, `name[a..b]`, to which residuals and random draws belong. Every
//! rank compresses each owner's slices for that owner; the owner decodes and averages them,
//! compresses the averages again, with a second residual, and sends them to all. Two phases; with
//! messages of `b` bytes in all, a rank sends and receives about `2·b·(n − 1)/n` bytes. The owner
//! too goes on with what it sent, not with its exact mean. A rank that does not take part in a round sends
//! its average all the same, but nothing of its own.

use std::ops::Range;

use gradwire::{State, Tensor};

use crate::codec::{Phases, Sender};
use crate::distributed_optimizer::{timed, worked};
use crate::policy::Route;
use crate::rows::Rows;
use crate::{
    Average, Ends, ExchangeError, GroupConfig, Operation, Phase, Round, StepReport, Transport,
    fused, state_keys,
};

/// Averages by scatter-reduce; see the [module](self).
pub struct ScatterReduce {
    slices: Vec<Slice>,
    /// Of the first stage.
    ends: Ends,
    /// Of an owner's averages.
    second: Sender,
    /// Messages for each owner.
    outbox: Vec<Vec<u8>>,
    /// Of each rank, its messages for this owner.
    inbox: Vec<Vec<u8>>,
    /// Of each owner, its averages.
    gathered: Vec<Vec<u8>>,
    cursors: Vec<usize>,
    mean: Vec<f32>,
    /// What ranks' messages for a slice decode to, where its compressor combines them.
    rows: Rows,
}

/// A tensor, or the part of one between two cuts.
#[derive(Debug, Clone)]
struct Slice {
    whole: usize,
    range: Range<usize>,
    tensor: Tensor,
    route: Route,
    owner: usize,
}

impl ScatterReduce {
    /// The same for a part of a model: every tensor is cut by itself, so that its slices, and what is
    /// kept for them, are the same whichever tensors it is averaged with.
    pub fn by_tensor(setup: &GroupConfig<'_>, rank: usize) -> Self {
        Self::of_slices(cut_each(setup.tensors, setup.workers), setup, rank)
    }

    fn of_slices(mut slices: Vec<Slice>, setup: &GroupConfig<'_>, rank: usize) -> Self {
        let (phases, n) = (Phases::of_pushes(setup.policy), setup.workers);
        for slice in &mut slices {
            slice.route = setup.policy.route(&setup.tensors[slice.whole]);
        }
        Self {
            slices,
            ends: Ends::new(setup, rank),
            // Another rank in the draws: both stages of an owner see the same tensor and step.
            second: Sender::again(phases, setup, n + rank),
            outbox: vec![Vec::new(); n],
            inbox: vec![Vec::new(); n],
            gathered: vec![Vec::new(); n],
            cursors: vec![0; n],
            mean: Vec::new(),
            rows: Rows::default(),
        }
    }
}

impl Average for ScatterReduce {
    fn new(setup: &GroupConfig<'_>, rank: usize) -> Self {
        Self::of_slices(cut(setup.tensors, setup.workers), setup, rank)
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let rank = transport.rank();
        self.ends.begin(round.step);
        worked(&mut report.compress, || self.encode(rank, round, values))?;
        timed(&mut report.wire, || self.scatter(transport, round.step))?;
        self.reduce(rank, round.step, report)?;
        let gather = Operation::whole(Phase::Gather, round.step);
        timed(&mut report.wire, || transport.all_gather_v(gather, &mut self.gathered))?;
        values.fill(0.0);
        worked(&mut report.decompress, || self.decode(round, values))
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ends_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }

    fn checkpoint(&mut self) {
        self.ends.sender.checkpoint();
        self.second.checkpoint();
    }

    fn rollback(&mut self) {
        self.ends.sender.rollback();
        self.second.rollback();
    }

    fn observe(&mut self, _: &[Tensor], squares: &[Vec<f32>]) -> Result<(), ExchangeError> {
        for slice in &self.slices {
            let squares = &squares[slice.whole][slice.range.clone()];
            self.ends.sender.observe(&slice.tensor, slice.route, squares)?;
        }
        Ok(())
    }

    fn residual(&self, _: &Tensor, index: usize, show: &mut dyn FnMut(&[f32])) {
        let slices = self.slices.iter().filter(|slice| slice.whole == index);
        slices.filter_map(|slice| self.ends.sender.residual(&slice.tensor)).for_each(show);
    }

    fn save(&self, state: &mut State) {
        self.ends.save(state);
        self.second.save("reduce/", state);
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        let slices = self.slices.iter().map(|slice| slice.tensor.name());
        let state = state_keys::split(state, slices);
        self.ends.restore(&state)?;
        // Another strategy has saved it: what owners had left is in the first residuals.
        if state.settings_under("reduce/").next().is_none() {
            return Ok(());
        }
        Ok(self.second.restore("reduce/", &state)?)
    }
}

impl ScatterReduce {
    fn encode(
        &mut self,
        rank: usize,
        round: Round<'_>,
        values: &[f32],
    ) -> Result<(), ExchangeError> {
        self.outbox.iter_mut().for_each(Vec::clear);
        if self.ends.parts[rank] == 0.0 {
            return Ok(());
        }
        for slice in &self.slices {
            let values = &values[round.ranges[slice.whole].clone()][slice.range.clone()];
            self.ends.sender.encode(
                &slice.tensor,
                slice.route,
                round.step,
                values,
                &mut self.ends.message,
            )?;
            self.ends.carried.note(
                slice.whole,
                slice.range.start,
                &self.ends.sender,
                &self.ends.message,
            );
            fused::append(&self.ends.message, &mut self.outbox[slice.owner]);
        }
        Ok(())
    }

    fn scatter(&mut self, transport: &mut dyn Transport, step: u64) -> Result<(), ExchangeError> {
        let operation = Operation::whole(Phase::Scatter, step);
        let (rank, size) = (transport.rank(), transport.size());
        for to in (rank + 1..size).chain(0..rank) {
            transport.send(to, operation, &self.outbox[to])?;
        }
        self.inbox[rank].clone_from(&self.outbox[rank]);
        for from in (0..size).filter(|&from| from != rank) {
            transport.recv(from, operation, &mut self.inbox[from])?;
        }
        Ok(())
    }

    /// Averages this rank's slices and compresses the averages.
    fn reduce(
        &mut self,
        rank: usize,
        step: u64,
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        self.cursors.fill(0);
        self.gathered[rank].clear();
        for slice in self.slices.iter().filter(|slice| slice.owner == rank) {
            let Slice { tensor, route, .. } = slice;
            let operation = Operation::tensor(Phase::Scatter, slice.whole, tensor.name(), step);
            self.mean.clear();
            self.mean.resize(tensor.elements(), 0.0);
            self.rows.clear();
            worked(&mut report.decompress, || {
                for (from, (fused, &weight)) in self.inbox.iter().zip(&self.ends.parts).enumerate()
                {
                    if weight == 0.0 {
                        continue;
                    }
                    let message = fused::next(from, fused, &mut self.cursors[from], operation)?;
                    let into = (&mut self.rows, &mut self.mean[..]);
                    self.ends.receiver.gather(
                        (tensor, *route),
                        (step, from),
                        message,
                        weight,
                        into,
                    )?;
                }
                self.ends.receiver.aggregate(*route, &mut self.rows, &mut self.mean);
                Ok::<(), ExchangeError>(())
            })?;
            worked(&mut report.compress, || {
                self.second.encode(tensor, *route, step, &self.mean, &mut self.ends.message)
            })?;
            fused::append(&self.ends.message, &mut self.gathered[rank]);
        }
        let operation = Operation::whole(Phase::Scatter, step);
        for (from, (fused, &at)) in self.inbox.iter().zip(&self.cursors).enumerate() {
            fused::finish(from, fused, at, operation)?;
        }
        Ok(())
    }

    /// Puts every tensor together from the owners' averages.
    fn decode(&mut self, round: Round<'_>, means: &mut [f32]) -> Result<(), ExchangeError> {
        let n = self.gathered.len();
        self.cursors.fill(0);
        for slice in &self.slices {
            let Slice { tensor, route, owner, range, whole } = slice;
            let operation = Operation::tensor(Phase::Gather, *whole, tensor.name(), round.step);
            let cursor = &mut self.cursors[*owner];
            let message = fused::next(*owner, &self.gathered[*owner], cursor, operation)?;
            let out = &mut means[round.ranges[*whole].clone()][range.clone()];
            self.ends.receiver.decode_add(
                tensor,
                *route,
                (round.step, n + owner),
                message,
                1.0,
                out,
            )?;
        }
        let operation = Operation::whole(Phase::Gather, round.step);
        for (owner, (fused, &at)) in self.gathered.iter().zip(&self.cursors).enumerate() {
            fused::finish(owner, fused, at, operation)?;
        }
        Ok(())
    }
}

/// Cuts a model's elements in `parts` runs of equal length, in order; an empty tensor stays whole.
fn cut(tensors: &[Tensor], parts: usize) -> Vec<Slice> {
    let total: usize = tensors.iter().map(Tensor::elements).sum();
    let border = |part: usize| (total as u128 * part as u128 / parts as u128) as usize;
    let mut slices = Vec::new();
    let (mut owner, mut offset) = (0, 0);
    for (whole, tensor) in tensors.iter().enumerate() {
        let mut start = 0;
        loop {
            while owner + 1 < parts && border(owner + 1) <= offset + start {
                owner += 1;
            }
            let end = tensor.elements().min(border(owner + 1) - offset);
            slices.push(Slice::of(tensor, whole, start..end, owner));
            start = end;
            if start == tensor.elements() {
                break;
            }
        }
        offset += tensor.elements();
    }
    slices
}

/// Elements that a slice of a tensor has at least, where tensors are cut by themselves.
const SLICE: usize = 4096;

/// Cuts each tensor in `parts` slices of equal length, one for each owner; small ones stay whole, and their
/// names choose the owner.
fn cut_each(tensors: &[Tensor], parts: usize) -> Vec<Slice> {
    let mut slices = Vec::new();
    for (whole, tensor) in tensors.iter().enumerate() {
        let elements = tensor.elements();
        if elements < parts * SLICE {
            let owner = (tensor.id() % parts as u64) as usize;
            slices.push(Slice::of(tensor, whole, 0..elements, owner));
            continue;
        }
        let border = |part: usize| (elements as u128 * part as u128 / parts as u128) as usize;
        for owner in 0..parts {
            slices.push(Slice::of(tensor, whole, border(owner)..border(owner + 1), owner));
        }
    }
    slices
}

impl Slice {
    fn of(tensor: &Tensor, whole: usize, range: Range<usize>, owner: usize) -> Self {
        let Range { start, end } = range;
        let sliced = if end - start == tensor.elements() {
            tensor.clone()
        } else {
            // As many dimensions as the whole, which tell some compressors the kind of its layer.
            let mut shape = vec![1; tensor.shape().len()];
            shape[0] = end - start;
            Tensor::new(state_keys::slice_name(tensor.name(), &range), &shape)
        };
        Self { whole, range, tensor: sliced, route: Route::Push, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_cut_by_themselves_whatever_they_travel_with() {
        let tensors = [Tensor::new("big", &[100, 100]), Tensor::new("small", &[100])];
        let names = |tensors: &[Tensor]| -> Vec<_> {
            let slices = cut_each(tensors, 2);
            slices.iter().map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
        };
        let owner = (tensors[1].id() % 2) as usize;
        let big = named(&[("big[0..5000]", 0), ("big[5000..10000]", 1)]);
        assert_eq!(names(&tensors[..1]), big);
        assert_eq!(names(&tensors), [&big[..], &named(&[("small", owner)])].concat());
    }

    fn cuts(sizes: &[usize], parts: usize) -> Vec<(String, usize)> {
        let tensors: Vec<_> = sizes
            .iter()
            .enumerate()
            .map(|(at, &size)| Tensor::new(format!("t{at}"), &[size]))
            .collect();
        let slices = cut(&tensors, parts);
        slices.iter().map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
    }

    fn named(slices: &[(&str, usize)]) -> Vec<(String, usize)> {
        slices.iter().map(|&(name, owner)| (name.to_owned(), owner)).collect()
    }

    #[test]
    fn slices_are_equal_runs_of_the_whole_model() {
        assert_eq!(cuts(&[4, 2], 1), named(&[("t0", 0), ("t1", 0)]));
        assert_eq!(cuts(&[4, 2], 2), named(&[("t0[0..3]", 0), ("t0[3..4]", 1), ("t1", 1)]));
        assert_eq!(
            cuts(&[0, 5, 0, 1], 3),
            named(&[
                ("t0", 0),
                ("t1[0..2]", 0),
                ("t1[2..4]", 1),
                ("t1[4..5]", 2),
                ("t2", 2),
                ("t3", 2)
            ])
        );
        // Fewer elements than ranks: some own nothing.
        assert_eq!(cuts(&[2], 4), named(&[("t0[0..1]", 1), ("t0[1..2]", 3)]));
        assert_eq!(cuts(&[0, 0], 2), named(&[("t0", 1), ("t1", 1)]));
    }
}
