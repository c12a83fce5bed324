//! The strategies by name: `all-reduce`, `server:servers=2,backup=1`.

use std::fmt;
use std::str::FromStr;

/// How the ranks of a run exchange their tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    /// Messages are added on their way; for linear compressors only.
    AllReduce,
    /// Every rank gets every message and averages by itself.
    AllGather,
    /// Every rank averages one slice of the model and compresses the average for all.
    ScatterReduce,
    /// Sums of sparse messages meet pairwise and grow; for sparse compressors only.
    SparseAllReduce,
    /// At full precision inside a node, compressed between the nodes' leaders.
    Hierarchical {
        /// Consecutive ranks of a node, at least 1; the last node may have fewer.
        node: usize,
    },
    /// Workers push gradients to servers and pull model deltas.
    ParameterServer {
        /// Servers the tensors are spread over, at least 1.
        servers: usize,
        /// Backup workers: a step goes on without the last so many pushes.
        backups: usize,
        /// Whether workers wait for each other.
        pace: Pace,
    },
}

/// Whether the workers of a parameter server wait for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Every step takes the mean of all: bulk-synchronous.
    #[default]
    Together,
    /// No worker is more than so many steps ahead of the slowest: stale-synchronous.
    Within(u64),
    /// Nobody waits for anybody: asynchronous.
    Alone,
}

impl Pace {
    /// For workers at their own pace, the steps that one may be ahead of the slowest, `None` for any
    /// number of them.
    pub(crate) fn bound(self) -> Option<Option<u64>> {
        match self {
            Pace::Together => None,
            Pace::Within(steps) => Some(Some(steps)),
            Pace::Alone => Some(None),
        }
    }

    /// Whether all workers hold the same after the same step.
    pub(crate) fn keeps_equal(self) -> bool {
        matches!(self, Pace::Together | Pace::Within(0))
    }
}

/// The names and what each takes, as error messages and help list them.
const KNOWN: &str = "all-reduce, all-gather, scatter-reduce, sparse-all-reduce, hierarchical[:node=N], \
                     server[:servers=N,backup=N,stale=N,mode=async]";

/// Ranks of a node, unless a strategy says otherwise.
const NODE: usize = 2;

/// Why a text names no strategy.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StrategyError {
    /// No strategy has this name.
    #[error("unknown exchange '{0}'; known ones: {KNOWN}")]
    Unknown(String),
    /// A parameter that the strategy does not have, or a value that it does not take.
    #[error(
        "exchange '{name}': '{item}' is not allowed; give servers=N (from 1), backup=N, stale=N (from 0) \
         or mode=async to server, node=N (from 1) to hierarchical, and nothing to the others"
    )]
    BadItem {
        /// The strategy.
        name: String,
        /// What was given.
        item: String,
    },
}

impl Strategy {
    /// The names and parameters of all strategies, in one line.
    pub const KNOWN: &'static str = KNOWN;

    /// Whether some ranks send for others.
    pub fn leads(&self) -> bool {
        matches!(self, Self::Hierarchical { node: 2.. })
    }

    /// Ranks that are servers, not workers.
    pub fn servers(&self) -> usize {
        match self {
            Strategy::ParameterServer { servers, .. } => *servers,
            _ => 0,
        }
    }

    /// Whether all workers hold the same parameters after the same step: not those at their own pace.
    pub fn keeps_equal(&self) -> bool {
        match self {
            Strategy::ParameterServer { pace, .. } => pace.keeps_equal(),
            _ => true,
        }
    }

    /// How many times a worker sends what it compresses, in messages of the whole model: the
    /// receivers, K in equation 1 of the SBC paper. Sums in a sparse all-reduce grow, so that this is the least; in
    /// a hierarchy it is what a leader sends to others.
    pub fn receivers(&self, workers: usize) -> f64 {
        let others = workers.saturating_sub(1) as f64;
        match self {
            Strategy::ParameterServer { .. } => 1.0,
            Strategy::AllGather => others,
            Strategy::AllReduce | Strategy::ScatterReduce => 2.0 * others / workers.max(1) as f64,
            Strategy::SparseAllReduce => f64::from(workers.max(1).ilog2()),
            Strategy::Hierarchical { node } => {
                workers.div_ceil((*node).max(1)).saturating_sub(1) as f64
            }
        }
    }

