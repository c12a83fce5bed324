//! The reducer: averages groups of tensors over all ranks.
//!
//! A group is a list of tensors; the whole model is the case of one group. A trainer that computes
//! gradients from the last layer to the first averages one group while it computes the next.
//! Compressors and residuals belong to tensor names. When groups change, residuals stay with their
//! tensors, and the averages are the same as in the old groups.
//!
//! A reducer works in its caller's thread or in a [`ReducerThread`]. A [`Pipeline`] feeds that
//! thread with gradients as they become ready.

mod columns;
mod config;
mod device;
mod forming;
mod halves;
mod inspection;
mod pipeline;
mod queue;
mod scaled;
mod sink;
mod stages;
mod states;
mod thread;

use std::collections::HashMap;
use std::fmt;

use gradwire::Tensor;

pub use columns::Column;
pub(crate) use config::check_by_groups;
pub use config::{OnNonFinite, Outcome, ReducerConfig};
pub(crate) use pipeline::{Bucket, Pipeline};
pub use sink::GradientSink;
pub use thread::ReducerThread;

use crate::codecs::Codecs;
use crate::collectives::{self, Collective, Cut, Reduction};
use crate::control::{Control, TransportJob, TransportOwner};
use crate::device::Values;
use crate::error::refuse;
use crate::group::Group;
use crate::transport::or_abort;
use crate::{
    Exchange, ExchangeError, GroupConfig, Operation, Participation, Phase, Result, StepReport,
    Transport,
};

/// Averages groups of tensors over all ranks, with compressed messages.
///
/// In: one rank's gradients of a group of tensors, concatenated in one buffer of `f32`. Out: in the
/// same buffer, their mean over all ranks, with the same bits on every rank. Every rank has one
/// reducer over its transport, and all ranks call the same methods in the same order.
///
/// Tensors have names. The reducer keeps the residual and the other state of each compressor by
/// tensor name, so a tensor may move to another group. [`save`](Self::save) and
/// [`restore`](Self::restore) handle this state.
pub struct Reducer {
    transport: Box<dyn Transport>,
    config: ReducerConfig,
    /// The exchange of the present step.
    exchange: Exchange,
    participation: Participation,
    /// The place of this rank's reducer among those that share a model; `None` for the only one.
    column: Option<Column>,
    /// Each rank's weight in the mean of the step.
    weights: Vec<f32>,
    by_name: HashMap<String, usize>,
    codecs: Codecs,
    collective: Box<dyn Collective>,
    /// How this exchange cuts tensors.
    cut: Cut,
    /// The exchanges of later steps, each with its first step, ascending.
    later: Vec<(u64, Exchange)>,
    groups: Vec<Group>,
    step: Option<u64>,
    /// Whether the step is skipped.
    skipping: bool,
    /// Whether the codecs hold a copy of their state before the step.
    copied: bool,
    /// Whether the caller says that the step is not finite, whatever the values.
    told_non_finite: bool,
    report: StepReport,
    message_bytes: usize,
    /// The error that ended the exchange.
    broken: Option<String>,
    /// Values of another type, as `f32`.
    wide: Vec<f32>,
}

impl fmt::Debug for Reducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, step, broken, .. } = self;
        f.debug_struct("Reducer")
            .field("config", config)
            .field("step", step)
            .field("broken", broken)
            .finish_non_exhaustive()
    }
}

impl Reducer {
    /// A reducer without groups. It sends nothing before the first group is formed.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work, with the reason and the remedy.
    pub fn new(transport: Box<dyn Transport>, config: ReducerConfig) -> Result<Self> {
        Self::staged(transport, config, Vec::new())
    }

    /// The same reducer with this number of [threads](gradwire::Threads) to encode and decode a
    /// group's tensors. The default is 1, the caller's thread. Messages and means do not depend on
    /// the number, and ranks may use different numbers. With all-reduce, and when an owner
    /// compresses its averages in scatter-reduce, tensors are processed one after the other;
    /// threads share tensors of at least [`MIN_DIVIDED`] elements. With several threads, the
    /// report has elapsed time instead of CPU time.
    ///
    /// [`MIN_DIVIDED`]: gradwire::MIN_DIVIDED
    pub fn with_threads(mut self, threads: usize) -> Self {
        self.codecs.use_threads(threads);
        self
    }

