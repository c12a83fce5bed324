//! Nodes, ranks and their links.

use gradwire_exchange::{ExchangeError, Link, Result};

/// Machines of several ranks each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Topology {
    /// Machines, or sites.
    pub nodes: usize,
    /// Ranks of each node.
    pub ranks_per_node: usize,
    /// Each rank's link to the other ranks of its node.
    pub inside: Link,
    /// Each node's link to the other nodes, which its ranks share.
    pub between: Link,
}

/// The most ranks, as elsewhere.
const MOST: usize = 65_536;

impl Topology {
    /// The number of all ranks, n.
    pub fn ranks(&self) -> usize {
        self.nodes * self.ranks_per_node
    }

    /// Refuses a topology that cannot exist, or that needs no exchange.
    ///
    /// # Errors
    /// `Config`, with the remedy.
    pub fn check(&self) -> Result<()> {
        let Self { nodes, ranks_per_node, inside, between } = self;
        let refuse = |reason: String| Err(ExchangeError::config(reason));
        if *nodes == 0 || *ranks_per_node == 0 {
            return refuse(format!(
                "{nodes} nodes of {ranks_per_node} ranks have no rank; give at least one of each"
            ));
        }
        let ranks = nodes.checked_mul(*ranks_per_node);
        if ranks == Some(1) {
            return refuse(
                "a single rank exchanges nothing; give more nodes, or more ranks per node"
                    .to_owned(),
            );
        }
        if ranks.is_none_or(|ranks| ranks > MOST) {
            return refuse(format!(
                "{nodes} nodes of {ranks_per_node} ranks are more than {MOST} ranks; give fewer"
            ));
        }
        for (name, link) in [("inside a node", inside), ("between nodes", between)] {
            if link.bits_per_second.is_nan() || link.bits_per_second < 1.0 {
                return refuse(format!(
                    "the link {name} has {} bit/s; give at least 1 bit/s",
                    link.bits_per_second
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let link = Link::mbit(1.0);
        let of =
            |nodes, ranks_per_node| Topology { nodes, ranks_per_node, inside: link, between: link };
        let reason = |topology: Topology| topology.check().unwrap_err().to_string();
        assert!(reason(of(0, 4)).contains("at least one of each"));
        assert!(reason(of(1, 1)).contains("more nodes"));
        assert!(reason(of(usize::MAX, 2)).contains("give fewer"));
        assert!(reason(of(65_537, 1)).contains("give fewer"));
        assert!(
            reason(Topology { between: Link::mbit(0.0), ..of(2, 2) }).contains("between nodes")
        );
        assert!(reason(Topology { inside: Link::mbit(f64::NAN), ..of(2, 2) }).contains("inside"));
        assert!(of(1, 2).check().is_ok() && of(65_536, 1).check().is_ok());
    }
}
