//! A worker of the parameter server.

use std::time::Instant;

use gradwire::{Floats, Input, State, Tensor};

use super::pulls::Pulls;
use super::service::encode_begin;
use super::{assign, parameters};
use crate::codecs::{Codecs, Sender};
use crate::control::{self, Control, TransportJob, TransportOwner};
use crate::error::refuse;
use crate::group::Piece;
use crate::group_config::check_lengths;
use crate::patience::patience;
use crate::report::{timed, worked};
use crate::transport::or_abort;
use crate::{
    DistributedOptimizer, ExchangeError, GroupConfig, Header, Operation, Participation, Phase,
    Result, StepInput, StepReport, Transport, elements, saved_as,
};

/// A worker of the parameter server.
pub struct ServerWorker {
    transport: Box<dyn Transport>,
    tensors: Vec<Tensor>,
    /// For each tensor, the rank of its server.
    homes: Vec<usize>,
    /// The servers' ranks, in any order.
    servers: Vec<usize>,
    workers: usize,
    backups: usize,
    /// Whether all workers hold the same parameters after the same step.
    identical: bool,
    push_codecs: Codecs,
    pull_codecs: Codecs,
    pulls: Pulls,
    /// For each tensor, whether the step's pull is in the parameters.
    applied: Vec<bool>,
    message: Vec<u8>,
    /// The last step that is in the parameters, or in progress.
    step: u64,
    exchange: String,
    participation: Participation,
}

impl ServerWorker {
    /// Joins the other ranks. All ranks call this at the same time.
    ///
    /// # Errors
    /// `Config` if the configuration cannot work or differs between ranks.
    pub fn new(mut transport: Box<dyn Transport>, config: &GroupConfig<'_>) -> Result<Self> {
        control::join(config, &mut *transport, "")?;
        let (servers, backups, _) = parameters(config.exchange)?;
        let (rank, workers) = (transport.rank(), config.workers());
        let homes = assign(config.tensors, servers);
        Ok(Self {
            transport,
            tensors: config.tensors.to_vec(),
            homes: homes.into_iter().map(|home| home + workers).collect(),
            servers: (workers..workers + servers).collect(),
            workers,
            backups,
            identical: config.exchange.keeps_replicas_identical(),
            push_codecs: Codecs::of_pushes(config, rank),
            pull_codecs: Codecs::of_pulls(config, rank),
            pulls: Pulls::new(config.tensors.len()),
            applied: vec![false; config.tensors.len()],
            message: Vec::new(),
            step: 0,
            exchange: saved_as(config.exchange, workers, false),
            participation: config.participation.clone(),
        })
    }

    fn run_step(
        &mut self,
        input: StepInput<'_>,
        parameters: &mut [Vec<f32>],
        report: &mut StepReport,
    ) -> Result<()> {
        let step = self.step;
        self.poll()?;
        (0..self.tensors.len()).for_each(|index| self.push_codecs.begin(index, step));
        let takes_part = self.participation.takes_part(self.transport.rank(), step);
        if self.pulls.complete() != Some(step as u32) {
            self.begin(input.learning_rate)?;
            if takes_part {
                self.push(input, report)?;
            }
        }
        self.pull(step, parameters, report)?;
        self.poll()?;
        while let Some(next) = self.pulls.complete().filter(|_| self.backups > 0) {
            let next = step + u64::from(next.wrapping_sub(step as u32));
            self.pull(next, parameters, report)?;
            self.step = next;
            report.skipped += 1;
            self.poll()?;
        }
        Ok(())
    }

    /// Tells the servers that this worker is at a step. An absent worker does so, too: it waits for
    /// the step's changes, and the servers must notice if a worker that takes part leaves instead.
    fn begin(&mut self, learning_rate: f32) -> Result<()> {
        let begin = encode_begin(self.step, learning_rate);
        for &server in &self.servers {
            self.transport.send(server, Operation::whole(Phase::Begin, self.step), &begin)?;
        }
        Ok(())
    }

