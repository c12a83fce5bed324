//! The exchanges without servers: gradients are averaged, and every rank runs the optimizer on its
//! replica.
//!
//! With overlap, the tensors are in groups, in the order in which back-propagation computes their
//! gradients. A trainer passes gradients as they become ready
//! ([`DistributedOptimizer::gradient_sink`]). When a group is complete and the groups before it
//! have been sent, the reducer's thread averages it while the trainer computes the rest.
//! [`DistributedOptimizer::step`] takes the remaining gradients, waits for the means, and runs the
//! optimizer on each mean as it arrives. The reducer's thread sends all messages, including those
//! of the control channel.
//!
//! Every rank averages the same groups in the same order, whether or not it passes gradients early.
//! The results have the same bits as without overlap, except for scatter-reduce, which then cuts
//! each tensor separately. The bytes are the same except for headers, because every group has its
//! own.
//!
//! After an error, some groups' parameters may have been updated and others not. The thread needs a
//! core: if all cores are busy with other ranks, overlap hides only the time of the link. The
//! buckets are a second copy of gradients and means.

use std::sync::Arc;

use gradwire::{State, Tensor};

use crate::codecs::SentElements;
use crate::collectives::Cut;
use crate::control::{self, Control, TransportOwner};
use crate::error::refuse;
use crate::group;
use crate::reducer::{Bucket, Pipeline, check_by_groups};
use crate::report::{timed, worked};
use crate::{
    DistributedOptimizer, GradientSink, GroupConfig, OnNonFinite, Optimizer, Reducer, Result,
    StepInput, StepReport, Transport, saved_as,
};

/// One rank's end of an exchange without servers: gradients are averaged, and every rank runs the
/// optimizer on its replica of the model. With overlap, one group of tensors is averaged while the
/// next is being computed.
pub struct ReplicatedOptimizer {
    owned: OwnedReducer,
    optimizer: Box<dyn Optimizer>,
    tensors: Vec<Tensor>,
    workers: usize,
    saved_as: String,
}

/// The reducer, in the caller's thread or in its own.
enum OwnedReducer {
    /// In the caller's thread, the whole model at once.
    Inline { reducer: Box<Reducer>, values: Vec<f32> },
    /// In a background thread, group by group.
    Overlapped { pipeline: Pipeline, groups: usize, sent_elements: Vec<SentElements> },
}

impl OwnedReducer {
    fn step(&mut self, update: Update<'_>) -> Result<StepReport> {
        match self {
            Self::Inline { reducer, values } => step_whole(reducer, values, update),
            Self::Overlapped { pipeline, groups, sent_elements } => {
                step_by_groups(pipeline, *groups, sent_elements, update)
            }
        }
    }

    /// Asks the reducer, after all work submitted before.
    fn ask<R: Send + 'static>(
        &mut self,
        question: impl FnOnce(&mut Reducer) -> R + Send + 'static,
    ) -> Result<R> {
        match self {
            Self::Inline { reducer, .. } => Ok(question(reducer)),
            Self::Overlapped { pipeline, .. } => pipeline.ask(question),
        }
    }

    /// The elements of a tensor that this rank's last messages carried.
    fn sent_elements(&self, index: usize) -> &SentElements {
        match self {
            Self::Inline { reducer, .. } => reducer.sent_elements(index),
            Self::Overlapped { sent_elements, .. } => &sent_elements[index],
        }
    }

    /// Stops the other ranks, too.
    fn abort(&mut self) {
        match self {
            Self::Inline { reducer, .. } => reducer.abort(),
            // If there is no answer, the thread has ended.
            Self::Overlapped { pipeline, .. } => drop(pipeline.ask(Reducer::abort)),
        }
    }
}

