//! Figures 5 and 6 of the AdaComp paper: residuals over training, with the fully connected layer compressed alone.

use super::paper::{self, CIFAR_CNN};
use super::tables::report;
use crate::reproduce::findings::charts_of_layers;
use crate::reproduce::study::{Study, plans};

/// Figure 5.
pub(crate) const FIGURE_5: Study = Study {
    id: "adacomp-fig5",
    summary: "residuals over training, the fully connected layer compressed alone (Figures 5 and 6)",
    citation: paper::CITATION,
    experiment: Some(|_| {
        CIFAR_CNN.experiment().with(|e| {
            e.compressors = plans(COMPRESSORS);
            e.raw_names = vec!["conv".to_owned()];
        })
    }),
    report: |results, _| report(results, &CIFAR_CNN, None, charts_of_layers),
    ..Study::PLAIN
};

/// The baseline, and methods that compress the fully connected layer alone.
const COMPRESSORS: [&str; 5] = [
    "none",
    "local-selection:fc=200",
    "local-selection:fc=300",
    "local-selection:fc=1000",
    "adacomp:fc=5000",
];
