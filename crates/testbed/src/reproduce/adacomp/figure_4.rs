//! Figure 4 of the AdaComp paper: error against compression rate of three methods.

use gradwire_train::CompressionSchedule;

use super::paper::{self, CIFAR_CNN};
use super::tables::findings;
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::figures;
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;

/// Figure 4.
pub(crate) struct Figure4;

/// Bins of local selection and AdaComp, and fractions of Dryden's method.
const BINS: [u64; 5] = [50, 200, 500, 2000, 8000];
const FRACTIONS: [f64; 5] = [0.01, 0.003, 0.001, 0.0003, 0.0001];

fn compressors() -> Vec<CompressionSchedule> {
    let dryden = FRACTIONS.map(|ratio| format!("dryden:ratio={ratio}"));
    let local = BINS.map(|bin| format!("local-selection:conv={bin},fc={bin}"));
    let adacomp = BINS.map(|bin| format!("adacomp:conv={bin},fc={bin}"));
    let all = dryden.into_iter().chain(local).chain(adacomp);
    plans(std::iter::once("none".to_owned()).chain(all))
}

impl Study for Figure4 {
    fn about(&self) -> About {
        About::of(
            "adacomp-fig4",
            "error against compression rate of Dryden's method, local selection and AdaComp \
             (Figure 4)",
            paper::CITATION,
        )
    }

    fn experiment(&self, _: usize) -> Option<Experiment> {
        Some(CIFAR_CNN.experiment().with(|e| e.compressors = compressors()))
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let findings = findings(results, (&CIFAR_CNN, None), |runs| {
            vec![("rate.svg".to_owned(), Box::new(figures::by_rate(runs)))]
        })?;
        Ok(findings.report(self, results))
    }
}
