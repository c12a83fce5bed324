//! Scatter-reduce: every rank averages one slice of the model, and compresses the average for all.
//!
//! The tensors are concatenated and cut into `n` runs of equal length. Where the model is averaged in groups, each
//! tensor is cut separately. A slice is encoded as a tensor called `name[a..b]`, with its own residuals and random
//! draws. Every rank compresses each slice for the owner of the slice. The owner decodes and averages them, compresses
//! the average again, with a second residual, and sends it to all. Two phases; with messages of `b` bytes in all, a
//! rank sends and receives about `2·b·(n − 1)/n` bytes. The owner, too, continues with the compressed average, not with
//! its exact mean. A rank that does not take part in a round sends no gradients, but still averages its slices.

use std::ops::Range;

use gradwire::{Floats, Input, Tensor};

use super::{Collective, Reduction, packed};
use crate::codecs::Codecs;
use crate::{ExchangeError, GroupConfig, Operation, Phase, Result, Transport, state_keys};

/// How tensors are cut into slices for their owners.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// The whole model, its tensors concatenated, into runs of equal length.
    WholeModel,
    /// Each tensor separately, so that its slices do not depend on its group.
    EachTensor,
}

/// Averages by scatter-reduce; see the [module](self).
pub(crate) struct ScatterReduce {
    /// The slices of each tensor of the model.
    slices: Vec<Vec<Slice>>,
    /// Messages for each owner.
    outbox: Vec<Vec<u8>>,
    /// The messages of each rank for this owner.
    inbox: Vec<Vec<u8>>,
    /// The averages of each owner.
    gathered: Vec<Vec<u8>>,
    /// For each rank, the number of bytes of its messages that have been read.
    cursors: Vec<usize>,
    message: Vec<u8>,
    mean: Vec<f32>,
}

/// A tensor, or the part of one between two cuts.
#[derive(Debug, Clone)]
struct Slice {
    range: Range<usize>,
    tensor: Tensor,
    owner: usize,
}

impl Collective for ScatterReduce {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let (scatter, gather) = (step.operation(Phase::Scatter), step.operation(Phase::Gather));
        step.compress(|step| self.encode(step, values))?;
        step.wire(|transport| self.scatter(transport, scatter))?;
        self.reduce_own(step)?;
        step.wire(|transport| transport.all_gather_v(gather, &mut self.gathered))?;
        values.fill(0.0);
        step.decompress(|step| self.decode(step, values))
    }
}

impl ScatterReduce {
    pub(crate) fn new(
        config: &GroupConfig<'_>,
        cut: Cut,
        codecs: &mut Codecs,
        rank: usize,
    ) -> Self {
        let n = config.workers;
        let slices = match cut {
            Cut::WholeModel => cut_model(config.tensors, n),
            Cut::EachTensor => config.tensors.iter().map(|tensor| cut_tensor(tensor, n)).collect(),
        };
        let name = |slice: &Slice| slice.tensor.name().to_owned();
        let names = slices.iter().map(|slices| slices.iter().map(name).collect()).collect();
        codecs.cut(names, config, rank);
        Self {
            slices,
            outbox: vec![Vec::new(); n],
            inbox: vec![Vec::new(); n],
            gathered: vec![Vec::new(); n],
            cursors: vec![0; n],
            message: Vec::new(),
            mean: Vec::new(),
        }
    }

    fn encode(&mut self, step: &mut Reduction<'_>, values: &[f32]) -> Result<()> {
        self.outbox.iter_mut().for_each(Vec::clear);
        if step.weights[step.transport.rank()] == 0.0 {
            return Ok(());
        }
        for (&index, range) in step.group.indices.iter().zip(&step.group.ranges) {
            for Slice { range: slice, tensor, owner } in &self.slices[index] {
                let input = Input {
                    gradient: Floats::F32(&values[range.clone()][slice.clone()]),
                    squares: step.squares.map(|all| &all[index][slice.clone()]),
                };
                let place = (index, slice.start);
                step.codecs.encode(place, tensor, step.step, input, &mut self.message)?;
                packed::append(&self.message, &mut self.outbox[*owner]);
            }
        }
        Ok(())
    }

    fn scatter(&mut self, transport: &mut dyn Transport, operation: Operation<'_>) -> Result<()> {
        for to in transport.endpoint().others() {
            transport.send(to, operation, &self.outbox[to])?;
        }
        let rank = transport.rank();
        self.inbox[rank].clone_from(&self.outbox[rank]);
        for from in (0..transport.size()).filter(|&from| from != rank) {
            transport.recv(from, operation, &mut self.inbox[from])?;
        }
        Ok(())
    }