    /// Pushes the gradients that the servers still need, from the last tensor to the first.
    fn push(&mut self, input: StepInput<'_>, report: &mut StepReport) -> Result<()> {
        let step = self.step;
        for index in (0..self.tensors.len()).rev() {
            if self.pulls.has(index, step as u32) {
                continue;
            }
            let tensor = &self.tensors[index];
            let given = Input {
                gradient: Floats::F32(&input.gradients[index]),
                squares: input.squares.map(|all| &all[index][..]),
            };
            worked(&mut report.compress, || {
                let piece = Piece::whole(index, tensor);
                self.push_codecs.at(&piece, step).encode(given, &mut self.message)
            })?;
            let push = Operation::tensor(Phase::Push, index, tensor.name(), step);
            timed(&mut report.wire, || {
                self.transport.send(self.homes[index], push, &self.message)
            })?;
        }
        Ok(())
    }

    /// Adds all pulls of one step to the parameters.
    fn pull(
        &mut self,
        step: u64,
        parameters: &mut [Vec<f32>],
        report: &mut StepReport,
    ) -> Result<()> {
        self.applied.fill(false);
        for index in 0..self.tensors.len() {
            if self.pulls.take(index, step as u32, &mut self.message) {
                self.apply(index, step, parameters, report)?;
            }
        }
        while let Some(missing) = self.applied.iter().position(|applied| !applied) {
            let home = self.homes[missing];
            let (from, header) = timed(&mut report.wire, || self.await_pull(missing, step))?;
            let index = self.pulled(from, header)?;
            if header.step == step as u32 && !self.applied[index] {
                self.apply(index, step, parameters, report)?;
            } else if self.backups > 0 || !self.participation.everyone() {
                // A round can end before a worker that does not take part in it has all pulls of
                // the previous round.
                self.pulls.keep(index, header.step, &mut self.message);
            } else {
                let operation =
                    Operation::tensor(Phase::Pull, missing, self.tensors[missing].name(), step);
                return Err(ExchangeError::protocol(home, operation, header));
            }
        }
        Ok(())
    }

    fn apply(
        &mut self,
        index: usize,
        step: u64,
        parameters: &mut [Vec<f32>],
        report: &mut StepReport,
    ) -> Result<()> {
        let home = self.homes[index];
        let (tensor, out) = (&self.tensors[index], &mut parameters[index]);
        self.pull_codecs.begin(index, step);
        worked(&mut report.decompress, || {
            let piece = Piece::whole(index, tensor);
            self.pull_codecs.at(&piece, step).add(Sender::alone(home), &self.message, out)
        })?;
        self.applied[index] = true;
        Ok(())
    }

    /// Waits for a pull of any server; an error names the server that holds tensor `missing`.
    fn await_pull(&mut self, missing: usize, step: u64) -> Result<(usize, Header)> {
        let home = self.homes[missing];
        let at = self.servers.iter().position(|&server| server == home).unwrap_or(0);
        self.servers.swap(0, at);
        let until = self.gives_up_at();
        let operation = Operation::tensor(Phase::Pull, missing, self.tensors[missing].name(), step);
        self.transport.recv_any(&self.servers, operation, until, &mut self.message)
    }

    /// When to give up on a server: after the server's own deadline, because the server's error
    /// names the missing worker.
    fn gives_up_at(&self) -> Instant {
        Instant::now() + patience(self.transport.deadline(), 1)
    }

    /// The tensor of a pull, which must come from that tensor's server.
    fn pulled(&self, from: usize, header: Header) -> Result<usize> {
        header
            .tensor
            .filter(|&index| header.phase == Phase::Pull && self.homes.get(index) == Some(&from))
            .ok_or_else(|| {
                ExchangeError::protocol(from, Operation::whole(Phase::Pull, self.step), header)
            })
    }

