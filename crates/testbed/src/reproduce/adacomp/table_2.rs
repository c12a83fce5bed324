//! Table 2 of the AdaComp paper: error of a model with and without compression, and with the longest bins.

use super::paper::{self, ROWS};
use super::tables::{METHODS, table};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::reproduce::findings::{Findings, charts_of_layers, charts_over_steps};
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::summarize;

/// Table 2.
pub(crate) struct Table2;

impl Study for Table2 {
    fn about(&self) -> About {
        About {
            rows: ROWS.iter().map(|row| row.name).collect(),
            ..About::of(
                "adacomp-table2",
                "error and compression by kind of layer in the AdaComp paper (Table 2; --row \
                 mnist-cnn, cifar-cnn, bn50-dnn or lstm)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, row: usize) -> Option<Experiment> {
        let compressors = plans(METHODS.map(|(_, spec)| spec));
        Some(ROWS[row].experiment().with(|e| e.compressors = compressors))
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let (row, experiment, full) = (&ROWS[results.row], results.experiment, results.longest());
        let summary = summarize(&full, &experiment.links())?;
        let table = table(Some(row), &experiment.compressors, &summary, &full);
        let mut charts = charts_of_layers(&full);
        charts.extend(charts_over_steps(&summary, &full));
        let setup = row.setup(&full[0], experiment.seeds.len());
        let findings = Findings::of_one_setup("Paper and here", table, &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}