    /// Averages this rank's slices and compresses the averages.
    fn reduce_own(&mut self, step: &mut Reduction<'_>) -> Result<()> {
        let Self { slices, inbox, gathered, cursors, message, mean, .. } = self;
        let rank = step.transport.rank();
        cursors.fill(0);
        gathered[rank].clear();
        for &index in &step.group.indices {
            for Slice { tensor, .. } in slices[index].iter().filter(|slice| slice.owner == rank) {
                let operation = Operation::tensor(Phase::Scatter, index, tensor.name(), step.step);
                mean.clear();
                mean.resize(tensor.elements(), 0.0);
                step.decompress(|step| {
                    for (from, (packed, &weight)) in inbox.iter().zip(step.weights).enumerate() {
                        if weight == 0.0 {
                            continue;
                        }
                        let message = packed::next(from, packed, &mut cursors[from], operation)?;
                        step.codecs.add_message(
                            tensor,
                            (step.step, from),
                            message,
                            weight,
                            mean,
                        )?;
                    }
                    step.codecs.aggregate(tensor, step.step, mean)?;
                    Ok::<(), ExchangeError>(())
                })?;
                step.compress(|step| step.codecs.encode_average(tensor, step.step, mean, message))?;
                packed::append(message, &mut gathered[rank]);
            }
        }
        let operation = step.operation(Phase::Scatter);
        for (from, (packed, &at)) in inbox.iter().zip(&*cursors).enumerate() {
            packed::finish(from, packed, at, operation)?;
        }
        Ok(())
    }

    /// Assembles every tensor from the owners' averages.
    fn decode(&mut self, step: &mut Reduction<'_>, means: &mut [f32]) -> Result<()> {
        let Self { slices, gathered, cursors, .. } = self;
        let n = gathered.len();
        cursors.fill(0);
        for (&index, whole) in step.group.indices.iter().zip(&step.group.ranges) {
            for Slice { tensor, owner, range } in &slices[index] {
                let operation = Operation::tensor(Phase::Gather, index, tensor.name(), step.step);
                let message =
                    packed::next(*owner, &gathered[*owner], &mut cursors[*owner], operation)?;
                let out = &mut means[whole.clone()][range.clone()];
                step.codecs.decode_add(tensor, (step.step, n + owner), message, 1.0, out)?;
            }
        }
        let operation = step.operation(Phase::Gather);
        for (owner, (packed, &at)) in gathered.iter().zip(&*cursors).enumerate() {
            packed::finish(owner, packed, at, operation)?;
        }
        Ok(())
    }
}

/// Cuts a model's elements into `parts` runs of equal length, in order; an empty tensor stays whole.
fn cut_model(tensors: &[Tensor], parts: usize) -> Vec<Vec<Slice>> {
    let total: usize = tensors.iter().map(Tensor::elements).sum();
    let border = |part: usize| (total as u128 * part as u128 / parts as u128) as usize;
    let (mut owner, mut offset) = (0, 0);
    let mut cut = |tensor: &Tensor| {
        let (mut slices, mut start) = (Vec::new(), 0);
        loop {
            while owner + 1 < parts && border(owner + 1) <= offset + start {
                owner += 1;
            }
            let end = tensor.elements().min(border(owner + 1) - offset);
            slices.push(Slice::of(tensor, start..end, owner));
            start = end;
            if start == tensor.elements() {
                break;
            }
        }
        offset += tensor.elements();
        slices
    };
    tensors.iter().map(&mut cut).collect()
}

/// The fewest elements of a slice, where each tensor is cut separately.
const SLICE: usize = 4096;

/// Cuts a tensor into `parts` slices of equal length, one for each owner. A small tensor stays whole, and its name
/// determines the owner.
fn cut_tensor(tensor: &Tensor, parts: usize) -> Vec<Slice> {
    let elements = tensor.elements();
    if elements < parts * SLICE {
        let owner = (tensor.id() % parts as u64) as usize;
        return vec![Slice::of(tensor, 0..elements, owner)];
    }
    let border = |part: usize| (elements as u128 * part as u128 / parts as u128) as usize;
    let slice = |owner| Slice::of(tensor, border(owner)..border(owner + 1), owner);
    (0..parts).map(slice).collect()
}

impl Slice {
    fn of(tensor: &Tensor, range: Range<usize>, owner: usize) -> Self {
        let Range { start, end } = range;
        let sliced = if end - start == tensor.elements() {
            tensor.clone()
        } else {
            // The same number of dimensions as the whole: some compressors use it to tell the kind of the layer.
            let mut shape = vec![1; tensor.shape().len()];
            shape[0] = end - start;
            Tensor::new(state_keys::slice_name(tensor.name(), &range), &shape)
        };
        Self { range, tensor: sliced, owner }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_cut_by_themselves_whatever_their_group() {
        let tensors = [Tensor::new("big", &[100, 100]), Tensor::new("small", &[100])];
        let names = |tensors: &[Tensor]| -> Vec<_> {
            let slices = tensors.iter().flat_map(|tensor| cut_tensor(tensor, 2));
            slices.map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
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
        let slices = cut_model(&tensors, parts).into_iter().flatten();
        slices.map(|slice| (slice.tensor.name().to_owned(), slice.owner)).collect()
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
