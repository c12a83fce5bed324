//! `gradwire advise`: whether compression pays.

mod nodes;

use std::ops::ControlFlow;
use std::path::PathBuf;

use clap::Args;
use gradwire::Spec;
use gradwire_advice::{Advice, Candidate, Cluster, OptimizerFamily, Recording, Situation, advise};
use gradwire_exchange::Link;
use gradwire_testbed::advice::nodes::shown_between_nodes;
use gradwire_testbed::advice::{Shown, lines, shown};
use serde::Serialize;

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::numbers::{number, whole_in};
use crate::output;
use crate::progress::TrialBar;
use crate::tensors::{self, Format, Named, gradients};
use nodes::Nodes;

/// Predict step times on a link, and recommend a compressor or none.
///
/// Runs every compressor on recorded gradients and measures bytes, CPU time and the error that
/// remains after error feedback. From these and --step-ms it computes the time of a step on each
/// link. It assumes that gradients become ready in reverse order of their names.
/// gradwire.torch.advise records the gradients and times of a PyTorch model automatically. With
/// --nodes it simulates machines of several ranks instead.
#[derive(Debug, Args)]
pub(crate) struct Advise {
    /// The gradients of a step, as .safetensors; - for standard input, with --format. Give one file
    /// per step for several consecutive steps. Tensors other than finite float32, float16 or
    /// bfloat16 are left out
    #[arg(required_unless_present_any = ["parameters", "preset"], value_name = "FILE")]
    gradients: Vec<PathBuf>,
    /// Number of ranks of the run, each on a machine of its own
    #[arg(long, value_name = "N", required_unless_present_any = ["nodes", "preset"], value_parser = whole_in(2..=65_536u32))]
    ranks: Option<u32>,
    /// The time of a training step of one rank, without communication
    #[arg(long, value_name = "MS", required_unless_present = "preset", value_parser = number)]
    step_ms: Option<f64>,
    /// The time of the backward pass within a step, which hides communication [default: two thirds
    /// of the step]
    #[arg(long, value_name = "MS", value_parser = number)]
    backward_ms: Option<f64>,
    /// Each rank's link, such as 100mbit or 1gbit/2ms with a latency; repeat it for several
    #[arg(long = "link", required_unless_present_any = ["nodes", "preset"], conflicts_with = "nodes", value_name = "LINK")]
    links: Vec<Link>,
    /// The optimizer, such as adamw or sgd; error feedback harms adaptive optimizers more
    #[arg(long, value_name = "NAME", default_value = "adam", value_parser = optimizer)]
    optimizer: OptimizerFamily,
    /// A compressor to try; repeat it for several [default: fourteen of different kinds]
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Vec<Spec>,
    /// Assume that compression has no core of its own and delays the backward pass
    #[arg(long, conflicts_with = "nodes")]
    no_spare_core: bool,
    /// The format of the files [default: by their extension]
    #[arg(long, value_name = "FORMAT", requires = "gradients")]
    format: Option<Format>,
    /// Print JSON: an array with the advice
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
    #[command(flatten)]
    nodes: Nodes,
}

/// The optimizers known by name: from `train`, and from PyTorch and its libraries.
const OPTIMIZERS: [&str; 18] = [
    "sgd",
    "momentum",
    "nesterov",
    "adam",
    "adamw",
    "adamax",
    "nadam",
    "radam",
    "adagrad",
    "adadelta",
    "adafactor",
    "rmsprop",
    "lamb",
    "lion",
    "muon",
    "rprop",
    "sparseadam",
    "asgd",
];

/// Reads the name of an optimizer, ignoring case and any parameters after it.
fn optimizer(name: &str) -> Result<OptimizerFamily, String> {
    let lower = name.to_lowercase();
    let name = lower.split(':').next().unwrap_or_default();
    if !OPTIMIZERS.contains(&name) {
        let near = gradwire::suggestion(name, OPTIMIZERS);
        return Err(format!("unknown optimizer{near}; give one of {}", OPTIMIZERS.join(", ")));
    }
    Ok(OptimizerFamily::of_name(name))
}

