//! Figure 4 of the AdaComp paper: error against compression rate of three methods.

use gradwire_train::plan::Plan;

use super::paper::{self, CIFAR_CNN};
use super::tables::report;
use crate::figures;
use crate::reproduce::study::{Study, chart, plans};

/// Figure 4.
pub(crate) const FIGURE_4: Study = Study {
    id: "adacomp-fig4",
    summary: "error against compression rate of Dryden's method, local selection and AdaComp (Figure 4)",
    citation: paper::CITATION,
    experiment: Some(|_| CIFAR_CNN.experiment().with(|e| e.compressors = compressors())),
    report: |results, _| {
        let charts = |runs: &[_]| vec![chart("rate.svg", figures::by_rate(runs))];
        report(results, &CIFAR_CNN, None, charts)
    },
    ..Study::PLAIN
};

/// Bins of local selection and AdaComp, and fractions of Dryden's method.
const BINS: [u64; 5] = [50, 200, 500, 2000, 8000];
const FRACTIONS: [f64; 5] = [0.01, 0.003, 0.001, 0.0003, 0.0001];

fn compressors() -> Vec<Plan> {
    let dryden = FRACTIONS.map(|ratio| format!("dryden:ratio={ratio}"));
    let local = BINS.map(|bin| format!("local-selection:conv={bin},fc={bin}"));
    let adacomp = BINS.map(|bin| format!("adacomp:conv={bin},fc={bin}"));
    let all = dryden.into_iter().chain(local).chain(adacomp);
    plans(std::iter::once("none".to_owned()).chain(all))
}