    /// Ranks of a run with so many workers: workers first, then servers.
    pub fn ranks(&self, workers: usize) -> usize {
        workers + self.servers()
    }
}

/// One parameter server and no backup workers.
impl Default for Strategy {
    fn default() -> Self {
        Strategy::ParameterServer { servers: 1, backups: 0, pace: Pace::Together }
    }
}

impl fmt::Display for Strategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (servers, backups, pace) = match *self {
            Strategy::AllReduce => return f.write_str("all-reduce"),
            Strategy::AllGather => return f.write_str("all-gather"),
            Strategy::ScatterReduce => return f.write_str("scatter-reduce"),
            Strategy::SparseAllReduce => return f.write_str("sparse-all-reduce"),
            Strategy::Hierarchical { node: NODE } => return f.write_str("hierarchical"),
            Strategy::Hierarchical { node } => return write!(f, "hierarchical:node={node}"),
            Strategy::ParameterServer { servers, backups, pace } => (servers, backups, pace),
        };
        let items = [
            (servers != 1).then(|| format!("servers={servers}")),
            (backups != 0).then(|| format!("backup={backups}")),
            match pace {
                Pace::Together => None,
                Pace::Within(steps) => Some(format!("stale={steps}")),
                Pace::Alone => Some("mode=async".to_owned()),
            },
        ];
        let items: Vec<_> = items.into_iter().flatten().collect();
        let colon = if items.is_empty() { "" } else { ":" };
        write!(f, "server{colon}{}", items.join(","))
    }
}

impl FromStr for Strategy {
    type Err = StrategyError;

    fn from_str(text: &str) -> Result<Self, StrategyError> {
        let (name, items) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let mut strategy = match name {
            "all-reduce" => Strategy::AllReduce,
            "all-gather" => Strategy::AllGather,
            "scatter-reduce" => Strategy::ScatterReduce,
            "sparse-all-reduce" => Strategy::SparseAllReduce,
            "hierarchical" => Strategy::Hierarchical { node: NODE },
            "server" => Strategy::default(),
            _ => return Err(StrategyError::Unknown(name.to_owned())),
        };
        for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            strategy.set(item).ok_or_else(|| StrategyError::BadItem {
                name: name.to_owned(),
                item: item.to_owned(),
            })?;
        }
        Ok(strategy)
    }
}

impl Strategy {
    fn set(&mut self, item: &str) -> Option<()> {
        let (key, value) = item.split_once('=')?;
        if (key.trim(), value.trim()) == ("mode", "async") {
            let Strategy::ParameterServer { pace: pace @ Pace::Together, .. } = self else {
                return None;
            };
            *pace = Pace::Alone;
            return Some(());
        }
        let value: usize = value.trim().parse().ok()?;
        match (self, key.trim()) {
            (Strategy::ParameterServer { servers, .. }, "servers") if value > 0 => *servers = value,
            (Strategy::ParameterServer { backups, .. }, "backup") => *backups = value,
            (Strategy::ParameterServer { pace: pace @ Pace::Together, .. }, "stale") => {
                *pace = Pace::Within(value as u64);
            }
            (Strategy::Hierarchical { node }, "node") if value > 0 => *node = value,
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
            assert_eq!(text.parse::<Strategy>().unwrap().to_string(), text);
        }
        let strategy: Strategy = "server: backup = 3 , servers=2".parse().unwrap();
        assert_eq!(
            strategy,
            Strategy::ParameterServer { servers: 2, backups: 3, pace: Pace::Together }
        );
        assert_eq!(strategy.ranks(4), 6);
    }

    #[test]
    fn what_is_unknown_is_named_with_what_is_known() {
        let error = "ring".parse::<Strategy>().unwrap_err().to_string();
        assert!(error.contains("'ring'") && error.contains("scatter-reduce"), "{error}");
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
            let error = text.parse::<Strategy>().unwrap_err().to_string();
            assert!(error.contains("servers=N"), "{error}");
        }
    }
}
