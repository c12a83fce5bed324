//! A server: its requests, and the bulk-synchronous mode.

mod asynchronous;
mod checkpoint;
mod gathering;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use gradwire::Floats;

use self::gathering::Gathering;
use super::slot::{PushOutcome, Slot};
use super::staleness::Staleness;
use super::{assign, parameters};
use crate::codecs::{Codecs, Sender};
use crate::control;
use crate::error::refuse;
use crate::report::worked;
use crate::transport::or_abort;
use crate::{
    ExchangeError, GroupConfig, Header, Operation, Optimizer, Participation, Phase, Result,
    Traffic, Transport,
};

/// A server: holds some of the tensors, and serves until every worker has left.
pub struct Server {
    transport: Box<dyn Transport>,
    optimizer: Box<dyn Optimizer>,
    slots: Vec<Slot>,
    /// For each tensor of the model, its slot, if this server holds it.
    slot_of: Vec<Option<usize>>,
    workers: usize,
    /// The number of pushes that a step does not wait for.
    backups: usize,
    /// Pushes that complete the step in progress.
    needed: usize,
    participation: Participation,
    /// The weight of each worker in the mean of the step in progress; 0 for workers that do not
    /// take part.
    weights: Vec<f32>,
    /// Workers that have not left.
    present: Vec<usize>,
    /// The latest step that a worker has begun.
    begun: Option<Begun>,
    gathering: Option<Gathering>,
    /// `Some` in an asynchronous server.
    staleness: Option<Staleness>,
    pushes: Codecs,
    pulls: Codecs,
    mean: Vec<f32>,
    delta: Vec<f32>,
    message: Vec<u8>,
    report: ServerReport,
}

/// A step that a worker has begun.
#[derive(Clone, Copy)]
struct Begun {
    step: u64,
    learning_rate: f32,
    since: Instant,
}

/// The work of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ServerReport {
    /// Tensor updates: steps times tensors held.
    pub updates: u64,
    /// Pushes that came after their step was done, and were dropped.
    pub late: u64,
    /// Time spent encoding model deltas.
    pub compress: Duration,
    /// Time spent decoding gradients.
    pub decompress: Duration,
    /// Time spent in the optimizer.
    pub update: Duration,
    /// Bytes sent and received, headers, handshake and checkpoints included.
    pub traffic: Traffic,
}

impl Server {
    /// Joins the other ranks. All ranks call this at the same time. The optimizer will see only the
    /// tensors that this server holds.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work or differs between ranks.
    pub fn new(
        mut transport: Box<dyn Transport>,
        config: &GroupConfig<'_>,
        optimizer: Box<dyn Optimizer>,
    ) -> Result<Self> {
        if !optimizer.exchanges_gradients() {
            return refuse(
                "a server applies gradients, but this optimizer does not exchange gradients; use \
                 an exchange without servers",
            );
        }
        control::join(config, &mut *transport, "")?;
        let (servers, backups, synchronization) = parameters(config.exchange)?;
        let (rank, workers) = (transport.rank(), config.workers());
        let mut slots = Vec::new();
        let mut slot_of = vec![None; config.tensors.len()];
        for (index, home) in assign(config.tensors, servers).into_iter().enumerate() {
            if home + workers == rank {
                let (tensor, initial) = (&config.tensors[index], &config.initial[index]);
                slot_of[index] = Some(slots.len());
                slots.push(Slot::new(index, tensor.clone(), initial.clone(), workers));
            }
        }
        let staleness = (!synchronization.is_synchronous())
            .then(|| Staleness::new(synchronization.staleness_bound(), config, rank, &slots));
        Ok(Self {
            transport,
            optimizer,
            slots,
            slot_of,
            workers,
            backups,
            needed: workers - backups,
            participation: config.participation.clone(),
            weights: vec![1.0; workers],
            present: (0..workers).collect(),
            begun: None,
            gathering: None,
            staleness,
            pushes: Codecs::of_pushes(config, rank),
            pulls: Codecs::of_pulls(config, rank),
            mean: Vec::new(),
            delta: Vec::new(),
            message: Vec::new(),
            report: ServerReport::default(),
        })
    }

    /// Serves until every worker has left.
    ///
    /// # Errors
    /// `PeerLost` if a worker leaves while it is still needed; `Deadline`, naming the worker whose
    /// push is missing; malformed messages and state. An error stops all ranks.
    pub fn run(mut self) -> Result<ServerReport> {
        let served = self.serve();
        or_abort(&mut *self.transport, served)?;
        self.report.traffic = self.transport.traffic();
        Ok(self.report)
    }

    fn serve(&mut self) -> Result<()> {
        let mut buffer = Vec::new();
        let mut gone = None;
        while !self.present.is_empty() {
            let waiting = Operation::whole(Phase::Push, self.step());
            let until = self.overdue().unwrap_or_else(Instant::now) + self.transport.deadline();
            match self.transport.recv_any(&self.present, waiting, until, &mut buffer) {
                Ok((worker, header)) => self.handle(worker, header, &mut buffer)?,
                Err(ExchangeError::PeerLost { peer, .. }) if self.present.contains(&peer) => {
                    self.present.retain(|&worker| worker != peer);
                    // Workers that left before were not missed.
                    gone = Some(peer);
                }
                // If nothing is in progress, the workers are computing.
                Err(ExchangeError::Deadline { .. }) if self.overdue().is_none() => {}
                Err(error) => return Err(self.blame(error)),
            }
            if let Some(peer) = gone {
                self.expect_no_more_of(peer)?;
            }
        }
        self.expect_as_many_of_all()
    }

