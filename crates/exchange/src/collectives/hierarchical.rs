//! Hierarchical exchange: at full precision inside a node, compressed between nodes.
//!
//! A node consists of `node` consecutive ranks (the last node may have fewer). Its first rank is
//! the leader. The network inside a node is assumed to be fast. Three phases:
//!
//! 1. Members send their gradients to their leader as `f32`. The leader averages them and its own
//!    in rank order, with their weights in the node.
//! 2. Leaders compress the node's mean and all-gather the messages between them. Each leader
//!    decodes the messages of all nodes in order, weighted by the weights of their ranks.
//! 3. Leaders send the mean to their members as `f32`.
//!
//! All leaders add the same messages in the same order, and members take their leader's sum, so all
//! ranks hold the same bits. Only leaders keep residuals and other state of compressors, and random
//! draws use the leader's rank. With `node=1` every rank is a leader and this is all-gather, to the
//! bit.
//!
//! With tensors of `b` bytes and messages of `c` bytes, a member sends and receives `b` bytes. The
//! leader of a node of `K` ranks sends and receives `(K − 1)·b` bytes inside the node, and
//! `(m − 1)·c` bytes between `m` nodes. A rank that does not take part in a round sends an empty
//! message; so does the leader of a node without participants.

use std::ops::Range;

use gradwire::{Encoder, Floats, Spec};

use super::collective::{Collective, Reduction};
use super::packed;
use crate::codecs::Sender;
use crate::device::Values;
use crate::patience::patience;
use crate::{ExchangeError, Operation, Phase, Result, elements};

/// Averages hierarchically; see the [module](self).
pub(crate) struct Hierarchical {
    /// Ranks of a node.
    node: usize,
    /// Turns a member's gradients into bytes; keeps no state.
    raw: Encoder,
    /// The node's messages, or a member's gradients, or the mean as it is sent.
    outgoing: Vec<u8>,
    incoming: Vec<u8>,
    message: Vec<u8>,
    addends: Vec<f32>,
}

impl Collective for Hierarchical {
    fn reduce(&mut self, step: &mut Reduction<'_>, values: Values<'_>) -> Result<()> {
        let values = values.on_host()?;
        let members = self.members(step, step.transport.rank());
        if step.transport.rank() == members.start {
            self.average_node(step, members.clone(), values)?;
            self.average_leaders(step, values)?;
            self.send_mean(step, members, values)
        } else {
            self.reduce_as_member(step, members.start, values)
        }
    }
}

impl Hierarchical {
    pub(crate) fn new(node: usize) -> Self {
        Self {
            node,
            raw: Encoder::new(&Spec::none(), 0, 0),
            outgoing: Vec::new(),
            incoming: Vec::new(),
            message: Vec::new(),
            addends: Vec::new(),
        }
    }

    /// The ranks of the node of `rank`.
    fn members(&self, step: &Reduction<'_>, rank: usize) -> Range<usize> {
        let leader = rank - rank % self.node;
        leader..leader.saturating_add(self.node).min(step.weights.len())
    }

    /// Sends the gradients to the leader and receives the mean.
    fn reduce_as_member(
        &mut self,
        step: &mut Reduction<'_>,
        leader: usize,
        values: &mut [f32],
    ) -> Result<()> {
        let (up, down) = inside(step.step);
        self.outgoing.clear();
        if step.weights[step.transport.rank()] > 0.0 {
            step.compress(|step| self.encode_raw(step, values))?;
        }
        step.wire(|transport| transport.send(leader, up, &self.outgoing))?;
        // A leader waits for its members, then for other leaders.
        let patience = patience(step.transport.deadline(), 2);
        let incoming = &mut self.incoming;
        step.wire(|transport| transport.recv_within(leader, down, patience, incoming))?;
        expect_length(leader, down, &self.incoming, 4 * values.len())?;
        self.addends.clear();
        elements::widen_onto(&self.incoming, &mut self.addends);
        values.copy_from_slice(&self.addends);
        Ok(())
    }

    /// Appends the gradients to `self.outgoing`, as `f32`.
    fn encode_raw(&mut self, step: &mut Reduction<'_>, values: &[f32]) -> Result<()> {
        for (at, tensor) in step.group.tensors.iter().enumerate() {
            let gradient = Floats::F32(&values[step.group.ranges[at].clone()]);
            let start = self.outgoing.len();
            self.raw.encode(tensor, step.step, gradient, &mut self.outgoing)?;
            step.codecs.note_raw(step.group.indices[at], self.outgoing.len() - start);
        }
        Ok(())
    }

