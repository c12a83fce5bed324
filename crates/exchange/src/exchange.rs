//! The exchanges by name: `all-reduce`, `server:servers=2,backup=1`.

use std::fmt;
use std::str::FromStr;

use gradwire::suggestion;

/// How the ranks of a run exchange their tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exchange {
    /// Messages are added on the way; for linear compressors, and multi-round methods such as
    /// `powersgd`.
    AllReduce,
    /// Every rank receives every message and averages by itself.
    AllGather,
    /// Every rank averages one slice of the model and compresses the average for all.
    ScatterReduce,
    /// Every rank gets the mean of its own shard of the model; for sharded models, not for a
    /// trainer of replicas.
    ReduceScatter,
    /// Every rank gets the shards of all ranks, which are not averaged: for the parameters of a
    /// sharded model.
    GatherShards,
    /// Ranks exchange sums of sparse messages pairwise; for sparse compressors only.
    SparseAllReduce,
    /// At full precision inside a node, compressed between the nodes' leaders.
    Hierarchical {
        /// Consecutive ranks of a node, at least 1; the last node may have fewer.
        node: usize,
    },
    /// Workers push gradients to servers and pull model deltas.
    ParameterServer {
        /// The number of servers that share the tensors, at least 1.
        servers: usize,
        /// Backup workers: the number of pushes that a step does not wait for.
        backups: usize,
        /// Whether workers wait for each other.
        synchronization: Synchronization,
    },
}

/// Properties of an exchange, apart from how it averages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeFacts {
    /// Whether groups of tensors can be averaged one by one; if not, only the whole model at once.
    pub averages_groups: bool,
    /// Whether ranks hold shards of one model instead of replicas.
    pub is_sharded: bool,
    /// Whether a worker sends its own messages only: no sums that grow on the way, and nothing on
    /// behalf of other ranks.
    pub sends_own_messages: bool,
    /// Whether ranks that do not take part in a step still send means.
    pub absent_ranks_send: bool,
}

/// Whether the workers of a parameter server wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Synchronization {
    /// Every step applies the mean of all workers: bulk-synchronous.
    #[default]
    Synchronous,
    /// No worker is more than this number of steps ahead of the slowest: stale-synchronous.
    BoundedStaleness(u64),
    /// No worker waits for another: asynchronous.
    Asynchronous,
}

impl Synchronization {
    /// Whether every step applies the mean of all workers.
    pub(crate) fn is_synchronous(self) -> bool {
        self == Self::Synchronous
    }

    /// The number of steps that a worker may be ahead of the slowest; `None` for any number.
    pub(crate) fn staleness_bound(self) -> Option<u64> {
        match self {
            Synchronization::Synchronous => Some(0),
            Synchronization::BoundedStaleness(steps) => Some(steps),
            Synchronization::Asynchronous => None,
        }
    }
}

/// The names and parameters of the exchanges for replicas, as error messages and help texts list
/// them.
const KNOWN: &str = "all-reduce, all-gather, scatter-reduce, sparse-all-reduce, hierarchical[:node=N], \
                     server[:servers=N,backup=N,stale=N|mode=async]";

/// The exchanges with their default parameters, by name.
const DEFAULTS: [(&str, Exchange); 8] = [
    ("all-reduce", Exchange::AllReduce),
    ("all-gather", Exchange::AllGather),
    ("scatter-reduce", Exchange::ScatterReduce),
    ("reduce-scatter", Exchange::ReduceScatter),
    ("gather-shards", Exchange::GatherShards),
    ("sparse-all-reduce", Exchange::SparseAllReduce),
    ("hierarchical", Exchange::Hierarchical { node: 2 }),
    ("server", SERVER),
];

const SERVER: Exchange = Exchange::ParameterServer {
    servers: 1,
    backups: 0,
    synchronization: Synchronization::Synchronous,
};

/// The names of the exchanges for replicas.
fn names() -> impl Iterator<Item = &'static str> {
    DEFAULTS.iter().filter(|(_, exchange)| !exchange.facts().is_sharded).map(|(name, _)| *name)
}

/// Why a text is not the name of an exchange.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParseExchangeError {
    /// No exchange has this name.
    #[error("unknown exchange '{0}'{near}; known ones: {KNOWN}", near = suggestion(.0, names()))]
    Unknown(String),
    /// A parameter that the exchange does not have, or a value that is out of range.
    #[error(
        "exchange '{name}': '{item}' is not allowed; server takes servers=N (from 1), backup=N, and either stale=N \
         (from 0) or mode=async; hierarchical takes node=N (from 1); the other exchanges take no settings"
    )]
    BadItem {
        /// The exchange.
        name: String,
        /// The given text.
        item: String,
    },
}

