//! Figure 6 of the survey for the methods that it trains with plain SGD in image classification.

use gradwire_train::CompressionSchedule;

use super::figure_6::findings;
use super::paper::{self, BENCHMARKS, CLASSIFICATION, Differs};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::reproduce::study::{About, Report, Results, Study, plans};
use crate::runner::Progress;

/// Figure 6 with plain SGD.
pub(crate) struct PlainSgd;

/// The methods (section 5.1), behind their baseline.
const METHODS: [&str; 6] = ["none", "powersgd", "randomk", "dgc", "signsgd", "signum"];
/// The survey's learning rate of signs (section 5.4).
const SIGN_RATE: &str = "0.001";

impl Study for PlainSgd {
    fn about(&self) -> About {
        About {
            rows: paper::names()[..CLASSIFICATION].to_vec(),
            fixed: &["exchange"],
            ..About::of(
                "grace-fig6-sgd",
                "the same for the methods that the survey trains with plain SGD (--row resnet20, \
                 densenet40, resnet9 or vgg16)",
                paper::CITATION,
            )
        }
    }

    fn experiment(&self, row: usize) -> Option<Experiment> {
        Some(BENCHMARKS[row].experiment().with(|e| {
            e.compressors = plans(METHODS);
            e.optimizer = known("sgd");
        }))
    }

    /// By exchange; signs have a learning rate of their own.
    fn variants(&self, row: usize, experiment: &Experiment, _: Option<usize>) -> Vec<Experiment> {
        let votes = |plan: &CompressionSchedule| plan.first().compressor().votes();
        let (signs, others): (Vec<_>, Vec<_>) =
            experiment.compressors.iter().cloned().partition(votes);
        let rate = sign_rate(row, &experiment.learning_rate.to_string());
        let of = |compressors| experiment.clone().with(|e| e.compressors = compressors);
        let slow = of(signs).with(|e| e.learning_rate = known(&rate));
        [paper::by_exchange(&of(others)), paper::by_exchange(&slow)].concat()
    }

    fn report(&self, results: &Results<'_>, _: &dyn Progress) -> Result<Report, TestbedError> {
        let first = results.longest().first().map(|run| run.learning_rate.to_string());
        let here = sign_rate(results.row, &first.unwrap_or_default());
        let differs = Differs::PlainSgd { sign_rates: [SIGN_RATE, &here] };
        Ok(findings(results, differs)?.report(self, results))
    }
}

/// The learning rate of signs in a row where others have the rate `others`: the survey's, unless another was asked for.
fn sign_rate(row: usize, others: &str) -> String {
    let usual = BENCHMARKS[row].experiment().learning_rate.to_string();
    if others == usual { SIGN_RATE } else { others }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_have_a_learning_rate_of_their_own() {
        let experiment = PlainSgd.experiment(0).unwrap();
        let rates: Vec<String> = PlainSgd
            .variants(0, &experiment, None)
            .iter()
            .map(|one| format!("{} {} {}", one.optimizer, one.learning_rate, one.compressors.len()))
            .collect();
        let rate = &experiment.learning_rate;
        assert_eq!(rates, [format!("sgd {rate} 3"), format!("sgd {rate} 1"), "sgd 0.001 2".into()]);
        assert_eq!(sign_rate(0, "0.01"), "0.01");
    }

    #[test]
    fn rows_with_another_optimizer_are_refused() {
        let row = |name| crate::reproduce::row_of(&PlainSgd, Some(name));
        assert_eq!(row("vgg16").unwrap(), 3);
        assert!(row("ncf").unwrap_err().to_string().contains("vgg16"));
    }
}
