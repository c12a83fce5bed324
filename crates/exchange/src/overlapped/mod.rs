//! An exchange that begins before the last gradient is known.
//!
//! The tensors are in groups, in the order in which back-propagation comes to them. A trainer hands gradients over one
//! after the other ([`DistributedOptimizer::early`]); as soon as a group is complete and those before it have left, a thread of
//! this rank's own averages it ([`Reducer`], [`ReducerThread`]) while the trainer computes the rest. [`DistributedOptimizer::step`]
//! takes what has not come, waits for the means, and runs the optimizer on each as it comes. All messages go through
//! that thread, also those beside the exchange of tensors.
//!
//! Every rank averages the same groups in the same order, whether it hands gradients over early or not. Results are
//! those of [`Collective`](crate::Collective) to the bit, but for scatter-reduce, which cuts each tensor by itself
//! here. Bytes are the same but for headers, of which every group has its own.
//!
//! After an error parameters may have taken some groups' part of a step and not others'.
//!
//! What is hidden is the time that the thread works while the trainer computes. It takes a core: where all are busy
//! with other ranks, only waiting for the link can be hidden. The thread holds gradients and means a second time.

mod groups;
mod line;

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::{panic, thread};

use gradwire::{State, Tensor};

pub use groups::fuse;
use line::{Carried, Done, Hands, Line};

use crate::distributed_optimizer::{timed, worked};
use crate::group_config::check_lengths;
use crate::{
    DistributedOptimizer, Exchange, ExchangeError, GradientSink, GroupConfig, Model, OnNonFinite,
    Optimizer, Reducer, ReducerThread, StepReport, Transport, digest,
};

/// One rank's end of an exchange that begins early; see the [module](self).
pub struct Overlapped {
    hands: Arc<Hands>,
    done: Receiver<Done>,
    optimizer: Box<dyn Optimizer>,
    tensors: Vec<Tensor>,
    groups: Vec<Vec<usize>>,
    /// Of each tensor, what the last message carried.
    carried: Vec<Carried>,
    exchange: String,
}

impl Overlapped {
    /// Joins the other ranks, all of which call this at the same time. `groups` has each tensor once, by its index.
    ///
    /// # Errors
    /// `Config` if the setup cannot work or is not that of the other ranks, for other strategies than all-reduce,
    /// all-gather and scatter-reduce, where only some ranks take part in a round, and for compressors that
    /// [keep squares](DistributedOptimizer::keeps_squares).
    pub fn new(
        mut transport: Box<dyn Transport>,
        setup: &GroupConfig<'_>,
        groups: Vec<Vec<usize>>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self, ExchangeError> {
        check(setup)?;
        groups::check(&groups, setup.tensors.len())?;
        setup.join_as(&mut *transport, &format!("overlapped in groups {groups:?}\n"))?;
        let rank = transport.rank();
        let model = Model {
            exchange: setup.exchange,
            policy: setup.policy.clone(),
            tensors: setup.tensors.to_vec(),
            seed: setup.seed,
            on_non_finite: OnNonFinite::Refuse,
        };
        let buckets = Reducer::new(transport, model)?.with_shares(setup.shares.clone());
        let background = ReducerThread::new(&format!("exchange {rank}"), buckets)?;
        let (sender, done) = mpsc::channel();
        let line = Line::new(&groups, setup.tensors, background, sender);
        Ok(Self {
            hands: Arc::new(Hands::new(line)),
            done,
            optimizer,
            tensors: setup.tensors.to_vec(),
            groups,
            carried: vec![Carried::default(); setup.tensors.len()],
            exchange: Self::saved_as(setup.exchange, setup.workers),
        })
    }

    /// What its states say they are of: the plain exchange, whose states fit, but for scatter-reduce.
    pub fn saved_as(exchange: Exchange, workers: usize) -> String {
        let by_tensor = if exchange == Exchange::ScatterReduce { " of each tensor" } else { "" };
        format!("{exchange}{by_tensor} with {workers} workers")
    }

    /// Asks the thread, after all that was handed over.
    fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Reducer) -> R + Send + 'static,
    ) -> Result<R, ExchangeError> {
        let line = self.hands.lock();
        let answer = line.background.as_ref().and_then(|background| background.ask(question));
        answer.ok_or_else(line::gone)
    }

    /// Waits for the mean of the next group.
    fn wait(&self) -> Result<Done, ExchangeError> {
        let mut done = self.done.recv().map_err(|_| line::gone())?;
        match std::mem::replace(&mut done.outcome, Ok(Ok(()))) {
            Ok(outcome) => outcome.map(|()| done),
            Err(panic) => panic::resume_unwind(panic),
        }
    }

    /// Updates the parameters of a group, and keeps what is asked for later.
    fn finish(&mut self, group: usize, rate: f32, mut done: Done, parameters: &mut [Vec<f32>]) {
        let (mut rest, mut carried) = (done.values.as_slice(), done.carried.drain(..));
        for &index in &self.groups[group] {
            let (mean, others) = rest.split_at(self.tensors[index].elements());
            rest = others;
            self.optimizer.update(index, rate, mean, &mut parameters[index]);
            self.carried[index] = carried.next().unwrap_or_default();
        }
        drop(carried);
        self.hands.lock().give_back(group, done.values);
    }
}

