//! Table 2 of the AdaComp paper: error of a model with and without compression, and with the longest bins.

use super::paper::{self, ROWS};
use super::tables::{METHODS, report};
use crate::reproduce::findings::charts_of_layers;
use crate::reproduce::study::{Study, plans};

/// Table 2.
pub(crate) const TABLE_2: Study = Study {
    id: "adacomp-table2",
    summary: "error and compression by kind of layer in the AdaComp paper (Table 2; --row mnist-cnn, cifar-cnn, \
              bn50-dnn or lstm)",
    citation: paper::CITATION,
    rows: &paper::NAMES,
    experiment: Some(|row| {
        ROWS[row].experiment().with(|e| e.compressors = plans(METHODS.map(|(_, spec)| spec)))
    }),
    report: |results, _| {
        let row = &ROWS[results.row];
        report(results, row, Some(row), charts_of_layers)
    },
    ..Study::PLAIN
};
