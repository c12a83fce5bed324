//! The facts of a comparison's runs.

use std::collections::BTreeSet;

use gradwire_train::RunRecord;

use crate::experiment::Experiment;
use crate::format::seconds;
use crate::summary::Summary;

/// The set-up of the runs.
pub(super) fn facts(
    experiment: &Experiment,
    summary: &Summary,
    runs: &[RunRecord],
) -> Vec<(&'static str, String)> {
    let run = &runs[0];
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.iter().map(u64::to_string).collect();
    let mut facts = vec![
        ("parameters", format!("{} in {} tensors", run.parameters, run.tensors)),
        ("compressed", format!("{} parameters", run.compressed_parameters)),
        ("workers", run.workers.to_string()),
        ("exchange", exchanges(summary)),
        ("steps", run.steps.to_string()),
        ("batch per worker", run.batch.to_string()),
        ("optimizer", run.optimizer.to_string()),
        ("learning rate", run.learning_rate.to_string()),
        ("weight decay", run.weight_decay.to_string()),
        ("gradient norm", run.clip.map_or("any".to_owned(), |norm| format!("at most {norm}"))),
        ("crop and flip", if run.augment == Some(true) { "yes" } else { "no" }.to_owned()),
        ("seeds", seeds.join(", ")),
        ("total time", seconds(runs.iter().map(|run| run.seconds).sum())),
    ];
    facts.push(("sent uncompressed", uncompressed(experiment)));
    if !experiment.rules.is_empty() {
        let rules: Vec<String> = experiment.rules.iter().map(ToString::to_string).collect();
        facts.push(("rules", format!("{} (not for none)", rules.join(", "))));
    }
    if run.overlap {
        facts.push(("overlap", "gradients are sent while others are computed".to_owned()));
    }
    facts
}

/// The exchanges, each with its compressors if there are several.
fn exchanges(summary: &Summary) -> String {
    if !summary.has_exchanges() {
        return summary.rows[0].exchange.to_string();
    }
    let mut all: Vec<(String, Vec<&str>)> = Vec::new();
    for row in &summary.rows {
        let exchange = row.exchange.to_string();
        match all.iter_mut().find(|(known, _)| *known == exchange) {
            Some((_, compressors)) => compressors.push(&row.compressor),
            None => all.push((exchange, vec![&row.compressor])),
        }
    }
    let named = |(exchange, compressors): &(String, Vec<&str>)| {
        format!("{exchange}: {}", compressors.join(", "))
    };
    all.iter().map(named).collect::<Vec<_>>().join("; ")
}

/// The tensors that no compressor is for, unless a rule is.
fn uncompressed(experiment: &Experiment) -> String {
    let below = experiment.raw_below;
    let small = (below > 0).then(|| format!("tensors below {below} elements"));
    let vectors = experiment.raw_vectors.then(|| "vectors".to_owned());
    let named = experiment.raw_names.iter().map(|word| format!("names with '{word}'"));
    let all: Vec<String> = vectors.into_iter().chain(small).chain(named).collect();
    if all.is_empty() { "nothing".to_owned() } else { all.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn facts_name_exchanges_rules_and_raw_tensors() {
        let mut runs =
            [synthetic::run("none", 1), synthetic::run("3lc", 1), synthetic::run("sbc", 1)];
        let fact = |runs: &[RunRecord], name: &str| {
            let experiment = Experiment::default().with(|e| {
                e.rules = vec!["*.bias -> fp16".parse().unwrap()];
                e.raw_names = vec!["norm".to_owned()];
            });
            let facts = facts(&experiment, &synthetic::summary(runs), runs);
            facts.into_iter().find(|(known, _)| *known == name).unwrap().1
        };
        assert_eq!(fact(&runs, "exchange"), "server");
        runs[0].exchange = "all-reduce".parse().unwrap();
        assert_eq!(fact(&runs, "exchange"), "all-reduce: none; server: 3lc, sbc");
        assert_eq!(fact(&runs, "rules"), "*.bias -> fp16 (not for none)");
        let raw = "vectors, tensors below 256 elements, names with 'norm'";
        assert_eq!(fact(&runs, "sent uncompressed"), raw);
    }
}
