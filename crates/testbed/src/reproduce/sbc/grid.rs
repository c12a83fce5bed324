//! Figures 3, 4 and 9 of the SBC paper: quality over temporal and gradient sparsity.

use gradwire_train::CompressionSchedule;

use super::paper::{self, LENET, RESNET32};
use crate::experiment::{Experiment, known};
use crate::plot::HeatMap;
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{Study, chart};
use crate::summary::{Summary, tables};

/// The grid of sparsities and delays: the paper's experiment with LeNet, on a task that needs no
/// data.
pub(crate) const GRID: Study = Study {
    id: "sbc-fig3",
    summary: "quality over temporal and gradient sparsity in the SBC paper (Figures 3, 4 and 9)",
    citation: paper::CITATION,
    experiment: Some(|_| {
        LENET.experiment().with(|e| {
            e.data = Experiment::default().data;
            e.steps = 2000;
            e.compressors = compressors(e.steps);
        })
    }),
    compressors_by_steps: Some(compressors),
    report: |results, _| {
        let (full, summary) = results.summarized()?;
        let tables = vec![
            ("All cells", tables::traffic(&summary)),
            ("Time per step", tables::time(&summary)),
        ];
        let charts = vec![chart("heat-map.svg", heat_map(&summary))];
        let setup = RESNET32.setup(&full);
        let notes = tables::notes(&summary);
        let mut findings = Findings { tables, charts, setup, notes, summary: Some(summary) };
        paper::add_accounting(&mut findings, &full);
        Ok(findings.report(results))
    },
    ..Study::PLAIN
};

/// The sparsities and delays of the grid of Figures 3 and 9.
const SPARSITIES: [f64; 4] = [1.0, 0.1, 0.01, 0.001];
const DELAYS: [u64; 4] = [1, 10, 100, 1000];

/// A cell of the grid. Without gradient sparsity nothing is binarized either.
fn cell(p: f64, every: u64) -> CompressionSchedule {
    let spec = if p == 1.0 { "none".to_owned() } else { format!("sbc:p={p}") };
    let separator = if p == 1.0 { ':' } else { ',' };
    known(&if every == 1 { spec } else { format!("{spec}{separator}every={every}") })
}

/// All cells whose delay is shorter than a run of `steps` steps, the baseline first.
fn compressors(steps: u64) -> Vec<CompressionSchedule> {
    let delays = || DELAYS.into_iter().filter(move |&every| every < steps.max(2));
    SPARSITIES.into_iter().flat_map(|p| delays().map(move |every| cell(p, every))).collect()
}

/// The error, or perplexity, after training over temporal and gradient sparsity, as a heat map. The
/// total sparsity is constant on diagonals.
fn heat_map(summary: &Summary) -> HeatMap {
    let is_fraction = summary.metric.is_fraction();
    let value = |p: f64, every: u64| {
        let quality = summary.row(&cell(p, every).to_string())?.quality.mean;
        Some(if is_fraction { 1.0 - quality } else { quality })
    };
    let (title, show): (_, fn(f64) -> String) = if is_fraction {
        ("Test error", |error| format!("{:.2} %", error * 100.0))
    } else {
        ("Perplexity", |perplexity| format!("{perplexity:.2}"))
    };
    let delays = DELAYS.iter().map(u64::to_string).collect();
    let sparsities = SPARSITIES.iter().map(f64::to_string).collect();
    let values = |&p: &f64| DELAYS.iter().map(|&every| value(p, every)).collect();
    HeatMap {
        title: format!("{title} by temporal and gradient sparsity"),
        columns: ("iterations from one exchange to the next".to_owned(), delays),
        rows: ("part of the elements sent".to_owned(), sparsities),
        values: SPARSITIES.iter().map(values).collect(),
        show,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_has_a_cell_for_each_pair_that_fits() {
        let names: Vec<String> =
            compressors(100).iter().map(CompressionSchedule::to_string).collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[..2], ["none", "none:every=10"]);
        assert_eq!(names[7], "sbc:p=0.001,every=10");
        assert_eq!(compressors(2000).len(), 16);
    }
}
