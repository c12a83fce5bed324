//! The strategies in which every worker updates its own parameters: they differ only in how the
//! gradients are averaged.

use std::ops::Range;
use std::time::Duration;

use gradwire::{Spec, State, StateError, Tensor};

use crate::distributed_optimizer::{timed, worked};
use crate::group_config::check_lengths;
use crate::transport::or_abort;
use crate::{
    AllReduce, DistributedOptimizer, Ends, Exchange, ExchangeError, GroupConfig, Optimizer,
    Participation, Policy, StepReport, Traffic, Transport, agreement, digest, report,
};

/// How a collective strategy averages gradients. Only this crate's strategies do: nobody else makes [`Ends`].
pub trait Average: Send {
    /// One rank's end.
    fn new(setup: &GroupConfig<'_>, rank: usize) -> Self
    where
        Self: Sized;

    /// Replaces `values`, this rank's gradients of all tensors one behind the other, by their mean
    /// over all ranks: the same bits on every rank. Adds the times of encoding, decoding and waiting
    /// to `report`. After an error the values are of no use.
    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError>;

    /// This rank's compressors.
    fn ends(&self) -> &Ends;

    /// The same, to be changed.
    fn ends_mut(&mut self) -> &mut Ends;

    /// Keeps a copy of the residuals, for [`rollback`](Self::rollback).
    fn checkpoint(&mut self) {
        self.ends_mut().sender.checkpoint();
    }

    /// Takes back what has been averaged since [`remember`](Self::checkpoint), as if it had never been.
    fn rollback(&mut self) {
        self.ends_mut().sender.rollback();
    }

    /// Whether the compressor is told of squares, as [`DistributedOptimizer::keeps_squares`] has it.
    fn keeps_squares(&self) -> bool {
        self.ends().sender.keeps_squares()
    }

    /// Tells it, as [`DistributedOptimizer::observe`] has it.
    fn observe(&mut self, tensors: &[Tensor], squares: &[Vec<f32>]) -> Result<(), ExchangeError> {
        self.ends_mut().observe(tensors, squares)
    }

    /// Which elements of a tensor this rank's messages of the last step carried, as
    /// [`DistributedOptimizer::sent`] has it.
    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.ends().carried.of(index)
    }

    /// The length of this rank's messages for a tensor, as [`DistributedOptimizer::message_bytes`] has it.
    fn message_bytes(&self, index: usize) -> usize {
        self.ends().carried.bytes(index)
    }

    /// What this rank's messages for a tensor have left out, as [`DistributedOptimizer::residual`] has it.
    fn residual(&self, tensor: &Tensor, index: usize, show: &mut dyn FnMut(&[f32])) {
        let _ = index;
        self.ends().sender.residual(tensor).into_iter().for_each(show);
    }

    /// Adds the residuals to `state`.
    fn save(&self, state: &mut State) {
        self.ends().save(state);
    }

    /// Takes back what [`save`](Self::save) wrote.
    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        self.ends_mut().restore(state)
    }
}

/// What is averaged, and when.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The training step.
    pub step: u64,
    /// The tensors.
    pub tensors: &'a [Tensor],
    /// Where each lies in the values.
    pub ranges: &'a [Range<usize>],
}

/// Where tensors that follow one another lie.
pub(crate) fn ranges(tensors: &[Tensor]) -> Vec<Range<usize>> {
    let mut end = 0;
    let range = |tensor: &Tensor| {
        let start = end;
        end += tensor.elements();
        start..end
    };
    tensors.iter().map(range).collect()
}

/// One rank's end of a strategy without servers: averages gradients, then runs its own optimizer.
pub struct Collective<A> {
    transport: Box<dyn Transport>,
    average: A,
    optimizer: Box<dyn Optimizer>,
    tensors: Vec<Tensor>,
    ranges: Vec<Range<usize>>,
    /// This rank's gradients, then their mean.
    values: Vec<f32>,
    exchange: String,
    /// What is added to the mean; nothing at all where gradients are not shifted.
    shift: Vec<f32>,
}

impl<A: Average> Collective<A> {
    /// Joins the other ranks, all of which call this at the same time.
    ///
    /// # Errors
    /// `Config` if the setup cannot work or is not that of the other ranks.
    pub fn new(
        mut transport: Box<dyn Transport>,
        setup: &GroupConfig<'_>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, ExchangeError> {
        setup.join(&mut *transport)?;
        Ok(Self {
            average: A::new(setup, transport.rank()),
            transport,
            optimizer,
            tensors: setup.tensors.to_vec(),
            ranges: ranges(setup.tensors),
            values: Vec::new(),
            exchange: format!("{} with {} workers", setup.exchange, setup.workers),
            shift: Vec::new(),
        })
    }
}

