//! One size of a cluster on one link.

use gradwire_advice::OptimizerFamily;
use gradwire_advice::topology::{
    Comparison, Levels, MARGIN, Method, Picture, Plan, Simulation, Topology,
};
use gradwire_exchange::{Link, Result};

/// A compressor by its fastest plan.
#[derive(Debug, Clone)]
pub(super) struct Timed {
    pub(super) spec: String,
    pub(super) plan: Plan,
    /// Seconds of a step.
    pub(super) seconds: f64,
    /// The error of the mean.
    error: f64,
}

/// The steps of all compressors of one size on one link.
#[derive(Debug, Clone)]
pub(super) struct Cell {
    pub(super) topology: Topology,
    pub(super) link: Link,
    /// Seconds of a step that averages at full precision, at every step.
    pub(super) plain: f64,
    pub(super) all: Vec<Timed>,
}

impl Cell {
    /// The compressor with the smallest error among those within the margin of the fastest; `none`
    /// if no other is faster by more than the margin.
    pub(super) fn best(&self) -> &Timed {
        let least = self.all.iter().map(|one| one.seconds).fold(f64::INFINITY, f64::min);
        let near = self.all.iter().filter(|one| one.seconds <= least * (1.0 + MARGIN));
        near.min_by(|a, b| a.error.total_cmp(&b.error)).expect("there are compressors")
    }

    /// The steps of a compressor.
    pub(super) fn of(&self, spec: &str) -> &Timed {
        self.all.iter().find(|one| one.spec == spec).expect("the compressor is compared")
    }

    /// How much faster than full precision a compressor is.
    pub(super) fn speedup(&self, one: &Timed) -> f64 {
        self.plain / one.seconds
    }
}

impl Timed {
    /// Whether it does not compress, and exchanges at every step.
    pub(super) fn is_none(&self) -> bool {
        self.spec == "none"
    }

    /// The plan in words.
    pub(super) fn way(&self) -> String {
        let levels = match self.plan.levels {
            Levels::Two => ", two levels",
            Levels::Flat | Levels::Sites => "",
        };
        match self.plan {
            Plan::PLAIN => "NCCL's all-reduce".to_owned(),
            Plan { exchange, transport, .. } => {
                format!("{exchange}{levels}, {}", transport.name())
            }
        }
    }
}

/// The compressors with these specs.
pub(super) fn methods(specs: &[&str]) -> Result<Vec<Method>> {
    specs.iter().map(|spec| Method::of(&spec.parse().expect("it is registered"))).collect()
}

/// Each of these sizes of a picture on each link.
pub(super) fn cells(
    picture: &Picture,
    sizes: &[[usize; 2]],
    links: &[Link],
    methods: &[Method],
) -> Vec<Cell> {
    let recording = picture.recording();
    let mut cells = Vec::new();
    for &size in sizes {
        let topology = picture.topology(size);
        let simulation = Simulation::new(&recording, topology, picture.hardware);
        let (optimizer, sharded) = (OptimizerFamily::Adaptive, picture.sharded);
        let comparison = Comparison { simulation, links, optimizer, sharded };
        for &link in links {
            let timed = |method: &Method| {
                let (plan, seconds) = comparison.fastest(method, link);
                let error = method.error_of_mean(&plan, plan.group(&topology));
                Timed { spec: method.spec.to_string(), plan, seconds, error }
            };
            let all = methods.iter().map(timed).collect();
            let plain = comparison.plain_seconds(link);
            cells.push(Cell { topology: topology.over(link), link, plain, all });
        }
    }
    cells
}
