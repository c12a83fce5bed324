//! Loss against bytes of a small transformer with AdamW, for what workers can send: gradients at every step, updates at
//! every step, and updates of several local steps, added or applied by an outer optimizer.
//!
//! Losses are compared by seed. A setting has a run with the first seed, and with each further seed if it is on the front
//! or if a conclusion needs its spread.

use gradwire_exchange::Exchange;
use gradwire_train::RunRecord;

use super::findings::page;
use super::study::{Charts, Report, Results, Study, by_exchange, chart, schedules};
use super::variation::{each_once, runs_of};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::format::{bytes, times};
use crate::plot::{Chart, Point, Scale, Series};
use crate::summary::{Spread, paired};
use crate::table::{Table, or_dash};

/// The study of a transformer.
pub(crate) const FRONTIER: Study = Study {
    id: "transformer-frontier",
    summary: "loss against bytes of a small GPT with AdamW: gradients, updates, local steps, outer optimizers",
    fixed: &[
        "exchange",
        "send",
        "mask",
        "optimizer",
        "outer",
        "outer-lr",
        "rule",
        "lr",
        "fraction",
    ],
    experiment: Some(|_| {
        Experiment::default().suiting(known("gpt")).with(|e| {
            e.data = "tinyshakespeare".to_owned();
            e.workers = 2;
            e.steps = 2000;
            e.evaluations = 4;
            e.learning_rate = known(RATE);
            e.seeds = vec![0, 1, 2];
            e.compressors = each_once(FAMILIES.iter().flat_map(Family::specs));
        })
    }),
    variants: |_, experiment, _| variants(experiment).into_iter().map(|(_, one)| one).collect(),
    report: |results, _| report(results),
    ..Study::PLAIN
};

/// The learning rate of gradients, and of updates at every step. Of the peaks 0.001, 0.002, 0.004 and 0.008, `none` with seed 0 reaches the losses 1.820,
/// 1.722, 1.665 and 1.677.
const RATE: &str = "cosine:from=0.004,to=0.0004,warmup=0.05";

/// The learning rate of local steps. Of the peaks 0.004 and 0.008, `none:every=10` with seed 0 reaches 1.698 and 1.686.
const LOCAL_RATE: &str = "cosine:from=0.008,to=0.0008,warmup=0.05";

/// That of local steps below DiLoCo's outer optimizer. Of 0.001 and 0.004, `none:every=10` reaches 1.777 and 1.805.
const DILOCO_RATE: &str = "cosine:from=0.001,to=0.0001,warmup=0.05";

/// Settings that differ in their compressors only.
struct Family {
    name: &'static str,
    send: &'static str,
    /// The outer optimizer and its learning rate.
    outer: Option<(&'static str, f32)>,
    /// What is exchanged after a tenth of the steps, from which on the workers' mean squares stay what they are.
    frozen: Option<&'static str>,
    /// Compressors of certain tensors.
    rules: &'static [&'static str],
    rate: &'static str,
    /// Compressors, as their specs print, that run with every seed.
    every_seed: &'static [&'static str],
    /// Those that run with the first seed.
    first_seed: &'static [&'static str],
}

