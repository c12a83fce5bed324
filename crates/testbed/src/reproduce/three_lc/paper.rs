//! The results that the 3LC paper reports, and the experiments compared with them.

use gradwire_exchange::Link;
use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::reproduce::study::{schedules, with_server};
use crate::summary::seeds_of_each;
use crate::table::Table;

/// The paper in a line.
pub(super) const CITATION: &str = "H. Lim, D. G. Andersen, M. Kaminsky: 3LC: Lightweight and Effective \
     Traffic Compression for Distributed Machine Learning. arXiv:1802.07389, 2018";

/// The paper's set-up, section 5.2.
pub(super) const SETUP: &str = "ResNet-110 on CIFAR-10; 10 workers, each with a GTX 980, and one parameter \
     server; 32 images a worker and step; 25,600 steps (163.84 epochs); momentum 0.9, weight decay \
     0.0001, cosine learning rate from 0.1 to 0.001 times the number of workers; crop and flip; \
     links limited by Linux Traffic Control; means of 5 runs (1 Gbit/s) and 3 runs (slower links)";

/// The links of Table 1 in Mbit/s.
pub(super) const LINKS_MBIT: [f64; 3] = [10.0, 100.0, 1000.0];

/// Table 1, after standard training steps. For each design: the paper's name, the spec of the same
/// design here, its speed-ups over 32-bit float at [`LINKS_MBIT`], and its test accuracy in per
/// cent.
pub(super) const TABLE_1: [(&str, &str, [f64; 3], f64); 11] = [
    ("32-bit float", "none", [1.0, 1.0, 1.0], 93.37),
    ("8-bit int", "int8", [3.62, 3.47, 1.51], 93.33),
    ("Stoch 3-value + QE", "terngrad:clip=0", [12.3, 7.51, 1.53], 92.06),
    ("MQE 1-bit int", "onebit", [14.6, 7.40, 1.30], 93.21),
    (
        "25% sparsification",
        "topk:ratio=0.25,select=sampled,positions=bitmap",
        [3.25, 3.11, 1.33],
        93.40,
    ),
    (
        "5% sparsification",
        "topk:ratio=0.05,select=sampled,positions=bitmap",
        [8.98, 6.62, 1.44],
        92.87,
    ),
    ("2 local steps", "none:every=2", [1.92, 1.87, 1.38], 93.03),
    ("3LC (s=1.00)", "3lc", [15.9, 7.97, 1.53], 93.32),
    ("3LC (s=1.50)", "3lc:s=1.5", [20.9, 8.70, 1.53], 93.29),
    ("3LC (s=1.75)", "3lc:s=1.75", [22.8, 9.04, 1.53], 93.51),
    ("3LC (s=1.90)", "3lc:s=1.9", [22.8, 9.22, 1.55], 93.10),
];

/// Table 2, over standard training steps. For each sparsity multiplier: the paper's name, the spec
/// of the same design here, the ratio of 32-bit traffic to compressed traffic, and the bits per
/// state change.
pub(super) const TABLE_2: [(&str, &str, f64, f64); 5] = [
    ("no ZRE", "3lc:zre=off", 20.0, 1.60),
    ("s=1.00", "3lc", 39.4, 0.812),
    ("s=1.50", "3lc:s=1.5", 70.9, 0.451),
    ("s=1.75", "3lc:s=1.75", 107.0, 0.298),
    ("s=1.90", "3lc:s=1.9", 160.0, 0.200),
];

/// The paper's links and tensors on a task that needs no data, with these compressors.
pub(super) fn experiment<'a>(specs: impl IntoIterator<Item = &'a str>) -> Experiment {
    with_server().with(|e| {
        e.compressors = schedules(specs);
        e.links = LINKS_MBIT.map(Link::mbit).to_vec();
        e.raw_vectors = false;
        e.steps = 2000;
    })
}

/// The set-ups of the paper and of the runs.
pub(super) fn setup(experiment: &Experiment, runs: &[RunRecord]) -> Table {
    let run = &runs[0];
    let vectors = if experiment.raw_vectors { ", vectors" } else { "" };
    let uncompressed = format!("tensors below {} elements{vectors}", experiment.raw_below);
    let seeds = format!("{} per design", seeds_of_each(runs));
    let mut setup = Table::setup("paper");
    setup.line("model", "ResNet-110", format!("{} ({} parameters)", run.model, run.parameters));
    setup.line("data", "CIFAR-10", &run.data);
    setup.line("workers", 10, run.workers);
    setup.line("exchange", "1 parameter server", run.exchange);
    setup.line("images per worker and step", 32, run.batch);
    setup.line("steps", "25600 (163.84 epochs)", run.steps);
    setup.line("optimizer", "momentum 0.9", run.optimizer);
    setup.line("weight decay", "0.0001", run.weight_decay);
    let rate = "cosine from 1 to 0.01 (0.1 to 0.001, times 10)";
    setup.line("learning rate", rate, &run.learning_rate);
    setup.line("crop and flip", "yes", if run.augment == Some(true) { "yes" } else { "no" });
    setup.line("uncompressed", "batch normalisation", uncompressed);
    setup.line("runs", "3 to 5 per design", seeds);
    setup.line("computing", "one GTX 980 per worker", "one processor core per worker");
    setup.line("network", "throttled by Linux Traffic Control", "modelled from counted bytes");
    setup
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_bits_of_table_2_agree_with_each_other() {
        for (name, _, ratio, bits) in TABLE_2 {
            assert!((32.0 / bits / ratio - 1.0).abs() < 0.01, "{name}");
        }
    }

    #[test]
    fn designs_are_written_as_specs_print() {
        for text in TABLE_1.map(|row| row.1).into_iter().chain(TABLE_2.map(|row| row.1)) {
            assert_eq!(text.parse::<gradwire::Spec>().unwrap().to_string(), text);
        }
    }
}