impl Advise {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(ms) = self.step_ms.filter(|&ms| !(ms > 0.0 && ms.is_finite())) {
            return Err(Failure::Input(format!(
                "--step-ms is the time of a training step in milliseconds, above 0, not {ms}"
            )));
        }
        let [step, backward] = self.seconds()?;
        if let Some(model) = self.nodes.model(step, backward) {
            return self.between_nodes(&model);
        }
        let steps = self.steps()?;
        let recording = recording(&steps, step, backward);
        if self.nodes.given() {
            return self.between_nodes(&recording);
        }
        let candidates = match self.compressors.as_slice() {
            [] => Candidate::defaults(),
            given => given.iter().cloned().map(Candidate::new).collect(),
        };
        let ranks = self.ranks.unwrap_or_default() as usize;
        let cluster = Cluster { spare_core: !self.no_spare_core, ..Cluster::of(ranks) };
        let situation = Situation {
            recording: &recording,
            cluster,
            optimizer: self.optimizer,
            links: &self.links,
            measured: None,
        };
        let bar = TrialBar::new();
        let advice = advise(&situation, &candidates, &mut |at| {
            bar.show(at);
            ControlFlow::Continue(())
        });
        bar.clear();
        let advice = advice.map_err(|error| Failure::Input(error.to_string()))?;
        self.print(&advice, &advice, shown)
    }

    /// Prints advice, of which `whole` has all, as JSON, as lines of values, or as text.
    fn print<T: Serialize>(
        &self,
        whole: &T,
        advice: &Advice,
        shown: impl FnOnce(&T) -> Shown,
    ) -> Result<(), Failure> {
        if self.json {
            return output::line(output::json(&[whole]));
        }
        if self.form.is_csv() {
            return self.form.print_csv(&lines(advice));
        }
        let Shown { situation, table, conclusions } = shown(whole);
        self.form.text(situation + "\n")?;
        self.form.print(&table)?;
        self.form.text(format!("\n{conclusions}"))
    }

    /// The advice for machines of several ranks.
    fn between_nodes(&self, recording: &Recording<'_>) -> Result<(), Failure> {
        let found = self.nodes.advise(recording, &self.compressors, self.optimizer)?;
        self.print(&found, &found.advice, shown_between_nodes)?;
        if self.json || self.form.is_csv() {
            return Ok(());
        }
        self.nodes.published()?.map_or(Ok(()), |published| self.form.text(published))
    }

    /// The tensors of each file; all files have the same.
    fn steps(&self) -> Result<Vec<Vec<Named>>, Failure> {
        let mut steps = Vec::new();
        for path in &self.gradients {
            steps.push(tensors::read(path, self.format)?.tensors);
        }
        let first: Vec<_> = steps[0].iter().map(|named| named.tensor.clone()).collect();
        for (path, step) in self.gradients.iter().zip(&steps) {
            if !step.iter().map(|named| &named.tensor).eq(&first) {
                return Err(Failure::Input(format!(
                    "'{}' and '{}' have different tensors; give the gradients of one model",
                    path.display(),
                    self.gradients[0].display()
                )));
            }
        }
        gradients::retain(&mut steps)?;
        Ok(steps)
    }

    /// The seconds of a step, and of its backward pass; zeros for a preset.
    fn seconds(&self) -> Result<[f64; 2], Failure> {
        let Some(step_ms) = self.step_ms else { return Ok([0.0; 2]) };
        let backward = self.backward_ms.unwrap_or(2.0 / 3.0 * step_ms);
        if !(backward >= 0.0 && backward <= step_ms) {
            return Err(Failure::Input(format!(
                "a backward pass of {backward} ms is not part of a step of {step_ms} ms; give a time above 0 and below --step-ms"
            )));
        }
        Ok([step_ms / 1e3, backward / 1e3])
    }
}

/// The recording of the gradients of some steps.
fn recording(steps: &[Vec<Named>], seconds: f64, backward: f64) -> Recording<'_> {
    let tensors = steps[0].iter().map(|named| named.tensor.clone()).collect();
    let gradients =
        steps.iter().map(|step| step.iter().filter_map(|named| named.values.floats()).collect());
    Recording::untimed(tensors, gradients.collect(), seconds, backward)
}