impl ReplicatedOptimizer {
    /// Joins the other ranks. All ranks call this at the same time.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work or differs between ranks.
    pub fn new(
        mut transport: Box<dyn Transport>,
        config: &GroupConfig<'_>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self> {
        control::join(config, &mut *transport, "")?;
        let mut reducer = Reducer::of(transport, config, Cut::WholeModel, OnNonFinite::Refuse)?;
        reducer.add_group((0..config.tensors.len()).collect());
        let owned = OwnedReducer::Inline { reducer: Box::new(reducer), values: Vec::new() };
        Ok(Self::of(owned, config, optimizer))
    }

    /// As [`new`](Self::new), with overlap. `groups` contains each tensor once, by its index.
    ///
    /// # Errors
    /// As for [`new`](Self::new); `Config` also for exchanges other than all-reduce, all-gather and
    /// scatter-reduce, if only some ranks take part in a step, and for compressors that [need
    /// squares](DistributedOptimizer::needs_squares).
    pub fn overlapped(
        mut transport: Box<dyn Transport>,
        config: &GroupConfig<'_>,
        groups: Vec<Vec<usize>>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self> {
        check_overlap(config)?;
        if !optimizer.exchanges_gradients() {
            return refuse(
                "with overlap, gradients are sent before the optimizer sees them, but this \
                 optimizer does not exchange gradients; turn overlap off",
            );
        }
        group::check(&groups, config.tensors.len())?;
        control::join(config, &mut *transport, &format!("overlapped in groups {groups:?}\n"))?;
        let reducer = Reducer::of(transport, config, Cut::EachTensor, OnNonFinite::Refuse)?;
        let owned = OwnedReducer::Overlapped {
            pipeline: Pipeline::new(reducer, &groups)?,
            groups: groups.len(),
            sent_elements: vec![SentElements::default(); config.tensors.len()],
        };
        Ok(Self::of(owned, config, optimizer))
    }

    fn of(owned: OwnedReducer, config: &GroupConfig<'_>, optimizer: Box<dyn Optimizer>) -> Self {
        let tensors = config.tensors.to_vec();
        let overlap = matches!(owned, OwnedReducer::Overlapped { .. });
        let saved_as = saved_as(config.exchange, config.workers(), overlap);
        Self { owned, optimizer, tensors, workers: config.workers(), saved_as }
    }
}

/// Refuses configurations that cannot be averaged group by group.
fn check_overlap(config: &GroupConfig<'_>) -> Result<()> {
    config.validate()?;
    check_by_groups(config.exchange)?;
    if !config.participation.everyone() {
        return refuse(
            "with overlap, groups of tensors are averaged over all ranks; let every rank take \
             part in every step, or turn overlap off",
        );
    }
    if config.policy.pushes().any(|spec| spec.compressor().keeps_squares()) {
        return refuse(
            "a compressor that uses the squares of a gradient's parts needs whole gradients; turn \
             overlap off, or use another compressor",
        );
    }
    Ok(())
}

/// Updates the parameters: runs the optimizer on each mean.
struct Update<'a> {
    optimizer: &'a mut dyn Optimizer,
    tensors: &'a [Tensor],
    input: StepInput<'a>,
    parameters: &'a mut [Vec<f32>],
}

impl Update<'_> {
    /// Runs the optimizer on the means of some tensors, concatenated.
    fn apply(&mut self, indices: impl Iterator<Item = usize>, mut means: &mut [f32]) {
        let Self { optimizer, tensors, input, parameters } = self;
        for index in indices {
            let (mean, others) = means.split_at_mut(tensors[index].elements());
            means = others;
            if let Some(shift) = input.shift {
                mean.iter_mut().zip(&shift[index]).for_each(|(mean, shift)| *mean += shift);
            }
            optimizer.update(index, input.learning_rate, mean, &mut parameters[index]);
        }
    }
}