    /// Keeps the pulls that have arrived. Without backup workers there are none.
    fn poll(&mut self) -> Result<()> {
        if self.backups == 0 {
            return Ok(());
        }
        let operation = Operation::whole(Phase::Pull, self.step);
        loop {
            let now = Instant::now();
            match self.transport.recv_any(&self.servers, operation, now, &mut self.message) {
                Ok((from, header)) => {
                    let index = self.pulled(from, header)?;
                    self.pulls.keep(index, header.step, &mut self.message);
                }
                Err(ExchangeError::Deadline { .. }) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for a server's answer to a request and stores it in `self.message`.
    fn answer(&mut self, server: usize, operation: Operation<'_>) -> Result<()> {
        loop {
            let until = self.gives_up_at();
            let (_, header) =
                self.transport.recv_any(&[server], operation, until, &mut self.message)?;
            if header.matches(operation) {
                return self.transport.recv_rest(server, operation, &mut self.message);
            }
            let index = self.pulled(server, header)?;
            self.pulls.keep(index, header.step, &mut self.message);
        }
    }

    /// The rank of server `k`.
    fn server(&self, k: usize) -> usize {
        self.workers + k
    }

    fn fetch_model(&mut self) -> Result<Vec<Vec<f32>>> {
        let operation = Operation::whole(Phase::Model, self.step);
        let mut model: Vec<Vec<f32>> = vec![Vec::new(); self.tensors.len()];
        for k in 0..self.servers.len() {
            let server = self.server(k);
            self.transport.send(server, operation, &[])?;
            self.answer(server, operation)?;
            let mut rest = self.message.as_slice();
            for (index, tensor) in self.tensors.iter().enumerate() {
                if self.homes[index] == server {
                    let own;
                    (own, rest) = rest.split_at(rest.len().min(4 * tensor.elements()));
                    elements::widen_onto(own, &mut model[index]);
                }
            }
        }
        check_lengths(&self.tensors, &model)?;
        Ok(model)
    }

    fn save_all(&mut self, state: &mut State) -> Result<()> {
        state.set_setting("exchange", self.exchange.clone());
        self.push_codecs.save("push/", state);
        let operation = Operation::whole(Phase::Save, self.step);
        for k in 0..self.servers.len() {
            self.transport.send(self.server(k), operation, &[])?;
        }
        for k in 0..self.servers.len() {
            self.answer(self.server(k), operation)?;
            if self.transport.rank() == 0 {
                state.merge(&format!("server{k}/"), State::from_bytes(&self.message)?);
            }
        }
        Ok(())
    }

    fn restore_all(&mut self, state: &State) -> Result<()> {
        state.expect_setting("exchange", &self.exchange)?;
        self.push_codecs.restore("push/", state)?;
        let operation = Operation::whole(Phase::Restore, self.step);
        for k in 0..self.servers.len() {
            let mut payload = Vec::new();
            if self.transport.rank() == 0 {
                payload = state.extract(&format!("server{k}/")).to_bytes()?;
            }
            self.transport.send_in_parts(self.server(k), operation, &payload)?;
        }
        for k in 0..self.servers.len() {
            self.answer(self.server(k), operation)?;
        }
        self.pulls = Pulls::new(self.tensors.len());
        Ok(())
    }
}

impl DistributedOptimizer for ServerWorker {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn step(&mut self, input: StepInput<'_>, parameters: &mut [Vec<f32>]) -> Result<StepReport> {
        let mut valid = input.check(&self.tensors, parameters);
        if input.shift.is_some() {
            valid = refuse(
                "servers cannot shift gradients; use all-gather, all-reduce or scatter-reduce",
            );
        }
        or_abort(&mut *self.transport, valid)?;
        let before = self.transport.traffic();
        let mut report = StepReport::default();
        self.step = input.step;
        let done = self.run_step(input, parameters, &mut report);
        or_abort(&mut *self.transport, done)?;
        report.traffic = self.transport.traffic() - before;
        Ok(report)
    }

    fn needs_squares(&self) -> bool {
        self.push_codecs.needs_squares()
    }

    fn sent(&self, index: usize) -> Option<&[u32]> {
        // The server applies the sum of all changes.
        if self.push_codecs.sends_changes(index) {
            return None;
        }
        self.push_codecs.sent_elements(index).positions()
    }

    fn message_bytes(&self, index: usize) -> usize {
        self.push_codecs.sent_elements(index).bytes
    }

    fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        self.push_codecs.residual(index, show);
    }

    fn global_model(&mut self) -> Result<Option<Vec<Vec<f32>>>> {
        let fetched = self.fetch_model();
        or_abort(&mut *self.transport, fetched).map(Some)
    }

    fn save(&mut self, state: &mut State) -> Result<()> {
        let saved = self.save_all(state);
        or_abort(&mut *self.transport, saved)
    }

    fn restore(&mut self, state: &State) -> Result<()> {
        let restored = self.restore_all(state);
        or_abort(&mut *self.transport, restored)
    }

    fn control(&mut self) -> Control<'_> {
        let Self { workers, identical, .. } = *self;
        Control::new(self, workers, identical)
    }
}

impl TransportOwner for ServerWorker {
    fn run(&mut self, task: TransportJob) -> Result<()> {
        let done = task(&mut *self.transport);
        or_abort(&mut *self.transport, done)
    }
}