/// The settings that are compared; `none` sent as gradients is the baseline.
const FAMILIES: [Family; 8] = [
    Family {
        name: "gradients",
        send: "gradients",
        outer: None,
        frozen: None,
        rules: &[],
        rate: RATE,
        every_seed: &["none", "terngrad", "eden", "3lc"],
        first_seed: &[
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
            "3lc:ef=ef21",
            "3lc:momentum=0.9",
            "onebit:ef=ef21",
            "3lc:beta=0.9",
            "terngrad:clip=4,code=huffman",
            "eden:bits=2,code=huffman",
            "int4:hadamard=on,ef=off",
            "topk:ratio=0.1",
            "topk:ratio=0.1,ef=ef21",
            "powersgd",
            "onebit",
            "qsgd:s=7",
            "natural",
            "3lc:ef=off",
            "3lc:beta=0.5",
            "onebit:beta=0.9",
            "topk",
            "efsignsgd",
            "eden:ef=on",
            "sbc",
            "adacomp",
            "int8",
        ],
    },
    Family {
        name: "gradients, embeddings as int8",
        send: "gradients",
        outer: None,
        frozen: None,
        rules: &["tokens.weight -> int8", "positions.weight -> int8"],
        rate: RATE,
        every_seed: &[],
        first_seed: &["3lc", "onebit", "topk"],
    },
    Family {
        name: "gradients, mean squares frozen after a tenth",
        send: "gradients",
        outer: None,
        frozen: Some("gradient"),
        rules: &[],
        rate: RATE,
        every_seed: &[],
        first_seed: &[
            "none",
            "none until 0.1 then 3lc",
            "none until 0.1 then onebit",
            "none until 0.1 then topk",
        ],
    },
    Family {
        name: "momentum after a tenth (1-bit Adam)",
        send: "gradients",
        outer: None,
        frozen: Some("momentum"),
        rules: &[],
        rate: RATE,
        every_seed: &[],
        first_seed: &[
            "none until 0.1 then onebit",
            "none until 0.1 then 3lc",
            "none until 0.1 then eden:ef=on",
        ],
    },
    Family {
        name: "updates at every step",
        send: "updates",
        outer: None,
        frozen: None,
        rules: &[],
        rate: RATE,
        every_seed: &["3lc"],
        first_seed: &["terngrad", "eden", "onebit", "topk", "sbc", "powersgd"],
    },
    Family {
        name: "local steps, outer Nesterov (0.7, momentum 0.9)",
        send: "updates",
        outer: Some(("nesterov", 0.7)),
        frozen: None,
        rules: &[],
        rate: DILOCO_RATE,
        every_seed: &[],
        first_seed: &["none:every=10", "none:every=50", "terngrad:every=50", "3lc:every=50"],
    },
    Family {
        name: "local steps, outer Nesterov (0.7, momentum 0.5)",
        send: "updates",
        outer: Some(("nesterov:m=0.5", 0.7)),
        frozen: None,
        rules: &[],
        rate: RATE,
        every_seed: &[
            "none:every=10",
            "terngrad:code=huffman,every=10",
            "eden:every=25",
            "eden:every=50",
            "terngrad:code=huffman,every=100",
        ],
        first_seed: &[
            "none:every=50",
            "terngrad:every=10",
            "terngrad:code=huffman,every=25",
            "terngrad:every=50",
            "onebit:every=10",
            "onebit:every=50",
            "eden:every=100 until 0.7 then eden:every=25",
            "eden:every=25 until 0.3 then eden:every=100",
            "eden:ef=on,every=25",
            "eden:ef=on,every=50",
            "chunk-topk:beta=0.95,every=10",
            "chunk-topk:beta=0.95,every=25",
            "chunk-topk:k=512,beta=0.95,every=25",
            "3lc:every=10",
            "3lc:every=50",
            "sbc:every=10",
            "sbc:p=0.1,every=10",
        ],
    },
    Family {
        name: "updates of local steps",
        send: "updates",
        outer: None,
        frozen: None,
        rules: &[],
        rate: LOCAL_RATE,
        every_seed: &["none:every=10", "terngrad:every=10", "onebit:every=10", "3lc:every=10"],
        first_seed: &[
            "terngrad:every=50",
            "3lc:every=50",
            "none:every=50",
            "onebit:every=50",
            "sbc:every=10",
            "topk:every=10",
            "chunk-topk:beta=0.95,every=10",
            "chunk-topk:beta=0.95,every=25",
        ],
    },
];

impl Family {
    fn specs(&self) -> impl Iterator<Item = &'static &'static str> {
        self.every_seed.iter().chain(self.first_seed)
    }

    /// The settings of this family, with these compressors.
    fn experiment(&self, base: &Experiment, compressors: &[&str]) -> Experiment {
        base.clone().with(|e| {
            e.send = known(self.send);
            e.mask = false;
            e.outer = self.outer.map(|(outer, _)| known(outer));
            e.outer_rate = self.outer.map_or(1.0, |(_, rate)| rate);
            e.learning_rate = known(self.rate);
            if let Some(exchanged) = self.frozen {
                let at = (e.steps / 10).max(1);
                e.optimizer = known(&format!("{},freeze={at},exchange={exchanged}", e.optimizer));
            }
            e.rules = self.rules.iter().map(|rule| known(rule)).collect();
            e.compressors = schedules(compressors);
        })
    }
}

/// The families with the compressors that run with every seed, by exchange, the first seed before the others; then those that
/// run with the first seed alone, the long list of gradients last.
fn variants(experiment: &Experiment) -> Vec<(&'static Family, Experiment)> {
    let (first, others) = experiment.seeds.split_at(experiment.seeds.len().min(1));
    let mut all = of_families(experiment, first, |family| family.every_seed);
    all.extend(of_families(experiment, others, |family| family.every_seed));
    all.extend(of_families(experiment, first, |family| family.first_seed).into_iter().rev());
    all.retain(|(_, one)| !one.seeds.is_empty());
    all
}

