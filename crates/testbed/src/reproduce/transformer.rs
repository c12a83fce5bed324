//! Loss against bytes of a small transformer with AdamW, for what workers can send: gradients at every step, updates at
//! every step, and updates of several local steps, added or applied by an outer optimizer.
//!
//! A setting has a run with the first seed, and one with each further seed if it is on the front or a conclusion needs
//! its spread. Losses are compared by seed.

use gradwire_exchange::Exchange;
use gradwire_train::RunRecord;

use super::findings::page;
use super::study::{Charts, Report, Results, Study, by_exchange, chart, schedules};
use super::variation::runs_of;
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::format::{bytes, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::summary::Spread;
use crate::table::{Table, or_dash};

/// The study of a transformer.
pub(crate) const FRONTIER: Study = Study {
    id: "transformer-frontier",
    summary: "loss against bytes of a small GPT with AdamW: gradients, updates, local steps, outer optimizers",
    fixed: &["exchange", "send", "mask", "optimizer", "outer", "outer-lr", "rule"],
    experiment: Some(|_| {
        Experiment::default().suiting(known("gpt")).with(|e| {
            e.data = "tinyshakespeare".to_owned();
            e.workers = 2;
            e.steps = 2000;
            e.evaluations = 4;
            // The best for `none` of 0.001, 0.002, 0.004 and 0.008, with seed 0.
            e.learning_rate = known("cosine:from=0.004,to=0.0004,warmup=0.05");
            e.seeds = vec![0, 1, 2];
            e.compressors = schedules(all_specs());
        })
    }),
    variants: |_, experiment, _| variants(experiment).into_iter().map(|(_, one)| one).collect(),
    report: |results, _| report(results),
    ..Study::PLAIN
};

/// Settings that differ in their compressors only.
struct Family {
    name: &'static str,
    send: &'static str,
    /// The outer optimizer and its learning rate.
    outer: Option<(&'static str, f32)>,
    /// The workers' optimizer, if it is not the model's.
    optimizer: Option<&'static str>,
    /// The workers' learning rate, if it is not the baseline's.
    rate: Option<&'static str>,
    /// Compressors, as their specs print, that run with every seed.
    front: &'static [&'static str],
    /// Those that run with the first seed.
    others: &'static [&'static str],
}

/// The settings that are compared; `none` sent as gradients is the baseline.
const FAMILIES: [Family; 5] = [
    Family {
        name: "gradients",
        send: "gradients",
        outer: None,
        optimizer: None,
        rate: None,
        front: &["none", "3lc", "terngrad"],
        others: &[
            "natural",
            "qsgd:s=7",
            "int8",
            "3lc:ef=off",
            "topk:ratio=0.1",
            "topk",
            "powersgd",
            "efsignsgd",
            "onebit",
            "sbc",
            "adacomp",
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
        ],
    },
    Family {
        name: "gradients, variances frozen after a tenth",
        send: "gradients",
        outer: None,
        optimizer: Some("adamw:beta2=0.99,freeze=200"),
        rate: None,
        front: &[],
        others: &[
            "none",
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
            "none until 0.1 then topk",
        ],
    },
    Family {
        name: "updates",
        send: "updates",
        outer: None,
        optimizer: None,
        rate: None,
        front: &["none:every=10", "3lc", "3lc:every=10"],
        others: &[
            "terngrad",
            "topk",
            "onebit",
            "sbc",
            "powersgd",
            "terngrad:every=10",
            "onebit:every=10",
            "topk:every=10",
            "sbc:every=10",
            "none:every=50",
            "3lc:every=50",
        ],
    },
    Family {
        name: "updates, Nesterov outside",
        send: "updates",
        outer: Some(("nesterov", 0.7)),
        optimizer: None,
        rate: None,
        front: &["none:every=10", "terngrad:every=10", "3lc:every=10", "terngrad:every=50"],
        others: &[
            "none:every=50",
            "3lc:every=50",
            "onebit:every=50",
            "none:every=100",
            "terngrad:every=100",
            "3lc:every=100",
            "onebit:every=10",
            "topk:every=10",
            "sbc:every=10",
        ],
    },
    Family {
        name: "updates, Nesterov of 0.5 outside",
        send: "updates",
        outer: Some(("nesterov:m=0.5", 1.0)),
        optimizer: None,
        rate: None,
        front: &[],
        others: &["3lc:every=10", "3lc:every=50", "sbc:every=10"],
    },
];