    /// The latest step that a worker has begun.
    fn step(&self) -> u64 {
        self.begun.map_or(0, |begun| begun.step)
    }

    /// The time when the step, request or held answer in progress began, whichever began first.
    fn overdue(&self) -> Option<Instant> {
        let step = self.behind().and(self.begun).map(|begun| begun.since);
        let gathering = self.gathering.as_ref().map(|gathering| gathering.since);
        let held = self.staleness.as_ref().and_then(Staleness::overdue).map(|(since, ..)| since);
        step.into_iter().chain(gathering).chain(held).min()
    }

    /// The step whose pushes are awaited, in the bulk-synchronous mode. It begins before the first
    /// push, which may be the missing one: workers that do not take part in the step begin it, too.
    fn awaited_step(&self) -> Option<u64> {
        self.begun.map(|begun| begun.step).filter(|_| self.staleness.is_none())
    }

    /// The first tensor whose step has begun but is not done.
    fn behind(&self) -> Option<&Slot> {
        let begun = self.awaited_step();
        self.slots.iter().find(|slot| slot.is_behind(begun))
    }

    /// Names the worker whose message is missing in the error of a missed deadline.
    fn blame(&self, error: ExchangeError) -> ExchangeError {
        let ExchangeError::Deadline { .. } = error else { return error };
        let deadline = self.transport.deadline();
        if let Some((peer, operation)) = self.keeps_waiting() {
            return ExchangeError::late(peer, operation, deadline);
        }
        let behind = self.behind();
        let missing = match (behind, &self.gathering) {
            (Some(slot), _) => slot.missing(&self.weights),
            (None, Some(gathering)) => gathering.arrived.iter().position(|arrived| !arrived),
            (None, None) => None,
        };
        match self.awaited(behind) {
            Some(operation) => ExchangeError::late(missing.unwrap_or(0), operation, deadline),
            None => error,
        }
    }