impl Exchange {
    /// The names and parameters of all exchanges that keep replicas of a model, in one line.
    pub const KNOWN: &'static str = KNOWN;

    /// The properties of this exchange that other parts of the program depend on.
    pub fn facts(&self) -> ExchangeFacts {
        let facts = ExchangeFacts {
            averages_groups: true,
            is_sharded: false,
            sends_own_messages: true,
            absent_ranks_send: false,
        };
        match self {
            Self::AllReduce | Self::AllGather => facts,
            Self::ScatterReduce => ExchangeFacts { absent_ranks_send: true, ..facts },
            Self::ReduceScatter | Self::GatherShards => ExchangeFacts { is_sharded: true, ..facts },
            Self::SparseAllReduce | Self::Hierarchical { .. } => {
                ExchangeFacts { averages_groups: false, sends_own_messages: false, ..facts }
            }
            Self::ParameterServer { .. } => ExchangeFacts { averages_groups: false, ..facts },
        }
    }

    /// Whether some ranks (leaders) send on behalf of other ranks.
    pub fn leads(&self) -> bool {
        matches!(self, Self::Hierarchical { node: 2.. })
    }

    /// Ranks that are servers, not workers.
    pub fn servers(&self) -> usize {
        match self {
            Exchange::ParameterServer { servers, .. } => *servers,
            _ => 0,
        }
    }

    /// Whether all workers hold the same parameters after the same step: false for asynchronous
    /// servers, unless `stale=0`.
    pub fn keeps_replicas_identical(&self) -> bool {
        let Exchange::ParameterServer { synchronization, .. } = self else { return true };
        matches!(
            synchronization,
            Synchronization::Synchronous | Synchronization::BoundedStaleness(0)
        )
    }

    /// The number of receivers, K in equation 1 of the SBC paper: how many times a worker sends its
    /// messages of one step. A lower bound for sparse all-reduce, whose sums grow; in a
    /// hierarchical exchange, the number for a leader.
    pub fn receivers(&self, workers: usize) -> f64 {
        let others = workers.saturating_sub(1) as f64;
        match self {
            Exchange::ParameterServer { .. } => 1.0,
            Exchange::AllGather => others,
            Exchange::ReduceScatter | Exchange::GatherShards => others / workers.max(1) as f64,
            Exchange::AllReduce | Exchange::ScatterReduce => 2.0 * others / workers.max(1) as f64,
            Exchange::SparseAllReduce => f64::from(workers.max(1).ilog2()),
            Exchange::Hierarchical { node } => {
                workers.div_ceil((*node).max(1)).saturating_sub(1) as f64
            }
        }
    }

    /// The number of phases of a step. Each begins when a message of the previous phase has
    /// arrived.
    pub fn phases(&self, workers: usize) -> u32 {
        match *self {
            Exchange::AllGather | Exchange::ReduceScatter | Exchange::GatherShards => 1,
            Exchange::AllReduce | Exchange::ScatterReduce => 2,
            Exchange::SparseAllReduce => {
                let folds = if workers.is_power_of_two() { 0 } else { 2 };
                workers.max(1).ilog2() + folds
            }
            Exchange::Hierarchical { node: 1 } => 1,
            Exchange::Hierarchical { node } if node >= workers => 2,
            Exchange::Hierarchical { .. } => 3,
            Exchange::ParameterServer { .. } => 2,
        }
    }

    /// Ranks of a run with `workers` workers: workers first, then servers.
    pub fn ranks(&self, workers: usize) -> usize {
        workers + self.servers()
    }
}

/// One parameter server and no backup workers.
impl Default for Exchange {
    fn default() -> Self {
        SERVER
    }
}

impl fmt::Display for Exchange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = DEFAULTS.iter().find(|(_, default)| default == self) {
            return f.write_str(name);
        }
        let items = match *self {
            Exchange::ParameterServer { servers, backups, synchronization } => [
                (servers != 1).then(|| format!("servers={servers}")),
                (backups != 0).then(|| format!("backup={backups}")),
                match synchronization {
                    Synchronization::Synchronous => None,
                    Synchronization::BoundedStaleness(steps) => Some(format!("stale={steps}")),
                    Synchronization::Asynchronous => Some("mode=async".to_owned()),
                },
            ],
            Exchange::Hierarchical { node } => return write!(f, "hierarchical:node={node}"),
            _ => [None, None, None],
        };
        write!(f, "server:{}", items.into_iter().flatten().collect::<Vec<_>>().join(","))
    }
}