/// Each family with the compressors that `specs` selects, by exchange.
fn of_families(
    experiment: &Experiment,
    seeds: &[u64],
    specs: fn(&Family) -> &'static [&'static str],
) -> Vec<(&'static Family, Experiment)> {
    let base = experiment.clone().with(|e| e.seeds = seeds.to_vec());
    let of_family = |family: &'static Family| {
        let split = by_exchange(&family.experiment(&base, specs(family))).into_iter();
        split.map(move |one| (family, with_vectors_as_int8(one)))
    };
    FAMILIES.iter().flat_map(of_family).collect()
}

/// Sends vectors, a hundredth of the elements, as 8-bit integers, where messages are gathered: uncompressed they would be a
/// third of what 3LC sends.
fn with_vectors_as_int8(experiment: Experiment) -> Experiment {
    let gathered = experiment.exchange == Exchange::AllGather;
    experiment.with(|e| e.rules.extend(gathered.then(|| known("vectors -> int8"))))
}

/// The runs of one setting.
struct Setting<'a> {
    family: &'static Family,
    /// With the loss on the test text as their quality.
    runs: Vec<&'a RunRecord>,
    losses: Spread,
    /// Loss less that of `none` with the same seed.
    differences: Option<Spread>,
    /// Bytes that a worker sent.
    bytes: f64,
    /// Those of `none` over these.
    ratio: Option<f64>,
}

/// The same run with the loss, ln of the perplexity, as its quality.
fn with_loss(run: &RunRecord) -> RunRecord {
    RunRecord { quality: run.quality.ln(), ..run.clone() }
}

/// The settings that have runs, the baseline first.
fn settings<'a>(experiment: &Experiment, runs: &'a [RunRecord]) -> Vec<Setting<'a>> {
    let variants = variants(&experiment.clone().with(|e| e.seeds.truncate(1)));
    let specs = variants.iter().flat_map(|(family, one)| {
        one.compressors.iter().map(move |spec| (*family, one, spec.to_string()))
    });
    let groups: Vec<_> =
        specs.map(|(family, one, spec)| (family, runs_of(runs, one, &spec))).collect();
    let none = groups.first().map(|(_, runs)| runs.clone()).unwrap_or_default();
    let setting = |(family, runs): (&'static Family, Vec<&'a RunRecord>)| {
        let losses: Vec<f64> = runs.iter().map(|run| run.quality).collect();
        let bytes = runs.iter().map(|run| run.bytes_up).sum::<f64>() / runs.len() as f64;
        Some(Setting {
            family,
            losses: Spread::of(&losses)?,
            differences: paired(&runs, &none),
            bytes,
            ratio: none.first().map(|none| none.bytes_up / bytes),
            runs,
        })
    };
    groups.into_iter().filter_map(setting).collect()
}

impl Setting<'_> {
    fn compressor(&self) -> &str {
        &self.runs[0].compressor
    }

    /// The loss above that of `none`, seed by seed.
    fn above_none(&self) -> f64 {
        self.differences.map_or(f64::NAN, |differences| differences.mean)
    }

    /// Whether no other setting has both a lower loss and fewer bytes.
    fn is_on_front(&self, all: &[Self]) -> bool {
        let better =
            |other: &Self| other.bytes < self.bytes && other.above_none() < self.above_none();
        !all.iter().any(better)
    }
}

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let runs: Vec<RunRecord> = results.runs.iter().map(with_loss).collect();
    let mut all = settings(results.experiment, &runs);
    let Some(none) = all.first() else {
        return Err(TestbedError::Config("there are no runs to show".to_owned()));
    };
    let text = set_up(none.runs[0]);
    all.sort_by(|a, b| b.bytes.total_cmp(&a.bytes));
    let table = table(&all);
    let text = format!("{text}\n\n{}", table.markdown());
    Ok(page(results, &text, &charts(&all), vec![table.terminal()]))
}

/// What all settings have in common, and what the columns mean.
fn set_up(run: &RunRecord) -> String {
    let rates = FAMILIES.iter().map(|family| format!("{}: {}", family.name, family.rate));
    let rates: Vec<String> = rates.collect();
    format!(
        "{} with {} parameters on {}, {} workers with {} windows each, {} steps, AdamW with a mean-square decay of 0.99 \
         and a weight decay of {}. Learning rates, found on `none` for gradients and for ten local steps [among those tried](rates): \
         {}. Vectors travel as `int8` where messages are gathered.\n\n\
         Loss: mean cross-entropy of a token of the test text after the last step. Against none: the difference from the \
         run of `none`, sent as gradients, with the same seed. Bytes: what a worker sent in the run, counted at the \
         transport. On the front: no other setting has a lower difference with fewer bytes. ±: standard deviation over \
         seeds.",
        run.model,
        run.parameters,
        run.data,
        run.workers,
        run.batch,
        run.steps,
        run.weight_decay,
        rates.join("; "),
    )
}

