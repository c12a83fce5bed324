//! `gradwire advise --nodes`: machines of several ranks.

use std::ops::ControlFlow;

use clap::{Args, ValueEnum};
use gradwire::Spec;
use gradwire_advice::topology::{
    BUCKET, Comparison, Hardware, Method, PCIE, Picture, SITES, Simulation, Topology,
    TopologyAdvice, advise_topology, model, published,
};
use gradwire_advice::{OptimizerFamily, Recording};
use gradwire_exchange::Link;

use crate::failure::Failure;
use crate::numbers::{number, whole_in};
use crate::progress::TrialBar;

/// Machines of several ranks, in place of equal ranks with a link each.
#[derive(Debug, Args)]
#[command(next_help_heading = "Machines of several ranks")]
pub(super) struct Nodes {
    /// Number of machines, or of sites, each with --ranks-per-node ranks. Steps are simulated from
    /// the speeds of an H200, and compression is compared between all ranks and on two levels,
    /// from GPU to GPU and by the host
    #[arg(long, value_name = "N", value_parser = whole_in(1..=65_536u32), requires = "ranks_per_node", conflicts_with = "ranks")]
    nodes: Option<u32>,
    /// Number of ranks of each machine
    #[arg(long, value_name = "K", value_parser = whole_in(1..=65_536u32), requires = "nodes")]
    ranks_per_node: Option<u32>,
    /// Each rank's link to the other ranks of its machine; of a single machine repeat it for
    /// several [default: 1600gbit/3us, NVLink, if there are several machines]
    #[arg(long, value_name = "LINK", requires = "nodes")]
    inside: Vec<Link>,
    /// Each machine's link to the others, which its ranks share; repeat it for several
    #[arg(long, value_name = "LINK", requires = "nodes", conflicts_with = "links")]
    between: Vec<Link>,
    /// Number of parameters of the model, such as 1.3e9, in place of files with gradients: in
    /// buckets of 25 MiB of float32, with --sites of 1 GB
    #[arg(long, value_name = "N", value_parser = parameters, requires = "nodes", conflicts_with = "gradients")]
    parameters: Option<usize>,
    /// The GPU. Kernels were measured on an H200; on others they are as much slower as their memory
    #[arg(long, value_enum, default_value_t = Gpu::H200)]
    gpu: Gpu,
    /// Each node is a site whose ranks hold shards of one replica (FSDP2), and exchanges them with
    /// the other sites
    #[arg(long, requires = "nodes")]
    sites: bool,
    /// Stated machines and model, in place of all of these: a machine of eight RTX 3090 on PCIe,
    /// beside published gains
    #[arg(long, value_enum, value_name = "NAME", conflicts_with_all = ["nodes", "ranks", "gradients", "links", "step_ms", "backward_ms", "no_spare_core", "gpu"])]
    preset: Option<Preset>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Gpu {
    H200,
    #[value(name = "rtx3090")]
    Rtx3090,
}

impl Gpu {
    fn hardware(self) -> Hardware {
        match self {
            Self::H200 => Hardware::H200,
            Self::Rtx3090 => Hardware::RTX_3090,
        }
    }
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Preset {
    Pcie,
}

/// The default compressors of simulations.
const SPECS: [&str; 12] = [
    "bf16",
    "int8",
    "int4:hadamard=on,ef=off",
    "eden:bits=4",
    "eden:bits=2",
    "eden",
    "terngrad",
    "3lc",
    "efsignsgd",
    "none:every=10",
    "eden:every=10",
    "eden:every=50",
];

/// The compressors with figures of the recorded gradients.
fn tried(specs: &[Spec], recording: &Recording<'_>) -> gradwire_exchange::Result<Vec<Method>> {
    let bar = TrialBar::new();
    let methods = Method::tried(specs, recording, &mut |at| {
        bar.show(at);
        ControlFlow::Continue(())
    });
    bar.clear();
    methods
}

/// Reads a number of parameters.
fn parameters(text: &str) -> Result<usize, String> {
    let value = number(text).ok().filter(|value| (1.0..=1e12).contains(value));
    value
        .map(|value| value as usize)
        .ok_or_else(|| "give a number from 1 to 1e12, such as 1.3e9".to_owned())
}

impl Nodes {
    /// Whether the question is about machines of several ranks.
    pub(super) fn given(&self) -> bool {
        self.nodes.is_some() || self.preset.is_some()
    }

