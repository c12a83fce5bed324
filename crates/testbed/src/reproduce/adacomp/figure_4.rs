//! Figure 4 of the AdaComp paper: error against compression rate of three methods.

use gradwire_train::plan::Plan;

use super::paper::{self, CIFAR_CNN};
use super::tables::table;
use crate::TestbedError;
use crate::experiment::Experiment;
use crate::figures;
use crate::reproduce::findings::{Findings, charts_over_steps};
use crate::reproduce::study::{About, Charts, Report, Results, Study, plans};
use crate::runner::Progress;
use crate::summary::summarize;

/// Figure 4.
pub(crate) struct Figure4;

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
        let (experiment, full) = (results.experiment, results.longest());
        let summary = summarize(&full, &experiment.links())?;
        let table = table(None, &experiment.compressors, &summary, &full);
        let mut charts: Charts = vec![("rate.svg".to_owned(), Box::new(figures::by_rate(&full)))];
        charts.extend(charts_over_steps(&summary, &full));
        let setup = CIFAR_CNN.setup(&full[0], experiment.seeds.len());
        let findings = Findings::of_one_setup("Paper and here", table, &summary, charts, setup);
        Ok(findings.report(self, results))
    }
}
