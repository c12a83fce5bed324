//! The strategies in which every worker updates its own parameters: they differ only in how the
//! gradients are averaged.

use std::time::Duration;

use gradwire::{State, StateError, Tensor};

use crate::exchange::worked;
use crate::setup::check_lengths;
use crate::transport::or_abort;
use crate::{
    AllReduce, Exchange, ExchangeError, Optimizer, Policy, Setup, Shares, StepReport, Strategy,
    Traffic, Transport, agreement, digest, report,
};

/// How a collective strategy averages gradients.
pub trait Average: Send {
    /// One rank's end.
    fn new(setup: &Setup<'_>, rank: usize) -> Self
    where
        Self: Sized;

    /// Averages one step's gradients over all ranks and hands every tensor's mean, in order, to
    /// `mean`: the same bits on every rank. Adds the times of encoding, decoding and waiting to
    /// `report`.
    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        report: &mut StepReport,
        mean: &mut dyn FnMut(usize, &[f32]),
    ) -> Result<(), ExchangeError>;

    /// Whether the compressor is told of squares, as [`Exchange::keeps_squares`] has it.
    fn keeps_squares(&self) -> bool;

    /// Tells it, as [`Exchange::observe`] has it.
    fn observe(&mut self, tensors: &[Tensor], squares: &[Vec<f32>]) -> Result<(), ExchangeError>;

    /// Which elements of a tensor this rank's messages of the last step carried, as
    /// [`Exchange::sent`] has it.
    fn sent(&self, index: usize) -> Option<&[u32]>;

    /// The length of this rank's messages for a tensor, as [`Exchange::message_bytes`] has it.
    fn message_bytes(&self, index: usize) -> usize;

    /// What this rank's messages for a tensor have left out, as [`Exchange::residual`] has it.
    fn residual(&self, tensor: &Tensor, index: usize, show: &mut dyn FnMut(&[f32]));

    /// Adds the residuals to `state`.
    fn save(&self, state: &mut State);

    /// Takes back what [`save`](Self::save) wrote.
    fn restore(&mut self, state: &State) -> Result<(), ExchangeError>;
}

/// One step's input.
#[derive(Debug, Clone, Copy)]
pub struct Round<'a> {
    /// The training step.
    pub step: u64,
    /// The tensors of the model.
    pub tensors: &'a [Tensor],
    /// This rank's gradients, one flat buffer a tensor.
    pub gradients: &'a [Vec<f32>],
}

/// One rank's end of a strategy without servers: averages gradients, then runs its own optimizer.
pub struct Collective<A> {
    transport: Box<dyn Transport>,
    average: A,
    optimizer: Box<dyn Optimizer>,
    tensors: Vec<Tensor>,
    exchange: String,
    /// What is added to the mean of each tensor; nothing at all where gradients are not shifted.
    shift: Vec<Vec<f32>>,
    sum: Vec<f32>,
}

impl<A: Average> Collective<A> {
    /// Joins the other ranks, all of which call this at the same time.
    ///
    /// # Errors
    /// `Config` if the setup cannot work or is not that of the other ranks.
    pub fn new(
        mut transport: Box<dyn Transport>,
        setup: &Setup<'_>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, ExchangeError> {
        setup.join(&mut *transport)?;
        Ok(Self {
            average: A::new(setup, transport.rank()),
            transport,
            optimizer,
            tensors: setup.tensors.to_vec(),
            exchange: format!("{} with {} workers", setup.strategy, setup.workers),
            shift: Vec::new(),
            sum: Vec::new(),
        })
    }
}

impl<A: Average> Exchange for Collective<A> {
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
        let mut update = Duration::ZERO;
        let Self { optimizer, shift, sum, .. } = self;
        let result = self.average.average(
            &mut *self.transport,
            Round { step, tensors: &self.tensors, gradients },
            &mut report,
            &mut |index, mean| {
                worked(&mut update, || {
                    let gradient = shifted(mean, shift.get(index), sum);
                    optimizer.update(index, learning_rate, gradient, &mut parameters[index]);
                });
            },
        );
        or_abort(&mut *self.transport, result)?;
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
        let policy = Policy::new(&"none".parse().expect("the registry has 'none'"));
        let setup = Setup {
            strategy: Strategy::AllReduce,
            workers,
            shares: &Shares::equal(workers),
            policy: &policy,
            tensors: &self.tensors,
            seed: 0,
            initial: &[],
        };
        let mut exact = AllReduce::new(&setup, self.transport.rank());
        let round = Round { step, tensors: &self.tensors, gradients: values };
        let (report, shift) = (&mut StepReport::default(), &mut self.shift);
        shift.resize(self.tensors.len(), Vec::new());
        let result = exact.average(&mut *self.transport, round, report, &mut |index, mean| {
            shift[index].clear();
            shift[index].extend_from_slice(mean);
        });
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
        for (tensor, shift) in self.tensors.iter().zip(&self.shift) {
            state.set_floats(&format!("shift/{}", tensor.name()), shift.clone());
        }
        self.average.save(state);
        self.optimizer.save("optimizer/", state);
        Ok(())
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        state.expect_setting("exchange", &self.exchange)?;
        self.shift = saved_shift(&self.tensors, state)?;
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

/// A mean and what is added to it, in `sum`; the mean itself where nothing is.
fn shifted<'a>(mean: &'a [f32], shift: Option<&Vec<f32>>, sum: &'a mut Vec<f32>) -> &'a [f32] {
    let Some(shift) = shift else { return mean };
    sum.clear();
    sum.extend(mean.iter().zip(shift).map(|(mean, shift)| mean + shift));
    sum
}

/// The shift in a state; nothing where gradients were not shifted.
fn saved_shift(tensors: &[Tensor], state: &State) -> Result<Vec<Vec<f32>>, ExchangeError> {
    let mut all = Vec::with_capacity(tensors.len());
    for tensor in tensors {
        let entry = format!("shift/{}", tensor.name());
        match state.floats(&entry) {
            Ok(shift) if shift.len() == tensor.elements() => all.push(shift.to_vec()),
            Ok(shift) => {
                let (found, expected) = (shift.len(), tensor.elements());
                return Err(StateError::WrongSize { entry, found, expected }.into());
            }
            Err(_) => return Ok(Vec::new()),
        }
    }
    Ok(all)
}