    /// The model of the number of parameters, or of the preset; `None` if files have it.
    pub(super) fn model(&self, step: f64, backward: f64) -> Option<Recording<'static>> {
        match self.preset {
            Some(Preset::Pcie) => Some(PCIE.recording()),
            None => {
                let bucket = if self.sites { SITES.bucket } else { BUCKET };
                self.parameters.map(|parameters| model(parameters, bucket, step, backward))
            }
        }
    }

    /// The advice for a recording. With gradients, messages and the speed of the host are measured
    /// on them.
    pub(super) fn advise(
        &self,
        recording: &Recording<'_>,
        specs: &[Spec],
        optimizer: OptimizerFamily,
    ) -> Result<TopologyAdvice, Failure> {
        let refused = |error: gradwire_exchange::ExchangeError| Failure::Input(error.to_string());
        let (topology, links) = self.topology()?;
        let hardware = self.picture().map_or(self.gpu.hardware(), |picture| picture.hardware);
        let defaults = || SPECS.iter().map(|spec| spec.parse().expect("it is in the registry"));
        let specs: Vec<Spec> = if specs.is_empty() { defaults().collect() } else { specs.to_vec() };
        let methods = match recording.gradients.is_empty() {
            true => specs.iter().map(Method::of).collect(),
            false => tried(&specs, recording),
        };
        let simulation = Simulation::new(recording, topology, hardware);
        let comparison = Comparison { simulation, links: &links, optimizer, sharded: self.sites };
        advise_topology(&comparison, &methods.map_err(refused)?).map_err(refused)
    }

    /// Published gains beside simulated ones; `None` without a preset.
    pub(super) fn published(&self) -> Result<Option<String>, Failure> {
        if self.preset.is_none() {
            return Ok(None);
        }
        let all = published().map_err(|error| Failure::Input(error.to_string()))?;
        let lines = all.iter().map(|one| {
            format!(
                "- {}\n  Published: {}.\n  Simulated: {}.\n  {}.\n",
                one.work, one.figure, one.simulated, one.difference
            )
        });
        let lines: String = lines.collect();
        let model = PCIE.model;
        let text = format!("\nThe model is assumed: {model}.\nBeside published gains:\n{lines}");
        Ok(Some(text.trim_end().to_owned()))
    }

    fn picture(&self) -> Option<Picture> {
        self.preset.map(|Preset::Pcie| PCIE)
    }

    /// The machines and the links to compare.
    fn topology(&self) -> Result<(Topology, Vec<Link>), Failure> {
        if let Some(picture) = self.picture() {
            return Ok((picture.topology([1, 8]), picture.compared()));
        }
        let refuse = |reason: &str| Err(Failure::Input(reason.to_owned()));
        let [nodes, ranks_per_node] =
            [self.nodes, self.ranks_per_node].map(|number| number.unwrap_or(1) as usize);
        let nvlink = Link { bits_per_second: 1.6e12, latency: std::time::Duration::from_micros(3) };
        let (inside, links) = match (nodes, self.inside.as_slice(), self.between.as_slice()) {
            (1, [], _) => return refuse("a single machine needs --inside, the link of each rank"),
            (1, inside, []) => (inside[0], inside),
            (1, ..) => {
                return refuse("a single machine has no link to others; leave out --between");
            }
            (_, _, []) => {
                return refuse("several machines need --between, the link of each machine");
            }
            (_, [], between) => (nvlink, between),
            (_, [inside], between) => (*inside, between),
            _ => return refuse("with several machines give --inside once; --between is compared"),
        };
        let topology = Topology { nodes, ranks_per_node, inside, between: links[0] };
        Ok((topology, links.to_vec()))
    }
}