impl<A: Average> DistributedOptimizer for Collective<A> {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn step(
        &mut self,
        step: u64,
        learning_rate: f32,
        gradients: &[Vec<f32>],
        parameters: &mut [Vec<f32>],
    ) -> Result<StepReport, ExchangeError> {
        check_lengths(&self.tensors, gradients)?;
        check_lengths(&self.tensors, parameters)?;
        let before = self.transport.traffic();
        let mut report = StepReport::default();
        self.values.clear();
        gradients.iter().for_each(|gradient| self.values.extend_from_slice(gradient));
        let round = Round { step, tensors: &self.tensors, ranges: &self.ranges };
        let result =
            self.average.average(&mut *self.transport, round, &mut self.values, &mut report);
        or_abort(&mut *self.transport, result)?;
        let flushed = timed(&mut report.wire, || self.transport.flush());
        or_abort(&mut *self.transport, flushed)?;
        let mut update = Duration::ZERO;
        worked(&mut update, || {
            self.values.iter_mut().zip(&self.shift).for_each(|(mean, shift)| *mean += shift);
            for (index, (range, parameters)) in self.ranges.iter().zip(parameters).enumerate() {
                let mean = &self.values[range.clone()];
                self.optimizer.update(index, learning_rate, mean, parameters);
            }
        });
        report.update = update;
        report.traffic = self.transport.traffic() - before;
        Ok(report)
    }

    fn keeps_squares(&self) -> bool {
        self.average.keeps_squares()
    }

    fn observe(&mut self, squares: &[Vec<f32>]) -> Result<(), ExchangeError> {
        check_lengths(&self.tensors, squares)?;
        let result = self.average.observe(&self.tensors, squares);
        or_abort(&mut *self.transport, result)
    }

    fn shift(&mut self, step: u64, values: &[Vec<f32>]) -> Result<Traffic, ExchangeError> {
        check_lengths(&self.tensors, values)?;
        let before = self.transport.traffic();
        let workers = self.transport.size();
        let policy = Policy::new(&Spec::none());
        let setup = GroupConfig {
            exchange: Exchange::AllReduce,
            workers,
            shares: &Participation::equal(workers),
            policy: &policy,
            tensors: &self.tensors,
            seed: 0,
            initial: &[],
        };
        let mut exact = AllReduce::new(&setup, self.transport.rank());
        let round = Round { step, tensors: &self.tensors, ranges: &self.ranges };
        self.shift = values.concat();
        let report = &mut StepReport::default();
        let result = exact.average(&mut *self.transport, round, &mut self.shift, report);
        or_abort(&mut *self.transport, result)?;
        Ok(self.transport.traffic() - before)
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.average.sent(index)
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.average.message_bytes(index)
    }

    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        self.average.residual(&self.tensors[index], index, show);
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError> {
        Ok(None)
    }

    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError> {
        state.set_setting("exchange", self.exchange.clone());
        if !self.shift.is_empty() {
            state.set_floats("shift", self.shift.clone());
        }
        self.average.save(state);
        self.optimizer.save("optimizer/", state);
        Ok(())
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        state.expect_setting("exchange", &self.exchange)?;
        self.shift = saved_shift(&self.ranges, state)?;
        self.average.restore(state)?;
        Ok(self.optimizer.restore("optimizer/", state)?)
    }

    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        let workers = self.transport.size();
        report::collect(&mut *self.transport, workers, own)
    }

    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        let workers = self.transport.size();
        report::announce(&mut *self.transport, workers, message)
    }

    fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError> {
        let workers = self.transport.size();
        let digest = digest(parameters);
        agreement::on_parameters(&mut *self.transport, workers, step, digest)
    }
}

/// The shift in a state; nothing where gradients were not shifted.
fn saved_shift(ranges: &[Range<usize>], state: &State) -> Result<Vec<f32>, ExchangeError> {
    let Ok(shift) = state.floats("shift") else { return Ok(Vec::new()) };
    let (found, expected) = (shift.len(), ranges.last().map_or(0, |range| range.end));
    if found != expected {
        let entry = "shift".to_owned();
        return Err(StateError::WrongSize { entry, found, expected }.into());
    }
    Ok(shift.to_vec())
}
