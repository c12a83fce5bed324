//! Plans: an exchange, its levels and its transport.

use std::fmt;

use gradwire_exchange::Exchange;
use serde::{Serialize, Serializer};

use super::ranks::Topology;

/// The ranks between which messages travel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Levels {
    /// All ranks of all nodes.
    Flat,
    /// A reduction inside each node; then the ranks with the same slice on all nodes; then a gather
    /// inside each node.
    Two,
    /// Each rank of a site holds a shard of the model, and exchanges it with the ranks that hold
    /// the same shard at other sites.
    Sites,
}

/// Who sends messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// Forms of a fixed length travel from GPU to GPU, by the collectives of the framework.
    Device,
    /// The host compresses a copy of the gradients, with lossless codes, and sends the messages.
    Host,
}

impl Transport {
    /// The name, as the argument `transport` of PyTorch's `register` takes it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Host => "host",
        }
    }
}

/// How a bucket is averaged.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Plan {
    /// All-reduce, all-gather or scatter-reduce.
    #[serde(serialize_with = "name")]
    pub exchange: Exchange,
    /// The ranks between which messages travel.
    pub levels: Levels,
    /// Who sends them.
    pub transport: Transport,
}

fn name<S: Serializer>(exchange: &Exchange, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(exchange)
}

impl Plan {
    /// The framework's own uncompressed all-reduce between all ranks.
    pub const PLAIN: Self =
        Self { exchange: Exchange::AllReduce, levels: Levels::Flat, transport: Transport::Device };

    /// The ranks that exchange messages with each other: n, or N on two levels and at sites.
    pub fn group(&self, at: &Topology) -> usize {
        match self.levels {
            Levels::Flat => at.ranks(),
            Levels::Two | Levels::Sites => at.nodes,
        }
    }

    /// The share of a bucket's elements that a rank compresses: all, or 1/k.
    pub fn share(&self, at: &Topology) -> f64 {
        match self.levels {
            Levels::Flat => 1.0,
            Levels::Two | Levels::Sites => 1.0 / at.ranks_per_node as f64,
        }
    }

    /// Every plan that gradwire offers between these ranks for messages that do or do not add up,
    /// `adds`, and can or cannot stay on the GPU, `on_device`. With one node or one rank a node,
    /// all plans are flat.
    pub fn all(at: &Topology, adds: bool, on_device: bool) -> Vec<Self> {
        if adds {
            return vec![Self::PLAIN];
        }
        let all_levels = [Levels::Flat, Levels::Two];
        let levels = &all_levels[..if at.nodes > 1 && at.ranks_per_node > 1 { 2 } else { 1 }];
        let transports: &[Transport] =
            if on_device { &[Transport::Host, Transport::Device] } else { &[Transport::Host] };
        let of = |&levels| transports.iter().flat_map(move |&one| Self::by(levels, one));
        levels.iter().flat_map(of).collect()
    }

    /// Every plan between sites whose ranks hold shards.
    pub fn between_sites(adds: bool) -> Vec<Self> {
        match adds {
            true => vec![Self { levels: Levels::Sites, ..Self::PLAIN }],
            false => Self::by(Levels::Sites, Transport::Host).to_vec(),
        }
    }

    fn by(levels: Levels, transport: Transport) -> [Self; 2] {
        let of = |exchange| Self { exchange, levels, transport };
        [Exchange::AllGather, Exchange::ScatterReduce].map(of)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let levels = match self.levels {
            Levels::Flat => "",
            Levels::Two => ", two levels",
            Levels::Sites => ", sites",
        };
        write!(out, "{}{levels}", self.exchange)
    }
}