    /// The operation of the message that is waited for: a push for `slot`, or a request of all
    /// workers.
    fn awaited<'a>(&self, slot: Option<&'a Slot>) -> Option<Operation<'a>> {
        let gathering = self.gathering.as_ref();
        let push = slot.map(|slot| slot.operation(Phase::Push, self.step()));
        push.or_else(|| gathering.map(|one| Operation::whole(one.phase, one.step)))
    }

    fn expect_no_more_of(&self, peer: usize) -> Result<()> {
        let still_to_push: Vec<usize> =
            self.present.iter().copied().filter(|&worker| self.weights[worker] > 0.0).collect();
        self.expect_nobody_gone()?;
        let begun = self.awaited_step();
        let stuck =
            self.slots.iter().find(|slot| slot.is_stuck(begun, &still_to_push, self.needed));
        let awaited = self.awaited(stuck);
        awaited.map_or(Ok(()), |operation| Err(ExchangeError::lost(peer, operation)))
    }

    fn handle(&mut self, worker: usize, header: Header, payload: &mut Vec<u8>) -> Result<()> {
        match header.phase {
            Phase::Begin => self.begin(worker, header, payload),
            Phase::Push => self.push(worker, header, payload),
            Phase::Model => self.send_model(worker, header),
            Phase::Save | Phase::Restore => self.arrive(worker, header, payload),
            _ => Err(self.refuse(worker, header)),
        }
    }

    fn refuse(&self, worker: usize, header: Header) -> ExchangeError {
        ExchangeError::protocol(worker, Operation::whole(Phase::Push, self.step()), header)
    }

    /// Stores a step and its learning rate, which the first worker to begin the step determines. In
    /// the bulk-synchronous mode no worker may begin a step while pushes of the previous step are
    /// missing: the mean would mix both steps.
    fn begin(&mut self, worker: usize, header: Header, payload: &[u8]) -> Result<()> {
        let Some((step, learning_rate)) = decode_begin(payload) else {
            return Err(self.refuse(worker, header));
        };
        if let Some(staleness) = &mut self.staleness {
            staleness.begun[worker] = Some((step, learning_rate));
        }
        if self.begun.is_none_or(|begun| begun.step < step) {
            if self.staleness.is_none() && self.slots.iter().any(Slot::is_incomplete) {
                return Err(self.refuse(worker, header));
            }
            self.begun = Some(Begun { step, learning_rate, since: Instant::now() });
            self.participation.weights_at(step, &mut self.weights);
            self.needed =
                self.weights.iter().filter(|&&weight| weight > 0.0).count() - self.backups;
        }
        Ok(())
    }

    fn push(&mut self, worker: usize, header: Header, payload: &mut Vec<u8>) -> Result<()> {
        let at = header.tensor.and_then(|index| self.slot_of.get(index).copied().flatten());
        let (Some(at), Some(Begun { step, learning_rate, .. })) = (at, self.begun) else {
            return Err(self.refuse(worker, header));
        };
        if self.staleness.is_some() {
            return self.apply_push(worker, header, at, payload);
        }
        // A worker begins a step when it has all pulls of the previous step, so all steps but the
        // latest are done.
        if header.step != step as u32 {
            return self.drop_late(worker, header);
        }
        if self.weights[worker] == 0.0 {
            return Err(self.refuse(worker, header));
        }
        match self.slots[at].push(worker, step, payload, self.needed) {
            PushOutcome::Waiting => Ok(()),
            PushOutcome::Complete => self.update(at, step, learning_rate),
            PushOutcome::Late => self.drop_late(worker, header),
            PushOutcome::Repeated => Err(self.refuse(worker, header)),
        }
    }

    /// Drops and counts a push whose step is done. Without backup workers a step waits for all
    /// pushes, so none comes late.
    fn drop_late(&mut self, worker: usize, header: Header) -> Result<()> {
        if self.backups == 0 {
            return Err(self.refuse(worker, header));
        }
        self.report.late += 1;
        Ok(())
    }

    /// Averages a tensor's pushes, updates it, and sends its change to all workers.
    fn update(&mut self, at: usize, step: u64, rate: f32) -> Result<()> {
        let Self { slots, pushes, pulls, optimizer, mean, delta, report, weights, .. } = self;
        let slot = &mut slots[at];
        // With backup workers, the weights of the workers that came first add up to the whole.
        let whole: f32 = match self.backups {
            0 => 1.0,
            _ => slot.accepted().map(|(worker, _)| weights[worker]).sum(),
        };
        mean.clear();
        mean.resize(slot.tensor.elements(), 0.0);
        pushes.begin(slot.index, step);
        pulls.begin(slot.index, step);
        worked(&mut report.decompress, || {
            slot.accepted().try_for_each(|(worker, push)| {
                let weight = weights[worker] / whole;
                let sender = Sender::one_of_all(worker, weight);
                pushes.at(&slot.piece(), step).add(sender, push, mean)
            })?;
            pushes.at(&slot.piece(), step).aggregate(mean)?;
            pushes.add_changes(slot.index, mean);
            Ok::<(), gradwire::Error>(())
        })?;
        delta.clear();
        delta.extend_from_slice(&slot.parameters);
        worked(&mut report.update, || {
            optimizer.update(slot.index, rate, mean, &mut slot.parameters);
        });
        let mut compress = Duration::ZERO;
        worked(&mut compress, || self.encode_change(at, step))?;
        self.report.compress += compress;
        self.slots[at].finish(step);
        self.report.updates += 1;
        let pull = self.slots[at].operation(Phase::Pull, step);
        let mut present = self.present.iter();
        present.try_for_each(|&to| send_unless_left(&mut *self.transport, to, pull, &self.message))
    }

    /// Replaces `self.message` with a tensor's change from the parameters in `self.delta`. If no
    /// residual is kept, the workers hold these parameters, and the values that the message omits
    /// are lost: the server continues from the parameters that it has sent, with the workers' bits.
    fn encode_change(&mut self, at: usize, step: u64) -> Result<(), gradwire::Error> {
        let rank = self.transport.rank();
        let Self { slots, pulls, mean: held, delta, message, .. } = self;
        let slot = &mut slots[at];
        let keeps_residual = pulls.keeps_residual(&slot.tensor);
        if !keeps_residual {
            held.copy_from_slice(delta);
        }
        for (delta, new) in delta.iter_mut().zip(&slot.parameters) {
            *delta = new - *delta;
        }
        pulls.at(&slot.piece(), step).encode(Floats::F32(delta).into(), message)?;
        if keeps_residual {
            return Ok(());
        }
        pulls.at(&slot.piece(), step).add(Sender::alone(rank), message, held)?;
        std::mem::swap(&mut slot.parameters, held);
        Ok(())
    }
}

/// Sends a message to a worker that may have left. Whether the worker is missed is decided when its
/// pushes are needed.
fn send_unless_left(
    transport: &mut dyn Transport,
    to: usize,
    operation: Operation<'_>,
    message: &[u8],
) -> Result<()> {
    match transport.send(to, operation, message) {
        Err(ExchangeError::PeerLost { peer, .. }) if peer == to => Ok(()),
        sent => sent,
    }
}

/// The payload of `Begin`: the step, and the learning rate.
pub(super) fn encode_begin(step: u64, rate: f32) -> [u8; 12] {
    let mut bytes = [0; 12];
    bytes[..8].copy_from_slice(&step.to_le_bytes());
    bytes[8..].copy_from_slice(&rate.to_le_bytes());
    bytes
}

fn decode_begin(payload: &[u8]) -> Option<(u64, f32)> {
    let (step, rate) = payload.split_at_checked(8)?;
    let step = u64::from_le_bytes(step.try_into().ok()?);
    Some((step, f32::from_le_bytes(rate.try_into().ok()?)))
}