    /// The same reducer, one of several that share a model. It restores the states of the others,
    /// too, if they are the states of all.
    pub fn of_column(mut self, column: Column) -> Self {
        self.column = Some(column);
        self
    }

    /// A reducer of ranks that have compared their configurations.
    pub(crate) fn of(
        transport: Box<dyn Transport>,
        config: &GroupConfig<'_>,
        cut: Cut,
        on_non_finite: OnNonFinite,
    ) -> Result<Self> {
        let rank = transport.rank();
        let names = config.tensors.iter().map(|tensor| tensor.name().to_owned());
        let mut codecs = Codecs::of_pushes(config, rank);
        Ok(Self {
            collective: collectives::of(config, cut, &mut codecs, rank)?,
            transport,
            participation: config.participation.clone(),
            column: None,
            weights: Vec::new(),
            by_name: names.zip(0..).collect(),
            codecs,
            cut,
            later: Vec::new(),
            exchange: config.exchange,
            groups: Vec::new(),
            step: None,
            skipping: false,
            copied: false,
            told_non_finite: false,
            report: StepReport::default(),
            message_bytes: 0,
            broken: None,
            wide: Vec::new(),
            config: ReducerConfig {
                exchange: config.exchange,
                policy: config.policy.clone(),
                tensors: config.tensors.to_vec(),
                seed: config.seed,
                on_non_finite,
            },
        })
    }

    /// The transport, for its rank and size.
    pub fn transport(&self) -> &dyn Transport {
        &*self.transport
    }

    /// The tensors of the model.
    pub fn tensors(&self) -> &[Tensor] {
        &self.config.tensors
    }