    /// As a leader: makes `values` the mean of the node's gradients.
    fn average_node(
        &mut self,
        step: &mut Reduction<'_>,
        members: Range<usize>,
        values: &mut [f32],
    ) -> Result<()> {
        let (up, _) = inside(step.step);
        let whole: f32 = step.weights[members.clone()].iter().sum();
        for rank in members {
            let (part, weight) = (step.weights[rank], step.weights[rank] / whole);
            if rank == step.transport.rank() {
                match part > 0.0 {
                    true => values.iter_mut().for_each(|value| *value *= weight),
                    false => values.fill(0.0),
                }
                continue;
            }
            step.wire(|transport| transport.recv(rank, up, &mut self.incoming))?;
            if part == 0.0 {
                packed::finish(rank, &self.incoming, 0, up)?;
                continue;
            }
            expect_length(rank, up, &self.incoming, 4 * values.len())?;
            self.addends.clear();
            elements::widen_onto(&self.incoming, &mut self.addends);
            add(values, &self.addends, weight);
        }
        Ok(())
    }

    /// As a leader: makes `values`, the node's mean, the mean of all nodes' messages.
    fn average_leaders(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()> {
        let (own, size) = (step.transport.rank(), step.transport.size());
        let between = step.operation(Phase::Gather);
        let weights = step.weights;
        let weight = |members: Range<usize>| weights[members].iter().sum::<f32>();
        self.outgoing.clear();
        if self.members(step, own).len() > 1 {
            // The squares belong to the leader's own gradient; the node's mean counts as a single
            // part.
            step.squares = None;
        }
        if weight(self.members(step, own)) != 0.0 {
            let Self { outgoing, message, .. } = self;
            step.compress(|step| step.encode_all(values, outgoing, message))?;
        }
        if weights[own] == 0.0 {
            let Reduction { codecs, group, .. } = step;
            group.indices.iter().for_each(|&index| codecs.carry_nothing(index));
        }
        let patience = patience(step.transport.deadline(), 1);
        let leaders = || (0..size).step_by(self.node);
        for to in leaders().filter(|&to| to > own).chain(leaders().filter(|&to| to < own)) {
            step.wire(|transport| transport.send(to, between, &self.outgoing))?;
        }
        values.fill(0.0);
        for leader in (0..size).step_by(self.node) {
            if leader != own {
                let incoming = &mut self.incoming;
                step.wire(|transport| transport.recv_within(leader, between, patience, incoming))?;
            }
            let sender = Sender::one_of_all(leader, weight(self.members(step, leader)));
            let packed = if leader == own { &self.outgoing } else { &self.incoming };
            let pieces = step.group.pieces();
            step.decompress(|step| step.decode_all(Phase::Gather, sender, packed, pieces, values))?;
        }
        step.decompress(|step| {
            step.group.pieces().try_for_each(|piece| step.aggregate(&piece, values))
        })
    }

    /// As a leader: sends the mean to the members.
    fn send_mean(
        &mut self,
        step: &mut Reduction<'_>,
        members: Range<usize>,
        means: &[f32],
    ) -> Result<()> {
        let (_, down) = inside(step.step);
        self.outgoing.clear();
        if members.len() > 1 {
            elements::narrow_onto(means, &mut self.outgoing);
        }
        step.wire(|transport| {
            members.skip(1).try_for_each(|to| transport.send(to, down, &self.outgoing))
        })
    }
}

/// The operations of gradients on their way to the leader, and of the mean on its way back.
fn inside(step: u64) -> (Operation<'static>, Operation<'static>) {
    (Operation::whole(Phase::Scatter, step), Operation::whole(Phase::Broadcast, step))
}

fn add(sum: &mut [f32], values: &[f32], weight: f32) {
    sum.iter_mut().zip(values).for_each(|(sum, value)| *sum += weight * value);
}

/// Refuses a message that does not have `expected` bytes.
fn expect_length(
    from: usize,
    operation: Operation<'_>,
    message: &[u8],
    expected: usize,
) -> Result<()> {
    if message.len() == expected {
        return Ok(());
    }
    let what = format!("{} bytes instead of {expected}", message.len());
    Err(ExchangeError::protocol(from, operation, what))
}
