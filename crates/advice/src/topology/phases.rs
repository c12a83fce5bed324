//! The bytes and latencies of a plan, phase by phase.

use gradwire_exchange::{Exchange, HEADER_BYTES, Link};
use serde::Serialize;

use super::plan::{Levels, Plan, Transport};
use super::ranks::Topology;

/// The bytes of messages.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Message {
    /// Bits of an element.
    pub bits: f64,
    /// Bytes of each message that do not depend on its length.
    pub constant: f64,
}

impl Message {
    /// Elements as they are, in this number of bits each.
    pub const fn plain(bits: f64) -> Self {
        Self { bits, constant: 0.0 }
    }

    /// The bytes of a message of this many elements.
    pub fn bytes(self, elements: f64) -> f64 {
        self.bits * elements / 8.0 + self.constant
    }

    /// With the header that gradwire's own transports send ahead of a message.
    pub fn with_header(self) -> Self {
        Self { constant: self.constant + HEADER_BYTES as f64, ..self }
    }
}

/// A part of an exchange that waits for the part before it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Phase {
    /// Bytes in the busier direction of a rank's link inside its node.
    pub inside: f64,
    /// Bytes in the busier direction of a node's link.
    pub between: f64,
    /// Latencies inside a node, one after the other.
    pub waits_inside: f64,
    /// Latencies between nodes, one after the other.
    pub waits_between: f64,
    /// Messages that a rank sends, apart from those of the framework's rings.
    pub messages: f64,
}

impl Phase {
    /// Its seconds, if each message takes `a_message` seconds apart from its bytes.
    pub fn seconds(&self, at: &Topology, a_message: f64) -> f64 {
        let seconds = |bytes: f64, link: Link| 8.0 * bytes / link.bits_per_second;
        f64::max(seconds(self.inside, at.inside), seconds(self.between, at.between))
            + self.waits_inside * at.inside.latency.as_secs_f64()
            + self.waits_between * at.between.latency.as_secs_f64()
            + self.messages * a_message
    }
}

/// The latencies of a tree of this many members.
fn depth(members: usize) -> f64 {
    f64::from(members.next_power_of_two().trailing_zeros())
}

/// The ranks that exchange messages, as seen from one of them. All `ranks_per_node` ranks of a node
/// send at the same time, in one group or in a group each.
struct Group {
    /// Other members on this rank's node.
    near: usize,
    /// Members on other nodes.
    far: usize,
    /// Nodes with members.
    nodes: usize,
    /// Ranks that send over a node's link.
    senders: usize,
    /// Rings through a node's link: one if the group has all its ranks, otherwise one for each.
    rings: usize,
}

impl Group {
    fn of(levels: Levels, at: &Topology) -> Self {
        let (nodes, senders) = (at.nodes, at.ranks_per_node);
        match levels {
            Levels::Flat => {
                Self { near: senders - 1, far: at.ranks() - senders, nodes, senders, rings: 1 }
            }
            Levels::Two | Levels::Sites => {
                Self { near: 0, far: nodes - 1, nodes, senders, rings: senders }
            }
        }
    }

    fn others(&self) -> f64 {
        (self.near + self.far) as f64
    }

    /// Each rank sends `bytes` to each other rank.
    fn to_each(&self, bytes: f64) -> Phase {
        Phase {
            inside: self.near as f64 * bytes,
            between: (self.senders * self.far) as f64 * bytes,
            waits_inside: if self.near > 0 { 1.0 } else { 0.0 },
            waits_between: if self.far > 0 { 1.0 } else { 0.0 },
            messages: self.others(),
        }
    }

    /// A collective of the framework, in which `bytes` go through each link of a ring.
    fn ring(&self, bytes: f64) -> Phase {
        Phase {
            inside: if self.near > 0 { bytes } else { 0.0 },
            between: if self.far > 0 { self.rings as f64 * bytes } else { 0.0 },
            waits_inside: depth(self.near + 1),
            waits_between: depth(self.nodes),
            messages: 0.0,
        }
    }

    /// Every rank gets a message of `bytes` of every other rank.
    fn gather(&self, bytes: f64, transport: Transport) -> Phase {
        match transport {
            Transport::Device => self.ring(self.others() * bytes),
            Transport::Host => self.to_each(bytes),
        }
    }

    /// The framework's all-reduce of `bytes`: each part is reduced on its way through the nodes.
    fn reduce(&self, bytes: f64) -> Phase {
        let share = |members: f64| 2.0 * bytes * (members - 1.0) / members;
        let ring = self.ring(share(self.others() + 1.0));
        Phase {
            between: self.rings as f64 * share(self.nodes as f64),
            waits_inside: 2.0 * ring.waits_inside,
            waits_between: 2.0 * ring.waits_between,
            ..ring
        }
    }
}

impl Plan {
    /// The phases of the exchange of a bucket of this many elements, whose gradients have `bytes`.
    ///
    /// # Panics
    /// For exchanges other than all-reduce, all-gather and scatter-reduce.
    pub fn phases(&self, at: &Topology, message: Message, elements: f64, bytes: f64) -> Vec<Phase> {
        let (group, own) = (Group::of(self.levels, at), elements * self.share(at));
        let members = group.others() + 1.0;
        let mut phases = match self.exchange {
            Exchange::AllReduce => vec![group.reduce(message.bytes(own))],
            Exchange::AllGather => vec![group.gather(message.bytes(own), self.transport)],
            Exchange::ScatterReduce => {
                let slice = message.bytes(own / members);
                vec![group.to_each(slice), group.gather(slice, self.transport)]
            }
            other => panic!("{other} is no exchange of gradients between nodes"),
        };
        if self.levels == Levels::Two && at.ranks_per_node > 1 {
            let k = at.ranks_per_node;
            let inside = bytes * (k as f64 - 1.0) / k as f64;
            let phase = Phase { inside, waits_inside: depth(k), ..Phase::default() };
            phases.insert(0, phase);
            phases.push(phase);
        }
        phases
    }
}

#[cfg(test)]
mod tests;