    /// Messages to the other ranks apart from averages.
    pub fn control(&mut self) -> Control<'_> {
        let workers = self.transport.size();
        Control::new(self, workers, true)
    }

    /// Averages a group. In: `values` holds this rank's gradients of the group's tensors,
    /// concatenated. Out: `values` holds their mean over all ranks, with the same bits on every
    /// rank. All ranks average the same groups in the same order, with increasing steps.
    ///
    /// With [reduce-scatter](crate::collectives::reduce_scatter) `values` holds the shards of all
    /// ranks, and then this rank's shard holds its mean; the others are unspecified. With
    /// [gather-shards](crate::collectives::gather_shards) `values` holds this rank's shard, and
    /// then all shards.
    ///
    /// # Errors
    /// Any; the exchange has then ended, here and on the other ranks.
    pub fn average(&mut self, group: usize, step: u64, values: &mut [f32]) -> Result<Outcome> {
        self.average_with(group, step, values, None)
    }

    /// As [`average`](Self::average), with the sums of squares of the gradients' parts, a flat
    /// buffer for each tensor of the model.
    pub(crate) fn average_with(
        &mut self,
        group: usize,
        step: u64,
        values: &mut [f32],
        squares: Option<&[Vec<f32>]>,
    ) -> Result<Outcome> {
        self.within(step, |reducer| reducer.try_average(group, step, values, squares))
    }

    /// Runs an average, and counts its bytes.
    fn within(
        &mut self,
        step: u64,
        average: impl FnOnce(&mut Self) -> Result<Outcome>,
    ) -> Result<Outcome> {
        self.alive()?;
        if self.step != Some(step) {
            let entered = self.enter_exchange(step);
            self.or_abort(entered)?;
            self.begin(step);
        }
        let before = self.transport.traffic();
        let averaged = average(self);
        self.report.traffic += self.transport.traffic() - before;
        self.or_abort(averaged)
    }

    /// Begins a step: nothing of it has been averaged yet.
    pub(crate) fn begin(&mut self, step: u64) {
        self.step = Some(step);
        self.skipping = false;
        self.copied = false;
        self.report = StepReport::default();
        self.message_bytes = 0;
        self.participation.weights_at(step, &mut self.weights);
    }

    fn try_average(
        &mut self,
        at: usize,
        step: u64,
        values: &mut [f32],
        squares: Option<&[Vec<f32>]>,
    ) -> Result<Outcome> {
        self.check_len(at, values.len())?;
        let skips = self.config.on_non_finite == OnNonFinite::Skip;
        if skips && self.skips(step, !self.told_non_finite && all_finite(values))? {
            values.fill(f32::NAN);
            return Ok(Outcome::Skipped);
        }
        self.reduce(at, step, squares, |collective, step| {
            collective.reduce(step, Values::Host(values))
        })?;
        for piece in self.groups[at].pieces() {
            self.codecs.add_changes(piece.index, &mut values[piece.range]);
        }
        Ok(Outcome::Averaged)
    }

    /// The group with this number. Refuses another number of values than the group's.
    pub(super) fn check_len(&self, at: usize, len: usize) -> Result<&Group> {
        let Some(group) = self.groups.get(at) else {
            return refuse(format!("there is no group {at}; form it first"));
        };
        let expected = self.collective.values(group);
        if len != expected {
            return refuse(format!(
                "the tensors of group {at} have {expected} values, but {len} were given"
            ));
        }
        Ok(group)
    }

    /// Runs the collective for a group, and counts the bytes of its messages.
    fn reduce(
        &mut self,
        at: usize,
        step: u64,
        squares: Option<&[Vec<f32>]>,
        run: impl FnOnce(&mut dyn Collective, &mut Reduction<'_>) -> Result<()>,
    ) -> Result<()> {
        let Self { transport, codecs, collective, groups, weights, report, .. } = self;
        let group = &groups[at];
        group.indices.iter().for_each(|&index| codecs.begin_of(index, step, group.dtype));
        let mut reduction = Reduction {
            transport: &mut **transport,
            codecs,
            group,
            step,
            weights,
            equal: self.participation.plain(),
            squares,
            report,
        };
        run(&mut **collective, &mut reduction)?;
        let bytes = group.indices.iter().map(|&index| codecs.sent_elements(index).bytes);
        self.message_bytes += bytes.sum::<usize>();
        Ok(())
    }

    /// Whether the step is skipped, because a rank's values or earlier ones are not finite. If so,
    /// the averages of this step are rolled back.
    fn skips(&mut self, step: u64, finite: bool) -> Result<bool> {
        if self.skipping {
            return Ok(true);
        }
        self.skipping = some_non_finite(&mut *self.transport, step, finite)?;
        match (self.skipping, self.copied) {
            (true, true) => self.codecs.rollback(),
            (false, false) => self.codecs.checkpoint(),
            _ => {}
        }
        self.copied = true;
        Ok(self.skipping)
    }

    /// Returns the bytes of all ranks, in rank order, on every rank. All ranks call it at the same
    /// time.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn gather(&mut self, step: u64, own: Vec<u8>) -> Result<Vec<Vec<u8>>> {
        self.alive()?;
        let before = self.transport.traffic();
        let mut all = vec![Vec::new(); self.transport.size()];
        all[self.transport.rank()] = own;
        let operation = Operation::whole(Phase::Broadcast, step);
        let gathered = self.transport.all_gather_v(operation, &mut all);
        self.report.traffic += self.transport.traffic() - before;
        self.or_abort(gathered.map(|()| all))
    }

    /// Waits until all sent messages have left. Call it at the end of a step after which this rank
    /// may end.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn flush(&mut self) -> Result<()> {
        self.alive()?;
        let flushed = self.transport.flush();
        self.or_abort(flushed)
    }

    /// Aborts the exchange on all ranks.
    pub fn abort(&mut self) {
        let rank = self.transport.rank();
        self.transport.abort(rank);
        self.broken.get_or_insert_with(|| "it was aborted".to_owned());
    }

    fn alive(&self) -> Result<()> {
        let broken = self.broken.as_ref();
        broken.map_or(Ok(()), |why| Err(ExchangeError::Ended(why.clone())))
    }

    /// Returns `result`. An error ends the exchange on all ranks.
    fn or_abort<R>(&mut self, result: Result<R>) -> Result<R> {
        if let Err(error) = &result {
            self.broken = Some(error.to_string());
        }
        or_abort(&mut *self.transport, result)
    }
}

impl TransportOwner for Reducer {
    fn run(&mut self, task: TransportJob) -> Result<()> {
        self.alive()?;
        let done = task(&mut *self.transport);
        self.or_abort(done)
    }
}

fn all_finite(values: &[f32]) -> bool {
    values.iter().fold(true, |finite, value| finite & value.is_finite())
}

/// Whether some rank has a value that is not finite.
fn some_non_finite(transport: &mut dyn Transport, step: u64, finite: bool) -> Result<bool> {
    let mut flags = vec![Vec::new(); transport.size()];
    flags[transport.rank()].push(u8::from(!finite));
    transport.all_gather_v(Operation::whole(Phase::Check, step), &mut flags)?;
    Ok(flags.iter().any(|flag| flag.as_slice() != [0]))
}
