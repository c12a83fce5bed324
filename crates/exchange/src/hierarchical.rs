//! Hierarchical exchange: at full precision inside a node, compressed between nodes.
//!
//! A node is `node` consecutive ranks (the last may have fewer), its leader the first of them; inside, the
//! network is taken to be fast. Three phases:
//!
//! 1. Members send their gradients to their leader as `f32`, which averages them, its own among
//!    them, in rank order, each by its part in the node's.
//! 2. Leaders compress the node's mean, and all-gather the messages between them. Each decodes those of all
//!    nodes in their order, weighed by the nodes' parts in the whole.
//! 3. Leaders send the mean to their members, as `f32`.
//!
//! All leaders add the same messages in the same order, and members take their leader's sum, so that
//! all ranks hold the same bits. Residuals, and whatever else a compressor keeps, are the leaders': what
//! a node's message leaves out stays with its leader; draws are those of the leader's rank. A member's message leaves
//! nothing out. With `node=1` every rank is a leader and this is all-gather, to the bit.
//!
//! With tensors of `b` bytes and messages of `c`, a member sends and receives b, the leader of a node of `k`
//! sends and receives (k − 1)·b inside the node, and (m − 1)·c between `m` nodes. Who does not take
//! part in a round sends an empty message; a node of whom nobody does compresses nothing.

use std::ops::Range;

use crate::distributed_optimizer::{timed, worked};
use crate::policy::Route;
use crate::{
    Average, Ends, Exchange, ExchangeError, GroupConfig, Operation, Phase, Round, StepReport,
    Transport, elements, fused,
};

/// Averages hierarchically; see the [module](self).
pub struct Hierarchical {
    ends: Ends,
    /// Ranks of a node.
    node: usize,
    /// The node's messages, or a member's gradients, or the mean as it travels.
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    addends: Vec<f32>,
}

impl Average for Hierarchical {
    fn new(setup: &GroupConfig<'_>, rank: usize) -> Self {
        let node = match setup.exchange {
            Exchange::Hierarchical { node } => node,
            _ => 1,
        };
        Self {
            ends: Ends::new(setup, rank),
            node,
            outgoing: Vec::new(),
            incoming: Vec::new(),
            addends: Vec::new(),
        }
    }

    fn average(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        self.ends.begin(round.step);
        let members = self.members(transport.rank());
        if transport.rank() == members.start {
            self.average_node(transport, members.clone(), round, values, report)?;
            self.average_leaders(transport, round, values, report)?;
            self.spread(transport, members, round, values, report)
        } else {
            self.follow(transport, members.start, round, values, report)
        }
    }

    fn ends(&self) -> &Ends {
        &self.ends
    }

    fn ends_mut(&mut self) -> &mut Ends {
        &mut self.ends
    }
}

impl Hierarchical {
    /// The ranks of a rank's node.
    fn members(&self, rank: usize) -> Range<usize> {
        let leader = rank - rank % self.node;
        leader..leader.saturating_add(self.node).min(self.ends.parts.len())
    }

    /// The part of some ranks in the mean of the round.
    fn part(&self, members: Range<usize>) -> f32 {
        self.ends.parts[members].iter().sum()
    }

    /// As a member: gradients to the leader, the mean back.
    fn follow(
        &mut self,
        transport: &mut dyn Transport,
        leader: usize,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let (up, down) = inside(round.step);
        self.outgoing.clear();
        if self.ends.parts[transport.rank()] > 0.0 {
            worked(&mut report.compress, || self.encode_raw(round, values))?;
        }
        timed(&mut report.wire, || transport.send(leader, up, &self.outgoing))?;
        // A leader waits for its members, then for other leaders.
        let patience = transport.deadline() * 6 / 4;
        timed(&mut report.wire, || {
            transport.recv_within(leader, down, patience, &mut self.incoming)
        })?;
        self.expect_floats(leader, down, values.len())?;
        self.addends.clear();
        elements::widen_onto(&self.incoming, &mut self.addends);
        values.copy_from_slice(&self.addends);
        Ok(())
    }

