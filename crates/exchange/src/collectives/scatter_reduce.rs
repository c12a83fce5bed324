//! Scatter-reduce: every rank averages one slice of the model, and compresses the average for all.
//!
//! The tensors are concatenated and cut into `n` runs of equal length. If the model is averaged in
//! groups, each tensor is cut separately. A slice is encoded as a tensor called `name[a..b]`, with
//! its own residuals and random draws. Every rank compresses each slice for the owner of the slice.
//! The owner decodes and averages the messages, compresses the average with a second residual, and
//! sends it to all. Two phases; with messages of `b` bytes in all, a rank sends and receives about
//! `2·b·(n − 1)/n` bytes. The owner, too, continues with the compressed average, not with its exact
//! mean. A rank that does not take part in a round sends no gradients, but still averages its
//! slices.

use std::ops::Range;

use gradwire::Tensor;

use super::collective::{Collective, Reduction};
use super::packed;
use super::scatter::Scatter;
use super::slices::{self, Cut, Slice, cut_model, cut_tensor};
use crate::codecs::{Codecs, Sender};
use crate::device::Values;
use crate::group::{Group, Piece};
use crate::{GroupConfig, Phase, Result};

/// Averages by scatter-reduce; see the [module](self).
pub(crate) struct ScatterReduce {
    scatter: Scatter,
    /// The averages of each owner.
    gathered: Vec<Vec<u8>>,
    message: Vec<u8>,
}

impl Collective for ScatterReduce {
    fn add(&mut self, tensor: &Tensor, codecs: &mut Codecs) {
        self.scatter.add(cut_tensor(tensor, self.gathered.len()), codecs);
    }

    fn tells_non_finite(&self) -> bool {
        true
    }

    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let values = values.on_host()?;
        let group = step.group;
        self.scatter.scatter(step, values, &|at, slice| place(group, at, slice))?;
        if !step.finite {
            return Ok(());
        }
        self.average_own(step)?;
        let gather = step.operation(Phase::Gather);
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
        let n = config.workers();
        let slices = match cut {
            Cut::WholeModel => cut_model(config.tensors, n),
            Cut::EachTensor => config.tensors.iter().map(|tensor| cut_tensor(tensor, n)).collect(),
        };
        codecs.cut(slices::names(&slices));
        codecs.compress_averages(config, rank);
        Self {
            scatter: Scatter::new(slices, n),
            gathered: vec![Vec::new(); n],
            message: Vec::new(),
        }
    }

    /// Averages this rank's slices and compresses the averages.
    fn average_own(&mut self, step: &mut Reduction<'_>) -> Result<()> {
        let Self { scatter, gathered, message, .. } = self;
        let own = &mut gathered[step.transport.rank()];
        own.clear();
        scatter.average(step, 1.0, |step, one, mean| {
            let piece = Piece::whole(one.index, &one.slice.tensor);
            step.compress(|step| step.codecs.at(&piece, step.step).encode_average(mean, message))?;
            packed::append(message, own);
            Ok(())
        })
    }

    /// Assembles every tensor from the owners' averages.
    fn decode(&self, step: &mut Reduction<'_>, means: &mut [f32]) -> Result<()> {
        let (group, n, weight) = (step.group, self.gathered.len(), step.take_factor());
        for (owner, packed) in self.gathered.iter().enumerate() {
            let own = self.scatter.slices_of(group).filter(|one| one.slice.owner == owner);
            let pieces = own.map(|one| one.piece(place(group, one.at, one.slice)));
            let sender = Sender { drawn_as: n + owner, weight, ..Sender::alone(owner) };
            step.decode_all(Phase::Gather, sender, packed, pieces, means)?;
        }
        Ok(())
    }
}

/// The elements of a slice in the values of a group.
fn place(group: &Group, at: usize, slice: &Slice) -> Range<usize> {
    let start = group.ranges[at].start;
    start + slice.range.start..start + slice.range.end
}
