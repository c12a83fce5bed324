//! Figures 5 and 6 of the AdaComp paper: residuals over training, with the fully connected layer compressed alone.

use super::paper::{self, CIFAR_CNN};
use super::tables::findings;
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::reproduce::findings::charts_of_layers;
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;

/// Figure 5.
pub(crate) struct Figure5;

/// The baseline, and methods that compress the fully connected layer alone.
const COMPRESSORS: [&str; 5] = [
    "none",
    "local-selection:fc=200",
    "local-selection:fc=300",
    "local-selection:fc=1000",
    "adacomp:fc=5000",
];

impl Study for Figure5 {
    fn about(&self) -> About {
        About::of(
            "adacomp-fig5",
            "residuals over training, the fully connected layer compressed alone (Figures 5 and \
             6)",
            paper::CITATION,
        )
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        Some(CIFAR_CNN.experiment().with(|e| {
            e.compressors = plans(COMPRESSORS);
            e.raw_names = vec!["conv".to_owned()];
        }))
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let findings = findings(results, (&CIFAR_CNN, None), charts_of_layers)?;
        Ok(findings.report(self, results))
    }
}
