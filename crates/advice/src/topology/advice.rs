//! The comparison of compressors and plans between nodes.

use gradwire::Spec;
use gradwire_exchange::{Exchange, ExchangeError, Link, Result};
use serde::Serialize;

use super::method::Method;
use super::plan::{Levels, Plan};
use super::ranks::Topology;
use super::simulation::Simulation;
use crate::crossover::Crossover;
use crate::prediction::{OnLink, Prediction};
pub use crate::situation::MARGIN;
use crate::{Advice, Candidate, OptimizerFamily};

/// Predictions for nodes of several ranks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TopologyAdvice {
    /// Machines, or sites.
    pub nodes: usize,
    /// Ranks of each node.
    pub ranks_per_node: usize,
    /// The GPU.
    pub hardware: String,
    /// Whether each node's ranks hold shards of one replica.
    pub sharded: bool,
    /// The link inside a node, if the compared links are those between nodes: bits per second.
    pub inside: Option<f64>,
    /// The predictions. A compressor has one for each plan that is its fastest on some link. Bytes
    /// are those through a node's link, or, of a single node, through a rank's link.
    #[serde(flatten)]
    pub advice: Advice,
    /// The plan of each prediction.
    pub plans: Vec<Plan>,
}

/// The question: compressors on some links.
#[derive(Debug, Clone)]
pub struct Comparison<'a> {
    /// The model, the nodes and the GPUs. The links below replace the topology's link between
    /// nodes, or of a single node the link inside.
    pub simulation: Simulation<'a>,
    /// The links; one at least.
    pub links: &'a [Link],
    /// The optimizer that takes the averages.
    pub optimizer: OptimizerFamily,
    /// Whether each node is a site whose ranks hold shards of one replica, as with FSDP2.
    pub sharded: bool,
}

impl Topology {
    /// With another link between nodes, or of a single node inside.
    pub fn over(self, link: Link) -> Self {
        match self.nodes {
            1 => Self { inside: link, ..self },
            _ => Self { between: link, ..self },
        }
    }
}

impl Comparison<'_> {
    /// The simulation on another link.
    fn on(&self, link: Link) -> Simulation<'_> {
        self.simulation.at(self.simulation.topology.over(link))
    }

    /// The plans of a method.
    pub fn plans(&self, method: &Method) -> Vec<Plan> {
        match self.sharded {
            true => Plan::between_sites(method.adds()),
            false => Plan::all(&self.simulation.topology, method.adds(), method.on_device()),
        }
    }

    /// The framework's own averages without compression.
    fn plain(&self) -> Plan {
        let levels = if self.sharded { Levels::Sites } else { Levels::Flat };
        Plan { levels, ..Plan::PLAIN }
    }

    /// The fastest plan of a method on a link, with the seconds of its steps.
    pub fn fastest(&self, method: &Method, link: Link) -> (Plan, f64) {
        let on = self.on(link);
        let timed =
            self.plans(method).into_iter().map(|plan| (plan, on.step_seconds(method, &plan)));
        timed.min_by(|a, b| a.1.total_cmp(&b.1)).expect("every method has a plan")
    }

    /// The seconds of a step without compression.
    pub fn plain_seconds(&self, link: Link) -> f64 {
        self.on(link).step_seconds(&self.simulation.none(), &self.plain())
    }

    /// The prediction of a method with a plan.
    fn predict(&self, method: &Method, plan: &Plan, none: &Method) -> Prediction {
        let plain = |link| self.on(link).step_seconds(none, &self.plain());
        let seconds = |link| self.on(link).step_seconds(method, plan);
        let on_links = self
            .links
            .iter()
            .map(|&link| OnLink { seconds: seconds(link), speedup: plain(link) / seconds(link) });
        let [inside, between] = self.simulation.bytes(method, plan);
        let bytes_up = if self.simulation.topology.nodes == 1 { inside } else { between };
        let candidate = Candidate::new(method.spec.clone());
        let group = plan.group(&self.simulation.topology);
        let error = method.error_of_mean(plan, group);
        // Residuals are those of one rank; other errors are the mean's.
        let doubted = if method.spec.feedback().is_some() { method.error } else { error };
        let pays = |bits_per_second, gift: f64| {
            let link = Link { bits_per_second, ..self.links[0] };
            plain(link) > (1.0 + MARGIN) * (seconds(link) - gift)
        };
        let crossover = Crossover::find(pays, 0.0);
        let every = method.spec.every();
        let message = method.message(plan.transport).bits;
        Prediction {
            candidate: method.spec.to_string(),
            spec: method.spec.to_string(),
            exchange: format!("{plan}, {}", plan.transport.name()),
            every,
            ratio: every as f64 * none.message(plan.transport).bits / message,
            bytes_up,
            codec: self.simulation.codec_seconds(method, plan),
            error: (every == 1).then_some(error),
            doubt: candidate.doubt(self.optimizer, doubted).map(str::to_owned),
            on_links: on_links.collect(),
            crossover: crossover.likely,
            crossover_range: [crossover.least, crossover.most],
        }
    }
}