impl FromStr for Exchange {
    type Err = ParseExchangeError;

    fn from_str(text: &str) -> Result<Self, ParseExchangeError> {
        let (name, items) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let default = DEFAULTS.iter().find(|(known, _)| *known == name);
        let (_, mut exchange) =
            *default.ok_or_else(|| ParseExchangeError::Unknown(name.to_owned()))?;
        for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            exchange.set(item).ok_or_else(|| ParseExchangeError::BadItem {
                name: name.to_owned(),
                item: item.to_owned(),
            })?;
        }
        Ok(exchange)
    }
}

impl Exchange {
    /// Sets a parameter from `KEY=VALUE`; `None` if the exchange does not have it or refuses the
    /// value.
    fn set(&mut self, item: &str) -> Option<()> {
        use Synchronization::Synchronous;
        let (key, value) = item.split_once('=')?;
        let (key, value) = (key.trim(), value.trim());
        match (self, key, value.parse()) {
            (Exchange::ParameterServer { servers, .. }, "servers", Ok(count @ 1..)) => {
                *servers = count;
            }
            (Exchange::ParameterServer { backups, .. }, "backup", Ok(count)) => *backups = count,
            (
                Exchange::ParameterServer { synchronization: mode @ Synchronous, .. },
                "stale",
                Ok(steps),
            ) => *mode = Synchronization::BoundedStaleness(steps as u64),
            (
                Exchange::ParameterServer { synchronization: mode @ Synchronous, .. },
                "mode",
                Err(_),
            ) if value == "async" => *mode = Synchronization::Asynchronous,
            (Exchange::Hierarchical { node }, "node", Ok(count @ 1..)) => *node = count,
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_both_ways() {
        for text in [
            "all-reduce",
            "all-gather",
            "scatter-reduce",
            "reduce-scatter",
            "gather-shards",
            "sparse-all-reduce",
            "hierarchical",
            "hierarchical:node=4",
            "server",
            "server:servers=2",
            "server:backup=1",
            "server:servers=2,backup=1",
            "server:stale=0",
            "server:servers=2,stale=3",
            "server:mode=async",
        ] {
            assert_eq!(text.parse::<Exchange>().unwrap().to_string(), text);
        }
        let exchange: Exchange = "server: backup = 3 , servers=2".parse().unwrap();
        let synchronization = Synchronization::Synchronous;
        assert_eq!(exchange, Exchange::ParameterServer { servers: 2, backups: 3, synchronization });
        assert_eq!(exchange.ranks(4), 6);
    }

    #[test]
    fn phases_are_counted_as_in_the_guide() {
        for (text, workers, phases) in [
            ("all-gather", 5, 1),
            ("all-reduce", 5, 2),
            ("scatter-reduce", 5, 2),
            // Doublings of 4 ranks, and two phases with the other two.
            ("sparse-all-reduce", 6, 4),
            ("sparse-all-reduce", 8, 3),
            ("hierarchical:node=4", 8, 3),
            ("hierarchical:node=8", 8, 2),
            ("hierarchical:node=1", 8, 1),
            ("server", 5, 2),
        ] {
            let exchange: Exchange = text.parse().unwrap();
            assert_eq!(exchange.phases(workers), phases, "{text}, {workers} workers");
        }
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_known() {
        let error = "ring".parse::<Exchange>().unwrap_err().to_string();
        assert!(error.contains("'ring'") && error.contains("scatter-reduce"), "{error}");
        let error = "allreduce".parse::<Exchange>().unwrap_err().to_string();
        assert!(error.contains("'allreduce' (did you mean 'all-reduce'"), "{error}");
        for text in [
            "server:servers=0",
            "server:copies=2",
            "all-gather:servers=2",
            "server:backup",
            "hierarchical:node=0",
            "hierarchical:servers=2",
            "server:node=2",
            "server:mode=fast",
            "server:mode=async,stale=2",
            "server:stale=-1",
        ] {
            let error = text.parse::<Exchange>().unwrap_err().to_string();
            assert!(error.contains("servers=N"), "{error}");
        }
    }
}
