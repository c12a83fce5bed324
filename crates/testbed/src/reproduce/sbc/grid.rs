//! Figures 3, 4 and 9 of the SBC paper: quality over temporal and gradient sparsity.

use gradwire_train::CompressionSchedule;
use gradwire_train::Metric;

use super::paper::{self, LENET, RESNET32};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::plot::HeatMap;
use crate::reproduce::findings::Findings;
use crate::reproduce::study::{About, Report, Results, Study};
use crate::runner::Progress;
use crate::summary::Summary;
use crate::table;

/// The grid of sparsities and delays.
pub(crate) struct Grid;

impl Study for Grid {
    fn about(&self) -> About {
        About::of(
            "sbc-fig3",
            "quality over temporal and gradient sparsity in the SBC paper (Figures 3, 4 and 9)",
            paper::CITATION,
        )
    }

    /// The paper's experiment with LeNet, on a task that needs no data.
    fn experiment(&self, _: usize) -> Option<Experiment> {
        Some(LENET.experiment().with(|e| {
            e.data = Experiment::default().data;
            e.steps = 2000;
            e.compressors = compressors(e.steps);
        }))
    }

    fn compressors(&self, _: usize, steps: u64) -> Vec<CompressionSchedule> {
        compressors(steps)
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let (full, summary) = results.summarized()?;
        let mut findings = Findings {
            tables: vec![
                ("All cells", table::traffic(&summary)),
                ("Time a step", table::time(&summary)),
            ],
            charts: vec![("heat-map.svg".to_owned(), Box::new(heat_map(&summary)))],
            setup: RESNET32.setup(results.experiment, &full[0]),
            notes: table::notes(&summary),
        };
        paper::add_accounting(&mut findings, &full);
        Ok(findings.report(self, results))
    }
}

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

/// The error, or perplexity, after training over temporal and gradient sparsity, as a heat map. On a
/// diagonal the total sparsity is the same.
fn heat_map(summary: &Summary) -> HeatMap {
    let metric = summary.metric;
    let value = |p: f64, every: u64| {
        let compressor = cell(p, every).to_string();
        let row = summary.rows.iter().find(|row| row.compressor == compressor)?;
        Some(match metric {
            Metric::Accuracy | Metric::Iou | Metric::HitRate => 1.0 - row.quality.mean,
            Metric::Perplexity => row.quality.mean,
        })
    };
    let (title, show): (_, fn(f64) -> String) = match metric {
        Metric::Accuracy | Metric::Iou | Metric::HitRate => {
            ("Test error", |error| format!("{:.2} %", error * 100.0))
        }
        Metric::Perplexity => ("Perplexity", |perplexity| format!("{perplexity:.2}")),
    };
    let values = |&p: &f64| DELAYS.iter().map(|&every| value(p, every)).collect();
    HeatMap {
        title: format!("{title} by temporal and gradient sparsity"),
        columns: (
            "iterations from one exchange to the next".to_owned(),
            DELAYS.iter().map(u64::to_string).collect(),
        ),
        rows: (
            "part of the elements sent".to_owned(),
            SPARSITIES.iter().map(f64::to_string).collect(),
        ),
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