impl Family {
    fn specs(&self) -> impl Iterator<Item = &'static str> {
        self.front.iter().chain(self.others).copied()
    }

    /// The settings of this family, with these compressors.
    fn experiment(&self, base: &Experiment, compressors: &[&str]) -> Experiment {
        base.clone().with(|e| {
            e.send = known(self.send);
            e.mask = false;
            e.outer = self.outer.map(|(outer, _)| known(outer));
            e.outer_rate = self.outer.map_or(1.0, |(_, rate)| rate);
            if let Some(rate) = self.rate {
                e.learning_rate = known(rate);
            }
            if let Some(optimizer) = self.optimizer {
                e.optimizer = known(optimizer);
            }
            e.compressors = schedules(compressors);
        })
    }
}

/// The compressors of all families, each once.
fn all_specs() -> Vec<&'static str> {
    let mut specs = Vec::new();
    for spec in FAMILIES.iter().flat_map(Family::specs) {
        if !specs.contains(&spec) {
            specs.push(spec);
        }
    }
    specs
}

/// The compressors of each family by exchange: the front with the first seed, the others, the front with other seeds.
fn variants(experiment: &Experiment) -> Vec<(&'static Family, Experiment)> {
    let (first, others) = experiment.seeds.split_at(experiment.seeds.len().min(1));
    let with = |seeds: &[u64]| experiment.clone().with(|e| e.seeds = seeds.to_vec());
    let of = |base: &Experiment, specs: fn(&Family) -> Vec<&'static str>| {
        let of_family = |family: &'static Family| {
            let split = by_exchange(&family.experiment(base, &specs(family))).into_iter();
            split.map(move |one| (family, with_short_vectors(one)))
        };
        FAMILIES.iter().flat_map(of_family).collect::<Vec<_>>()
    };
    let mut all = of(&with(first), |family| family.front.to_vec());
    all.extend(of(&with(first), |family| family.others.to_vec()));
    all.extend(of(&with(others), |family| family.front.to_vec()));
    all.retain(|(_, one)| !one.seeds.is_empty());
    all
}

/// Sends vectors, a hundredth of the elements, as 8-bit integers, where messages are gathered: uncompressed they would be a
/// third of what 3LC sends.
fn with_short_vectors(experiment: Experiment) -> Experiment {
    let gathered = experiment.exchange == Exchange::AllGather;
    experiment
        .with(|e| e.rules = if gathered { vec![known("vectors -> int8")] } else { Vec::new() })
}

/// The runs of one setting.
struct Setting<'a> {
    family: &'static Family,
    runs: Vec<&'a RunRecord>,
    /// The losses on the test set.
    losses: Spread,
    /// Loss less that of `none` with the same seed.
    differences: Option<Spread>,
    /// Bytes that a worker sent.
    bytes: f64,
    /// Those of `none` over these.
    ratio: Option<f64>,
}

/// ln of the perplexity.
fn loss(run: &RunRecord) -> f64 {
    run.quality.ln()
}

/// The settings that have runs, the baseline first.
fn settings<'a>(results: &Results<'a>) -> Vec<Setting<'a>> {
    let variants = variants(&results.experiment.clone().with(|e| e.seeds.truncate(1)));
    let specs = variants.iter().flat_map(|(family, experiment)| {
        experiment.compressors.iter().map(move |spec| (family, experiment, spec.to_string()))
    });
    let grouped: Vec<_> =
        specs.map(|(family, one, spec)| (*family, runs_of(results.runs, one, &spec))).collect();
    let Some((_, none)) = grouped.first() else { return Vec::new() };
    let setting = |(family, runs): &(&'static Family, Vec<&'a RunRecord>)| {
        let losses = Spread::of(&runs.iter().map(|run| loss(run)).collect::<Vec<_>>())?;
        let pairs = runs.iter().filter_map(|run| {
            let none = none.iter().find(|none| none.seed == run.seed)?;
            Some(loss(run) - loss(none))
        });
        let differences = Spread::of(&pairs.collect::<Vec<_>>());
        let bytes = runs.iter().map(|run| run.bytes_up).sum::<f64>() / runs.len() as f64;
        let ratio = none.first().map(|none| none.bytes_up / bytes);
        Some(Setting { family, runs: runs.clone(), losses, differences, bytes, ratio })
    };
    grouped.iter().filter_map(setting).collect()
}

