//! The results that the paper reports, and its experiment.

use gradwire_models::Split;
use gradwire_train::{Payload, RunRecord};

use crate::experiment::Experiment;
use crate::reproduce::study::all_gathered;
use crate::summary::seeds_of_each;
use crate::table::Table;

/// The paper in a line.
pub(super) const CITATION: &str = "A. Øland, B. Raj: Reducing Communication Overhead in Distributed Learning by an Order \
     of Magnitude (Almost). ICASSP 2015";

/// Steps of an epoch of MNIST with five workers and batches of 20.
pub(super) const EPOCH: u64 = 600;

/// Bits of each parameter in an exchange, by the compressor's c: raw, and in Huffman's code.
pub(super) const BITS: [(u64, &str, &str); 2] = [(5, "6.8", "3.55"), (6, "not stated", "3.78")];

/// The paper's experiment: five workers with separate parts of MNIST average their weights after
/// each epoch. The paper states neither batch nor learning rate.
pub(super) fn experiment() -> Experiment {
    let rate = "step:from=0.1,factor=0.95,after=0.01,every=0.01";
    all_gathered(["mlp:392-50,tanh,squared", "mnist"], ["sgd", rate]).with(|e| {
        e.send = Payload::Weights;
        e.split = Split::Shards { sizes: None };
        e.workers = 5;
        e.steps = 100 * EPOCH;
        e.batch = 20;
        e.l1 = 1e-4;
        e.augment = Some(false);
        e.evaluations = 100;
    })
}

/// The set-ups of the paper and of the runs.
pub(super) fn setup(runs: &[RunRecord]) -> Table {
    let run = &runs[0];
    let exchanges = format!("{} rounds of {}", run.rounds, run.send);
    let length = format!("{} steps, {EPOCH} between exchanges", run.steps);
    let mut setup = Table::setup("paper");
    let model = format!("{}, {} parameters", run.model, run.parameters);
    setup.line("model", "784-392-50-10, tanh", model);
    let squared = run.model.to_string().ends_with("squared");
    setup.line("loss", "squared error", if squared { "squared error" } else { "cross-entropy" });
    setup.line("workers", 5, run.workers);
    setup.line("exchange", "weights, after each epoch", exchanges);
    setup.line("length", "100 epochs", length);
    setup.line("batch", "not stated", run.batch);
    setup.line("learning rate", "exponential decay", &run.learning_rate);
    setup.line("l1", "light", run.l1);
    setup.line("runs per setting", "50, or 1500 in Figure 1", seeds_of_each(runs));
    setup
}
