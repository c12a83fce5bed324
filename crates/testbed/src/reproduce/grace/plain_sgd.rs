//! Figure 6 of the survey for the methods that it trains with plain SGD in image classification.

use gradwire_train::CompressionSchedule;

use super::figure_6::report;
use super::paper::{self, BENCHMARKS, CLASSIFICATION};
use crate::experiment::{Experiment, known};
use crate::reproduce::study::{Study, by_exchange, schedules};

/// Figure 6 with plain SGD, with the methods of section 5.1.
pub(crate) const PLAIN_SGD: Study = Study {
    id: "grace-fig6-sgd",
    summary: "the same for methods that the survey trains with plain SGD (--row resnet20, \
        densenet40, resnet9 or vgg16)",
    citation: paper::CITATION,
    rows: CLASSIFICATION,
    fixed: &["exchange"],
    experiment: Some(|row| {
        BENCHMARKS[row].experiment().with(|e| {
            let dgc = "dgc:ratio=0.01 from ratio=0.25 over 0.2";
            e.compressors = schedules(["none", "powersgd", "randomk", dgc, "signsgd", "signum"]);
            e.optimizer = known("sgd");
        })
    }),
    variants: |row, experiment, _| variants(row, experiment),
    report: |results, _| {
        let (full, _) = results.summarized()?;
        let here = sign_rate(results.row, &full[0].learning_rate.to_string());
        report(results, Some([SIGN_RATE, &here]))
    },
    ..Study::PLAIN
};

/// The survey's learning rate of signs (section 5.4).
const SIGN_RATE: &str = "0.001";

/// The experiments by exchange; methods that send signs have their own learning rate.
fn variants(row: usize, experiment: &Experiment) -> Vec<Experiment> {
    let votes = |schedule: &CompressionSchedule| schedule.first().compressor().votes();
    let (signs, others): (Vec<_>, Vec<_>) = experiment.compressors.iter().cloned().partition(votes);
    let rate = sign_rate(row, &experiment.learning_rate.to_string());
    let of = |compressors| experiment.clone().with(|e| e.compressors = compressors);
    let slow = of(signs).with(|e| e.learning_rate = known(&rate));
    [by_exchange(&of(others)), by_exchange(&slow)].concat()
}

/// The learning rate of methods that send signs. It is the survey's, unless the rate `others` of
/// the other methods shows that the user asked for another.
fn sign_rate(row: usize, others: &str) -> String {
    let usual = BENCHMARKS[row].experiment().learning_rate.to_string();
    if others == usual { SIGN_RATE } else { others }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_have_a_learning_rate_of_their_own() {
        let experiment = PLAIN_SGD.experiment.unwrap()(0);
        let rates: Vec<String> = variants(0, &experiment)
            .iter()
            .map(|one| format!("{} {} {}", one.optimizer, one.learning_rate, one.compressors.len()))
            .collect();
        let rate = &experiment.learning_rate;
        assert_eq!(rates, [format!("sgd {rate} 3"), format!("sgd {rate} 1"), "sgd 0.001 2".into()]);
        assert_eq!(sign_rate(0, "0.01"), "0.01");
    }

    #[test]
    fn rows_with_another_optimizer_are_refused() {
        let row = |name| PLAIN_SGD.row(Some(name));
        assert_eq!(row("vgg16").unwrap(), 3);
        assert!(row("ncf").unwrap_err().to_string().contains("vgg16"));
    }
}