impl Setting<'_> {
    fn compressor(&self) -> &str {
        &self.runs[0].compressor
    }

    /// Whether no other setting has both a lower loss and fewer bytes.
    fn is_on_front(&self, all: &[Self]) -> bool {
        let better =
            |other: &Self| other.bytes < self.bytes && other.losses.mean < self.losses.mean;
        !all.iter().any(better)
    }
}

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let mut all = settings(results);
    let Some(none) = all.first() else {
        return Err(TestbedError::Config("there are no runs to show".to_owned()));
    };
    let run = none.runs[0];
    let text = format!(
        "{} with {} parameters on {}, {} workers with {} windows each, {} steps, {}, learning rate {}. Loss: mean \
         cross-entropy of a token of the test text, after the last step. Against none: the difference from the run of \
         `none` with the same seed. Bytes: what a worker sent in the run, counted at the transport. Vectors \
         travel as `int8` beside all compressors but `none` and `powersgd`. On the front: no other setting has a lower loss \
         with fewer bytes. ±: standard deviation over seeds.\n\n",
        run.model,
        run.parameters,
        run.data,
        run.workers,
        run.batch,
        run.steps,
        run.optimizer,
        run.learning_rate,
    );
    let spread = |spread: &Spread, sign: bool| {
        let mean =
            if sign { format!("{:+.3}", spread.mean) } else { format!("{:.3}", spread.mean) };
        if spread.count > 1 { format!("{mean} ± {:.3}", spread.sd) } else { mean }
    };
    all.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    let table = Table::of(&all)
        .column("sent", |setting| setting.family.name)
        .column("compressor", Setting::compressor)
        .column("loss", |setting| spread(&setting.losses, false))
        .column("against none", |setting| {
            or_dash(setting.differences.map(|differences| spread(&differences, true)))
        })
        .column("bytes", |setting| bytes(setting.bytes))
        .column("fewer bytes", |setting| or_dash(setting.ratio.map(times)))
        .column("seeds", |setting| setting.runs.len())
        .column("front", |setting| if setting.is_on_front(&all) { "yes" } else { "" })
        .table();
    let text = text + &table.markdown();
    Ok(page(results, &text, &charts(&all), vec![table.terminal()]))
}

/// Loss over the ratio of bytes: a line for each family, and the front.
fn charts(all: &[Setting<'_>]) -> Charts {
    let point = |setting: &Setting<'_>| {
        let Spread { mean, min, max, .. } = setting.losses;
        Some(Point { x: setting.ratio?, y: mean, low: min, high: max })
    };
    let mut scatter = Chart::new(
        "Loss of a small GPT and bytes",
        ("times fewer bytes than none", Scale::Log),
        ("loss on the test text", Scale::Linear),
        [],
    );
    for setting in all {
        point(setting).into_iter().for_each(|point| scatter.add(setting.family.name, point));
    }
    let front = all.iter().filter(|setting| setting.is_on_front(all)).filter_map(point);
    let front = Series::new("the front", 0, front.collect());
    let lowest = Chart::new(
        "The front: the lowest loss for the bytes",
        ("times fewer bytes than none", Scale::Log),
        ("loss on the test text", Scale::Linear),
        [front],
    );
    vec![chart("all.svg", scatter), chart("front.svg", lowest)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn settings_are_told_apart_and_compared_by_seed() {
        let experiment = FRONTIER.experiment.unwrap()(0);
        let runs: Vec<RunRecord> = variants(&experiment)
            .into_iter()
            .flat_map(|(_, one)| one.seeds.clone().into_iter().map(move |seed| (one.clone(), seed)))
            .flat_map(|(one, seed)| {
                one.compressors.clone().into_iter().map(move |spec| {
                    let run = synthetic::run(&spec.to_string(), seed);
                    let quality = (2.0 + seed as f64 + f64::from(one.outer.is_some())).exp();
                    RunRecord { settings: one.settings.clone(), quality, ..run }
                })
            })
            .collect();
        let out = std::path::Path::new("results");
        let (study, command) = (&FRONTIER, "");
        let results = Results { study, row: 0, experiment: &experiment, runs: &runs, out, command };
        let settings = settings(&results);
        let specs: usize = FAMILIES.iter().map(|family| family.specs().count()).sum();
        assert_eq!(settings.len(), specs);
        assert_eq!((settings[0].compressor(), settings[0].ratio), ("none", Some(1.0)));
        for setting in settings {
            let (spec, difference) = (setting.compressor(), setting.differences.unwrap());
            let expected = if setting.family.outer.is_some() { 1.0 } else { 0.0 };
            assert!((difference.mean - expected).abs() < 1e-9 && difference.sd < 1e-9);
            let seeds = if setting.family.front.contains(&spec) { 3 } else { 1 };
            assert_eq!(setting.runs.len(), seeds, "{} {spec}", setting.family.name);
        }
    }
}