/// Compares compressors and plans on each link.
///
/// # Errors
/// `Config` if the topology is refused or there is no link.
pub fn advise_topology(comparison: &Comparison<'_>, methods: &[Method]) -> Result<TopologyAdvice> {
    let Comparison { simulation, links, .. } = comparison;
    if links.is_empty() {
        return Err(ExchangeError::config("there is no link; give one, as in 10gbit"));
    }
    links.iter().try_for_each(|&link| simulation.topology.over(link).check())?;
    if comparison.sharded && simulation.topology.nodes == 1 {
        return Err(ExchangeError::config(
            "a single site exchanges nothing with others; give more nodes, or ranks with a replica each",
        ));
    }
    let none = simulation.none();
    let mut rows = Vec::new();
    for method in methods {
        let mut plans: Vec<Plan> = Vec::new();
        for &link in *links {
            let (plan, _) = comparison.fastest(method, link);
            if !plans.contains(&plan) {
                plans.push(plan);
            }
        }
        rows.extend(plans.into_iter().map(|plan| (comparison.predict(method, &plan, &none), plan)));
    }
    let (predictions, plans): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let plain = Prediction {
        candidate: "no compression".to_owned(),
        doubt: None,
        crossover: None,
        crossover_range: [None; 2],
        ..comparison.predict(&none, &comparison.plain(), &none)
    };
    let Topology { nodes, ranks_per_node, inside, .. } = simulation.topology;
    Ok(TopologyAdvice {
        nodes,
        ranks_per_node,
        hardware: simulation.hardware.name.to_owned(),
        sharded: comparison.sharded,
        inside: (nodes > 1).then_some(inside.bits_per_second),
        advice: Advice::of(
            simulation.recording,
            simulation.topology.ranks(),
            links,
            plain,
            predictions,
        ),
        plans,
    })
}

impl TopologyAdvice {
    /// The call in Python of the prediction at this place of `predictions`.
    ///
    /// # Panics
    /// If there is none.
    pub fn call(&self, at: usize) -> String {
        let (plan, prediction) = (&self.plans[at], &self.advice.predictions[at]);
        let nodes = match plan.levels {
            Levels::Two => format!(", nodes={}", self.nodes),
            Levels::Flat | Levels::Sites => String::new(),
        };
        let (exchange, transport) = (plan.exchange, plan.transport.name());
        let spec = &prediction.spec;
        if prediction.every > 1 || self.sharded {
            let group = if self.sharded { ", process_group=mesh[\"sites\"]" } else { "" };
            let every = prediction.every;
            let compressor = spec.parse::<Spec>().map(|spec| spec.with_every(1).to_string());
            let compressor = compressor.unwrap_or_default();
            return format!(
                "gradwire.torch.LocalSteps(model, optimizer, {every}, \"{compressor}\", exchange=\"{exchange}\"{nodes}{group})"
            );
        }
        if plan.exchange == Exchange::AllReduce {
            return format!(
                "model.register_comm_hook(None, default_hooks.{spec}_compress_hook), PyTorch's own"
            );
        }
        format!(
            "gradwire.torch.register(model, \"{spec}\", exchange=\"{exchange}\", transport=\"{transport}\"{nodes})"
        )
    }
}

#[cfg(test)]
mod tests;