fn table(all: &[Setting<'_>]) -> Table {
    let spread = |spread: &Spread, mean: String| match spread.count {
        1 => mean,
        _ => format!("{mean} ± {:.3}", spread.sd),
    };
    Table::of(all)
        .column("sent", |setting| setting.family.name)
        .column("compressor", Setting::compressor)
        .column("loss", |setting| spread(&setting.losses, format!("{:.3}", setting.losses.mean)))
        .column("against none", |setting| {
            let shown = |by: Spread| spread(&by, format!("{:+.3}", by.mean));
            or_dash(setting.differences.map(shown))
        })
        .column("bytes", |setting| bytes(setting.bytes))
        .column("fewer bytes", |setting| or_dash(setting.ratio.map(times)))
        .column("seeds", |setting| setting.runs.len())
        .column("front", |setting| if setting.is_on_front(all) { "yes" } else { "" })
        .table()
}

/// Loss above that of `none` over the ratio of bytes: a line for each family, and the front.
fn charts(all: &[Setting<'_>]) -> Charts {
    let point = |setting: &Setting<'_>| {
        let Spread { mean, min, max, .. } = setting.differences?;
        Some(Point { x: setting.ratio?, y: mean, low: min, high: max })
    };
    let axes = (("times fewer bytes than none", Scale::Log), ("loss above none", Scale::Linear));
    let mut scatter = Chart::new("Loss of a small GPT and bytes", axes.0, axes.1, []);
    for setting in all {
        point(setting).into_iter().for_each(|point| scatter.add(setting.family.name, point));
    }
    let front = all.iter().filter(|setting| setting.is_on_front(all)).filter_map(point);
    let front = Series::new("the front", 0, front.collect());
    let lowest = Chart::new("The lowest loss for the bytes", axes.0, axes.1, [front]);
    vec![chart("all.svg", scatter), chart("front.svg", lowest)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    /// A run of each setting and seed, whose quality depends on family, compressor and seed.
    fn runs(experiment: &Experiment) -> Vec<RunRecord> {
        let mut runs = Vec::new();
        for (family, one) in variants(experiment) {
            for (seed, spec) in one
                .seeds
                .iter()
                .flat_map(|seed| one.compressors.iter().map(move |spec| (seed, spec)))
            {
                let run = synthetic::run(&spec.to_string(), *seed);
                let quality = *seed as f64 + expected(family, &spec.to_string());
                runs.push(RunRecord { settings: one.settings.clone(), quality, ..run });
            }
        }
        runs
    }

    /// A number for each setting; 0 for the baseline.
    fn expected(family: &Family, spec: &str) -> f64 {
        let at = family.specs().position(|other| *other == spec).unwrap();
        let family_at = FAMILIES.iter().position(|other| other.name == family.name).unwrap();
        (100 * family_at + at) as f64
    }

    #[test]
    fn settings_are_told_apart_and_compared_by_seed() {
        let experiment = FRONTIER.experiment.unwrap()(0);
        let runs = runs(&experiment);
        let settings = settings(&experiment, &runs);
        let specs: usize = FAMILIES.iter().map(|family| family.specs().count()).sum();
        assert_eq!(settings.len(), specs);
        assert_eq!((settings[0].compressor(), settings[0].ratio), ("none", Some(1.0)));
        for setting in settings {
            let (spec, difference) = (setting.compressor(), setting.differences.unwrap());
            let expected = expected(setting.family, spec);
            assert!((difference.mean - expected).abs() < 1e-9 && difference.sd < 1e-9);
            let seeds = if setting.family.every_seed.contains(&spec) { 3 } else { 1 };
            assert_eq!(setting.runs.len(), seeds, "{} {spec}", setting.family.name);
        }
    }

    #[test]
    fn the_front_has_what_nothing_else_beats_in_both() {
        let experiment = FRONTIER.experiment.unwrap()(0);
        let mut runs = runs(&experiment);
        // All but the baseline send the same number of bytes, and nothing is beaten by a setting with as many.
        runs.retain(|run| run.settings.send.to_string() == "gradients" && run.seed == 0);
        let settings = settings(&experiment, &runs);
        let on_front = |spec: &str| {
            let setting = settings.iter().find(|setting| setting.compressor() == spec).unwrap();
            setting.is_on_front(&settings)
        };
        assert!(on_front("none") && on_front("terngrad"));
        let mut worse = runs.clone();
        let none = worse.iter_mut().find(|run| run.compressor == "none").unwrap();
        none.bytes_up *= 2.0;
        let terngrad = worse.iter_mut().find(|run| run.compressor == "terngrad").unwrap();
        terngrad.quality = -1.0;
        let settings = self::settings(&experiment, &worse);
        assert!(!settings[0].is_on_front(&settings));
    }
}