/// A step in the caller's thread: averages the whole model, and updates it. `values` is a buffer.
fn step_whole(
    reducer: &mut Reducer,
    values: &mut Vec<f32>,
    mut update: Update<'_>,
) -> Result<StepReport> {
    let input = update.input;
    values.clear();
    for (index, gradient) in input.gradients.iter().enumerate() {
        let start = values.len();
        values.extend_from_slice(gradient);
        update.optimizer.to_exchange(index, &update.parameters[index], &mut values[start..]);
    }
    reducer.begin(input.step);
    reducer.average_with(0, input.step, values, input.squares)?;
    let mut report = reducer.report();
    timed(&mut report.wire, || reducer.flush())?;
    worked(&mut report.update, || update.apply(0..update.tensors.len(), values));
    Ok(report)
}

/// A step whose groups a background thread averages: updates each group when its means arrive.
fn step_by_groups(
    pipeline: &mut Pipeline,
    groups: usize,
    sent_elements: &mut [SentElements],
    mut update: Update<'_>,
) -> Result<StepReport> {
    pipeline.complete(update.input.step, update.input.gradients)?;
    let (mut waited, mut background, mut updated) = Default::default();
    let mut report = StepReport::default();
    for _ in 0..groups {
        let mut bucket = timed(&mut waited, || pipeline.wait())?;
        background += bucket.busy;
        report = bucket.report;
        worked(&mut updated, || {
            let Bucket { indices, values, .. } = &mut *bucket;
            update.apply(indices.iter().copied(), values);
        });
        for (&index, last) in bucket.indices.iter().zip(&mut bucket.sent_elements) {
            std::mem::swap(&mut sent_elements[index], last);
        }
        pipeline.give_back(bucket);
    }
    Ok(StepReport { update: updated, background, waited, ..report })
}

impl DistributedOptimizer for ReplicatedOptimizer {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn gradient_sink(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        match &self.owned {
            OwnedReducer::Inline { .. } => None,
            OwnedReducer::Overlapped { pipeline, .. } => pipeline.sink(step),
        }
    }

    fn step(&mut self, input: StepInput<'_>, parameters: &mut [Vec<f32>]) -> Result<StepReport> {
        if let Err(error) = input.check(&self.tensors, parameters) {
            self.owned.abort();
            return Err(error);
        }
        let Self { owned, optimizer, tensors, .. } = self;
        owned.step(Update { optimizer: &mut **optimizer, tensors, input, parameters })
    }

    fn needs_squares(&self) -> bool {
        match &self.owned {
            OwnedReducer::Inline { reducer, .. } => reducer.needs_squares(),
            OwnedReducer::Overlapped { .. } => false,
        }
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.owned.sent_elements(index).positions()
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.owned.sent_elements(index).bytes
    }

    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        match &self.owned {
            OwnedReducer::Inline { reducer, .. } => reducer.residual(index, show),
            OwnedReducer::Overlapped { pipeline, .. } => {
                let pieces = pipeline.ask(move |reducer| {
                    let mut pieces = Vec::new();
                    reducer.residual(index, &mut |piece: &[f32]| pieces.push(piece.to_vec()));
                    pieces
                });
                pieces.unwrap_or_default().iter().for_each(|piece| show(piece));
            }
        }
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
        Ok(None)
    }

    fn save(&mut self, state: &mut State) -> Result<()> {
        let saved = self.owned.ask(|reducer| {
            let mut state = State::new();
            reducer.save_into(&mut state);
            state
        })?;
        state.merge("", saved);
        state.set_setting("exchange", self.saved_as.clone());
        self.optimizer.save("optimizer/", state);
        Ok(())
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        state.expect_setting("exchange", &self.saved_as)?;
        let saved = state.clone();
        self.owned.ask(move |reducer| reducer.restore_from(&saved))??;
        Ok(self.optimizer.restore("optimizer/", state)?)
    }

    fn control(&mut self) -> Control<'_> {
        let owner: &mut dyn TransportOwner = match &mut self.owned {
            OwnedReducer::Inline { reducer, .. } => &mut **reducer,
            OwnedReducer::Overlapped { pipeline, .. } => pipeline,
        };
        Control::new(owner, self.workers, true)
    }
}
