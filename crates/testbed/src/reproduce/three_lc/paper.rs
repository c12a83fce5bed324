//! What the 3LC paper reports, and the experiments that stand beside it.

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::reproduce::study::plans;
use crate::summary::{Row, Summary};
use crate::table::Grid;

/// The paper in a line.
pub(super) const CITATION: &str = "H. Lim, D. G. Andersen, M. Kaminsky: 3LC: Lightweight and Effective \
     Traffic Compression for Distributed Machine Learning. arXiv:1802.07389, 2018";

/// The paper's set-up, section 5.2.
pub(super) const SETUP: &str = "ResNet-110 on CIFAR-10; 10 workers, each with a GTX 980, and one parameter \
     server; 32 images a worker and step; 25,600 steps (163.84 epochs); momentum 0.9, weight decay \
     0.0001, cosine learning rate from 0.1 to 0.001 times the number of workers; crop and flip; \
     links limited by Linux Traffic Control; means of 5 runs (1 Gbit/s) and 3 runs (slower links)";

/// A row of Table 1: speed-up over 32-bit float and test accuracy after standard training steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Design {
    /// The paper's name for it.
    pub(super) name: &'static str,
    /// The spec that is the same design here.
    pub(super) compressor: &'static str,
    /// Speed-ups at [`LINKS_MBIT`].
    pub(super) speedup: [f64; 3],
    /// Test accuracy in per cent.
    pub(super) accuracy: f64,
}

/// The links of Table 1 in Mbit/s.
pub(super) const LINKS_MBIT: [f64; 3] = [10.0, 100.0, 1000.0];

/// Table 1.
pub(super) const TABLE_1: [Design; 11] = [
    design("32-bit float", "none", [1.0, 1.0, 1.0], 93.37),
    design("8-bit int", "int8", [3.62, 3.47, 1.51], 93.33),
    design("Stoch 3-value + QE", "terngrad:clip=0", [12.3, 7.51, 1.53], 92.06),
    design("MQE 1-bit int", "onebit", [14.6, 7.40, 1.30], 93.21),
    design(
        "25% sparsification",
        "topk:ratio=0.25,select=sampled,positions=bitmap",
        [3.25, 3.11, 1.33],
        93.40,
    ),
    design(
        "5% sparsification",
        "topk:ratio=0.05,select=sampled,positions=bitmap",
        [8.98, 6.62, 1.44],
        92.87,
    ),
    design("2 local steps", "none:every=2", [1.92, 1.87, 1.38], 93.03),
    design("3LC (s=1.00)", "3lc", [15.9, 7.97, 1.53], 93.32),
    design("3LC (s=1.50)", "3lc:s=1.5", [20.9, 8.70, 1.53], 93.29),
    design("3LC (s=1.75)", "3lc:s=1.75", [22.8, 9.04, 1.53], 93.51),
    design("3LC (s=1.90)", "3lc:s=1.9", [22.8, 9.22, 1.55], 93.10),
];

/// A row of Table 2: average traffic compression of 3LC over standard training steps.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Compression {
    /// The paper's name for it: the sparsity multiplier.
    pub(super) name: &'static str,
    /// The spec that is the same design here.
    pub(super) compressor: &'static str,
    /// 32-bit traffic over compressed traffic.
    pub(super) ratio: f64,
    /// Bits per state change.
    pub(super) bits: f64,
}

/// Table 2.
pub(super) const TABLE_2: [Compression; 5] = [
    compression("no ZRE", "3lc:zre=off", 20.0, 1.60),
    compression("s=1.00", "3lc", 39.4, 0.812),
    compression("s=1.50", "3lc:s=1.5", 70.9, 0.451),
    compression("s=1.75", "3lc:s=1.75", 107.0, 0.298),
    compression("s=1.90", "3lc:s=1.9", 160.0, 0.200),
];

const fn design(
    name: &'static str,
    compressor: &'static str,
    speedup: [f64; 3],
    accuracy: f64,
) -> Design {
    Design { name, compressor, speedup, accuracy }
}

const fn compression(
    name: &'static str,
    compressor: &'static str,
    ratio: f64,
    bits: f64,
) -> Compression {
    Compression { name, compressor, ratio, bits }
}

/// The paper's links and tensors on a task that needs no data, with these compressors.
pub(super) fn experiment<'a>(specs: impl IntoIterator<Item = &'a str>) -> Experiment {
    Experiment::default().with(|e| {
        e.compressors = plans(specs);
        e.links_mbit = LINKS_MBIT.to_vec();
        e.raw_vectors = false;
        e.steps = 2000;
    })
}

/// The measured row of a compressor.
pub(super) fn find<'a>(summary: &'a Summary, compressor: &str) -> Option<&'a Row> {
    summary.rows.iter().find(|row| row.compressor == compressor)
}

/// A cell of a measured row, if it was measured.
pub(super) fn measured(row: Option<&Row>, cell: impl FnOnce(&Row) -> Option<String>) -> String {
    row.and_then(cell).unwrap_or_else(|| "–".to_owned())
}

/// The paper's set-up beside the one of the runs.
pub(super) fn setup(experiment: &Experiment, run: &RunRecord) -> Grid {
    let epochs = |steps: f64, workers: f64, batch: f64, examples: f64| {
        format!("{steps:.0} ({:.2} epochs)", steps * workers * batch / examples)
    };
    let mut grid = Grid::new(["", "paper", "here"]);
    let mut row = |what: &str, paper: &str, here: String| {
        grid.push(vec![what.to_owned(), paper.to_owned(), here]);
    };
    row("model", "ResNet-110", format!("{} ({} parameters)", run.model, run.parameters));
    row("data", "CIFAR-10", run.data.clone());
    row("workers", "10", run.workers.to_string());
    row("exchange", "1 parameter server", run.exchange.to_string());
    row("images a worker and step", "32", run.batch.to_string());
    row("steps", &epochs(25_600.0, 10.0, 32.0, 50_000.0), run.steps.to_string());
    row("optimizer", "momentum 0.9", run.optimizer.to_string());
    row("weight decay", "0.0001", run.weight_decay.to_string());
    row(
        "learning rate",
        "cosine from 1 to 0.01 (0.1 to 0.001, times 10)",
        run.learning_rate.to_string(),
    );
    row("crop and flip", "yes", if run.augment == Some(true) { "yes" } else { "no" }.to_owned());
    row(
        "uncompressed",
        "batch normalisation",
        format!(
            "tensors below {} elements{}",
            experiment.raw_below,
            if experiment.raw_vectors { ", vectors" } else { "" }
        ),
    );
    row("runs", "3 to 5 a design", format!("{} a design", experiment.seeds.len()));
    row("computing", "GTX 980 a worker", "one processor core a worker".to_owned());
    row("network", "throttled by Linux Traffic Control", "modelled from counted bytes".to_owned());
    grid.left_aligned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_and_bits_of_table_2_agree_with_each_other() {
        for row in TABLE_2 {
            assert!((32.0 / row.bits / row.ratio - 1.0).abs() < 0.01, "{}", row.name);
        }
    }

    #[test]
    fn designs_are_written_as_specs_print() {
        let rows = TABLE_1.iter().map(|d| d.compressor).chain(TABLE_2.iter().map(|c| c.compressor));
        for text in rows {
            assert_eq!(text.parse::<gradwire::Spec>().unwrap().to_string(), text);
        }
    }
}
