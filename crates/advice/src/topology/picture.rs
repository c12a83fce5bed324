//! Pictures of clusters: stated machines, links and models.

use std::time::Duration;

use gradwire_exchange::Link;

use super::hardware::Hardware;
use super::ranks::Topology;
use super::simulation::{BUCKET, model};
use crate::Recording;

/// A kind of cluster with a model that it trains. All of its figures are assumptions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Picture {
    /// Machines and links, in words.
    pub name: &'static str,
    /// The model, in words.
    pub model: &'static str,
    /// The GPUs.
    pub hardware: Hardware,
    /// Whether each node is a site whose ranks hold shards of one replica.
    pub sharded: bool,
    /// Parameters of the model.
    pub parameters: usize,
    /// Elements of a bucket.
    pub bucket: usize,
    /// Seconds of a step without communication. Two thirds of them are the backward pass.
    pub step_seconds: f64,
    /// The number of nodes and of the ranks of each.
    pub sizes: &'static [[usize; 2]],
    /// Bits per second of each rank's link inside its node.
    pub inside: f64,
    /// The latency of that link.
    pub inside_latency: Duration,
    /// Bits per second of the compared links: between nodes, or of single machines inside.
    pub links: &'static [f64],
    /// Their latency.
    pub latency: Duration,
}

/// Gigabytes per second in bits per second.
const GB: f64 = 8e9;

/// A single machine of GPUs on PCIe without NVLink.
pub const PCIE: Picture = Picture {
    name: "one machine of RTX 3090 on PCIe, without NVLink",
    model: "BERT-large, 335 million parameters, 8 sequences of 384 tokens a rank and step, at 28 Tflop/s",
    hardware: Hardware::RTX_3090,
    sharded: false,
    parameters: 335_000_000,
    bucket: BUCKET,
    // 6 · 335e6 · 3072 / 28e12.
    step_seconds: 0.220,
    sizes: &[[1, 2], [1, 4], [1, 8]],
    inside: 5.0 * GB,
    inside_latency: Duration::from_micros(5),
    links: &[2.5 * GB, 5.0 * GB, 10.0 * GB, 25.0 * GB],
    latency: Duration::from_micros(5),
};

/// Nodes of eight GPUs with NVLink, joined by Ethernet.
pub const NODES: Picture = Picture {
    name: "nodes of eight H200 with NVLink, joined by Ethernet",
    model: "a GPT of 1.3 billion parameters, 8192 tokens a rank and step, at 400 Tflop/s",
    hardware: Hardware::H200,
    sharded: false,
    parameters: 1_300_000_000,
    bucket: BUCKET,
    // 6 · 1.3e9 · 8192 / 400e12.
    step_seconds: 0.160,
    sizes: &[[2, 8], [16, 8], [128, 8], [1250, 8]],
    inside: 200.0 * GB,
    inside_latency: Duration::from_micros(3),
    links: &[1e9, 10e9, 25e9, 100e9, 400e9, 3200e9],
    latency: Duration::from_micros(20),
};

/// Sites of 64 GPUs that hold a sharded replica each, joined by the internet.
pub const SITES: Picture = Picture {
    name: "sites of 64 H200 with a replica each, sharded by FSDP2, joined by the internet",
    model: "a GPT of 10 billion parameters, 8192 tokens a rank and step, at 400 Tflop/s",
    hardware: Hardware::H200,
    sharded: true,
    parameters: 10_000_000_000,
    // A transformer block.
    bucket: 250_000_000,
    // 6 · 10e9 · 8192 / 400e12.
    step_seconds: 1.23,
    sizes: &[[2, 64], [4, 64], [16, 64], [156, 64]],
    inside: 50.0 * GB,
    inside_latency: Duration::from_micros(20),
    links: &[0.01e9, 0.1e9, 1e9, 5e9],
    latency: Duration::from_millis(50),
};

impl Picture {
    /// The model's step.
    pub fn recording(&self) -> Recording<'static> {
        model(self.parameters, self.bucket, self.step_seconds, self.step_seconds * 2.0 / 3.0)
    }

    /// The nodes, with the link inside and the first of the compared links.
    pub fn topology(&self, [nodes, ranks_per_node]: [usize; 2]) -> Topology {
        let inside = Link { bits_per_second: self.inside, latency: self.inside_latency };
        let link = self.compared()[0];
        Topology { nodes, ranks_per_node, inside, between: link }.over(link)
    }

    /// The compared links.
    pub fn compared(&self) -> Vec<Link> {
        let link = |&bits_per_second: &f64| Link { bits_per_second, latency: self.latency };
        self.links.iter().map(link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pictures_can_exist_and_reach_ten_thousand_ranks() {
        for picture in [PCIE, NODES, SITES] {
            for &size in picture.sizes {
                picture.topology(size).check().unwrap();
            }
            assert_eq!(picture.recording().elements(), picture.parameters);
        }
        let ranks = |picture: Picture| picture.sizes.iter().map(|[a, b]| a * b).max();
        assert_eq!((ranks(NODES), ranks(SITES)), (Some(10_000), Some(9_984)));
    }
}