    /// Lays the gradients in `self.outgoing`, as `f32`.
    fn encode_raw(&mut self, round: Round<'_>, values: &[f32]) -> Result<(), ExchangeError> {
        let Ends { sender, carried, message, .. } = &mut self.ends;
        for (index, tensor) in round.tensors.iter().enumerate() {
            let gradient = &values[round.ranges[index].clone()];
            sender.encode(tensor, Route::Raw, round.step, gradient, message)?;
            carried.note(index, 0, sender, message);
            self.outgoing.extend_from_slice(message);
        }
        Ok(())
    }

    /// As a leader: makes `values` the mean of the node's gradients.
    fn average_node(
        &mut self,
        transport: &mut dyn Transport,
        members: Range<usize>,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let (up, _) = inside(round.step);
        let whole = self.part(members.clone());
        for rank in members {
            let weight = self.ends.parts[rank] / whole;
            // The leader is the first of them.
            if rank == transport.rank() {
                match self.ends.parts[rank] > 0.0 {
                    true => values.iter_mut().for_each(|value| *value *= weight),
                    false => values.fill(0.0),
                }
                continue;
            }
            timed(&mut report.wire, || transport.recv(rank, up, &mut self.incoming))?;
            if self.ends.parts[rank] == 0.0 {
                fused::finish(rank, &self.incoming, 0, up)?;
                continue;
            }
            self.expect_floats(rank, up, values.len())?;
            self.addends.clear();
            elements::widen_onto(&self.incoming, &mut self.addends);
            add(values, &self.addends, weight);
        }
        Ok(())
    }

    /// As a leader: makes `values`, the node's mean, the mean of all nodes' messages.
    fn average_leaders(
        &mut self,
        transport: &mut dyn Transport,
        round: Round<'_>,
        values: &mut [f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let (own, size) = (transport.rank(), transport.size());
        let between = Operation::whole(Phase::Gather, round.step);
        self.outgoing.clear();
        if self.part(self.members(own)) != 0.0 {
            let Self { ends, outgoing, .. } = self;
            worked(&mut report.compress, || ends.encode(round, values, outgoing))?;
        }
        let patience = transport.deadline() * 5 / 4;
        let leaders = || (0..size).step_by(self.node);
        for to in leaders().filter(|&to| to > own).chain(leaders().filter(|&to| to < own)) {
            timed(&mut report.wire, || transport.send(to, between, &self.outgoing))?;
        }
        values.fill(0.0);
        for leader in (0..size).step_by(self.node) {
            if leader != own {
                timed(&mut report.wire, || {
                    transport.recv_within(leader, between, patience, &mut self.incoming)
                })?;
            }
            let weight = self.part(self.members(leader));
            let Self { ends, outgoing, incoming, .. } = self;
            let fused = if leader == own { outgoing } else { incoming };
            worked(&mut report.decompress, || ends.add((leader, weight), fused, round, values))?;
        }
        worked(&mut report.decompress, || self.ends.aggregate(round, values));
        Ok(())
    }

    /// As a leader: sends the mean to the members.
    fn spread(
        &mut self,
        transport: &mut dyn Transport,
        members: Range<usize>,
        round: Round<'_>,
        means: &[f32],
        report: &mut StepReport,
    ) -> Result<(), ExchangeError> {
        let (_, down) = inside(round.step);
        self.outgoing.clear();
        if members.len() > 1 {
            elements::narrow_onto(means, &mut self.outgoing);
        }
        timed(&mut report.wire, || {
            members.skip(1).try_for_each(|to| transport.send(to, down, &self.outgoing))
        })
    }

    /// Refuses a message that does not have the whole model's floats.
    fn expect_floats(
        &self,
        from: usize,
        operation: Operation<'_>,
        elements: usize,
    ) -> Result<(), ExchangeError> {
        let expected = 4 * elements;
        if self.incoming.len() == expected {
            return Ok(());
        }
        Err(ExchangeError::Protocol {
            peer: from,
            operation: operation.to_string(),
            what: format!("{} bytes where {expected} belong", self.incoming.len()),
        })
    }
}

/// What travels up to the leader, and down from it.
fn inside(step: u64) -> (Operation<'static>, Operation<'static>) {
    (Operation::whole(Phase::Scatter, step), Operation::whole(Phase::Broadcast, step))
}

fn add(sum: &mut [f32], values: &[f32], weight: f32) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
}
