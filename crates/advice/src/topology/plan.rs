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

    /// Every plan for gradients whose messages do or do not add up, `adds`, between these ranks.
    /// With one node or one rank a node, all plans are flat.
    pub fn all(at: &Topology, adds: bool, has_kernels: bool) -> Vec<Self> {
        if adds {
            return vec![Self::PLAIN];
        }
        let levels: &[Levels] = match at.nodes > 1 && at.ranks_per_node > 1 {
            true => &[Levels::Flat, Levels::Two],
            false => &[Levels::Flat],
        };
        Self::over(levels, has_kernels)
    }

    /// Every plan between sites whose ranks hold shards.
    pub fn between_sites(adds: bool, has_kernels: bool) -> Vec<Self> {
        if adds {
            return vec![Self { levels: Levels::Sites, ..Self::PLAIN }];
        }
        Self::over(&[Levels::Sites], has_kernels)
    }

    fn over(levels: &[Levels], has_kernels: bool) -> Vec<Self> {
        let transports: &[Transport] = match has_kernels {
            true => &[Transport::Device, Transport::Host],
            false => &[Transport::Host],
        };
        let exchanges = [Exchange::AllGather, Exchange::ScatterReduce];
        let of = |&levels: &Levels| {
            let of = move |&transport: &Transport| {
                exchanges.map(|exchange| Self { exchange, levels, transport })
            };
            transports.iter().flat_map(of)
        };
        levels.iter().flat_map(of).collect()
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
