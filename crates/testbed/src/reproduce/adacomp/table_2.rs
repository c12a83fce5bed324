//! Table 2 of the AdaComp paper: error of a model with and without compression, and with the longest bins.

use super::paper::{self, ROWS};
use super::tables::{METHODS, findings};
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::reproduce::findings::charts_of_layers;
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;

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
        let row = &ROWS[results.row];
        let findings = findings(results, (row, Some(row)), charts_of_layers)?;
        Ok(findings.report(self, results))
    }
}
