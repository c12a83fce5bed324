//! The forward pass of a batch of images, and its record, which computes the gradients.
//!
//! An operation computes its output from its input. If gradients are wanted, it also records a
//! closure. The closure turns the gradient of the output into the gradient of the input, and adds
//! the gradients of the operation's parameters. Back-propagation calls these closures from the last
//! to the first.

use std::sync::Arc;

use gradwire_exchange::GradientSink;

use super::maps::Maps;
use super::statistics::{MOMENTUM, Statistics};

/// One forward pass of a batch.
pub(super) struct Pass<'a> {
    /// The parameters, in the layout's order.
    pub(super) parameters: &'a [Vec<f32>],
    /// The statistics that batch normalisation uses.
    pub(super) statistics: StatisticsSource<'a>,
    /// `None` if no gradients are wanted.
    record: Option<Record<'a>>,
}

/// The source of batch normalisation's statistics.
pub(super) enum StatisticsSource<'a> {
    /// The batch, whose statistics get this weight in the running ones.
    Batch(&'a mut [Statistics], f32),
    /// The running statistics.
    Running(&'a [Statistics]),
}

impl<'a> Pass<'a> {
    /// A pass with gradients.
    pub(super) fn training(parameters: &'a [Vec<f32>], statistics: &'a mut [Statistics]) -> Self {
        Self {
            parameters,
            statistics: StatisticsSource::Batch(statistics, MOMENTUM),
            record: Some(Record::default()),
        }
    }

    /// A pass that only updates the running statistics; the batch gets this weight.
    pub(super) fn observing(
        parameters: &'a [Vec<f32>],
        statistics: &'a mut [Statistics],
        weight: f32,
    ) -> Self {
        Self { parameters, statistics: StatisticsSource::Batch(statistics, weight), record: None }
    }

    /// A pass that only scores.
    pub(super) fn scoring(parameters: &'a [Vec<f32>], statistics: &'a [Statistics]) -> Self {
        Self { parameters, statistics: StatisticsSource::Running(statistics), record: None }
    }

    /// Records the backward pass of an operation.
    pub(super) fn record(
        &mut self,
        back: impl FnOnce(Maps, &mut Gradients<'_>) -> Option<Maps> + 'a,
    ) {
        if let Some(Record(operations)) = &mut self.record {
            operations.push(Box::new(back));
        }
    }

    /// Runs operations with a separate record, and returns the record.
    pub(super) fn apart(&mut self, run: impl FnOnce(&mut Self) -> Maps) -> (Maps, Record<'a>) {
        let inner = self.record.as_ref().map(|_| Record::default());
        let before = std::mem::replace(&mut self.record, inner);
        let output = run(self);
        let inner = std::mem::replace(&mut self.record, before);
        (output, inner.unwrap_or_default())
    }
}

/// The backward pass of an operation: turns the gradient of the output into the gradient of the
/// input, if needed.
type Back<'a> = Box<dyn FnOnce(Maps, &mut Gradients<'_>) -> Option<Maps> + 'a>;

/// The backward passes of operations, in the order of the forward pass.
#[derive(Default)]
pub(super) struct Record<'a>(Vec<Back<'a>>);

impl Record<'_> {
    /// Turns the gradient of the last output into the gradient of the first input, if needed.
    pub(super) fn back(self, gradient: Maps, gradients: &mut Gradients<'_>) -> Option<Maps> {
        // Operations that need no input gradient come before all parameters.
        self.0.into_iter().rev().try_fold(gradient, |gradient, back| back(gradient, gradients))
    }
}

/// The gradients of all parameters, for a backward pass to add to.
pub(super) struct Gradients<'a> {
    /// One for each parameter.
    pub(super) all: &'a mut [Vec<f32>],
    /// Gets each gradient once it is final.
    pub(super) sink: Option<&'a Arc<dyn GradientSink>>,
}

impl Gradients<'_> {
    /// Passes on these gradients. Call it once for each parameter, when its gradient is final.
    pub(super) fn ready(&self, indices: impl IntoIterator<Item = usize>) {
        let Some(sink) = self.sink else { return };
        indices.into_iter().for_each(|index| sink.ready(index, &self.all[index]));
    }
}