/// Refuses what does not go tensor by tensor.
fn check(setup: &GroupConfig<'_>) -> Result<(), ExchangeError> {
    let refuse = |reason: &str| Err(ExchangeError::Config(reason.to_owned()));
    setup.validate()?;
    if !setup.shares.everyone() {
        return refuse(
            "groups of tensors are averaged over all ranks; have every rank take part in every round, or do \
             not overlap",
        );
    }
    if setup.pushes().any(|spec| spec.compressor().keeps_squares()) {
        return refuse(
            "a compressor that goes by parts of gradients needs them whole; do not overlap, or take \
             another",
        );
    }
    Ok(())
}

impl DistributedOptimizer for Overlapped {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn early(&mut self, step: u64) -> Option<Arc<dyn GradientSink>> {
        let mut line = self.hands.lock();
        if line.other_than(step).is_some() {
            return None;
        }
        line.begin(step);
        drop(line);
        Some(self.hands.clone())
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
        let mut line = self.hands.lock();
        if let Some(other) = line.other_than(step) {
            return Err(ExchangeError::Config(format!(
                "step {step} while step {other} is in progress; end that first"
            )));
        }
        line.complete(step, gradients);
        drop(line);
        let mut report = StepReport::default();
        let (mut waited, mut background, mut update) = Default::default();
        for group in 0..self.groups.len() {
            let done = timed(&mut waited, || self.wait())?;
            background += done.busy;
            report = done.report;
            worked(&mut update, || self.finish(group, learning_rate, done, parameters));
        }
        Ok(StepReport { update, background, waited, ..report })
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        self.carried[index].positions.as_deref()
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.carried[index].bytes
    }

    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        let name = self.tensors[index].name().to_owned();
        let pieces = self.ask(move |buckets| buckets.residual(&name));
        pieces.unwrap_or_default().iter().for_each(|piece| show(piece));
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>, ExchangeError> {
        Ok(None)
    }

    fn save(&mut self, state: &mut State) -> Result<(), ExchangeError> {
        state.merge("", self.ask(|buckets| buckets.kept())?);
        state.set_setting("exchange", self.exchange.clone());
        self.optimizer.save("optimizer/", state);
        Ok(())
    }

    fn restore(&mut self, state: &State) -> Result<(), ExchangeError> {
        state.expect_setting("exchange", &self.exchange)?;
        let kept = state.clone();
        self.ask(|buckets| buckets.keep(kept))??;
        Ok(self.optimizer.restore("optimizer/", state)?)
    }

    fn collect(&mut self, own: Vec<u8>) -> Result<Option<Vec<Vec<u8>>>, ExchangeError> {
        self.ask(|buckets| buckets.collect(own))?
    }

    fn announce(&mut self, message: &mut Vec<u8>) -> Result<(), ExchangeError> {
        let mut own = std::mem::take(message);
        *message = self.ask(|buckets| buckets.announce(&mut own).map(|()| own))??;
        Ok(())
    }

    fn check(&mut self, step: u64, parameters: &[Vec<f32>]) -> Result<(), ExchangeError> {
        let digest = digest(parameters);
        self.ask(move |buckets| buckets.check_parameters(step, digest))?
    }
}

/// Waits until the thread has left the others: whoever brought the transport may need it back. What has not begun by
/// then is not sent. A rank that panics stops the others.
impl Drop for Overlapped {
    fn drop(&mut self) {
        let mut line = self.hands.lock();
        line.stop();
        let Some(background) = line.background.take() else { return };
        drop(line);
        if thread::panicking() {
            background.submit(Reducer::abort);
        }
        background.join();
    }
}
