//! A setting of the front in other set-ups: more steps, Muon, a part of the text for each rank, and
//! more ranks.
//!
//! Each set-up has its own run of `none` for comparison. With more ranks the total batch stays the
//! same as with two, so the learning rate found for `none` fits.

use gradwire_train::RunRecord;

use super::families::{FAMILIES, Family, RATE};
use super::setting::{Setting, with_loss};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::reproduce::findings::page;
use crate::reproduce::study::{Report, Results, Study, with_server};
use crate::reproduce::variation::each_once;
use crate::table::Table;

/// The study of a transformer's set-ups.
pub(crate) const SET_UPS: Study = Study {
    id: "transformer-setups",
    summary: "loss against bytes of the small GPT over more steps, with Muon, with a part of the text for each rank, and with more ranks",
    fixed: &[
        "compressor",
        "workers",
        "batch",
        "exchange",
        "send",
        "mask",
        "split",
        "optimizer",
        "outer",
        "outer-lr",
        "median-clip",
        "rule",
        "lr",
        "fraction",
    ],
    experiment: Some(|_| {
        with_server().suiting_own("gpt").with(|e| {
            e.data = "tinyshakespeare".to_owned();
            e.workers = 2;
            e.batch = 12;
            e.steps = 2000;
            e.evaluations = 4;
            e.learning_rate = known(RATE);
            e.seeds = (0..SEEDS as u64).collect();
            e.compressors = each_once(SETUPS.iter().flat_map(SetUp::specs));
        })
    }),
    variants: |_, experiment, _| variants(experiment).into_iter().map(|(.., one)| one).collect(),
    report: |results, _| report(results),
    ..Study::PLAIN
};

/// A change of the study's experiment, and the settings trained with it.
struct SetUp {
    name: &'static str,
    change: fn(&mut Experiment),
    settings: &'static [Settings],
}

/// Compressors of a family.
struct Settings {
    /// The name of the family.
    family: &'static str,
    compressors: &'static [&'static str],
    /// The number of the study's seeds they run with.
    seeds: usize,
}

impl Settings {
    const fn of(family: &'static str, compressors: &'static [&'static str], seeds: usize) -> Self {
        Self { family, compressors, seeds }
    }
}

/// Seeds of the set-ups that move the front most.
const SEEDS: usize = 3;

/// The set-ups; `none` sent as gradients is the first setting of each.
static SETUPS: [SetUp; 5] = [
    SetUp {
        name: "2 ranks, 2.5 times as many steps",
        change: |e| (e.steps, e.epochs) = (e.steps * 5 / 2, None),
        settings: &[
            Settings::of("gradients", &["none"], SEEDS),
            Settings::of(OUTER, &["eden:every=100", "eden:every=50"], SEEDS),
        ],
    },
    SetUp {
        name: "2 ranks, Muon instead of AdamW",
        change: |e| e.optimizer = known("muon:beta2=0.99"),
        settings: &[
            Settings::of("gradients", &["none"], SEEDS),
            Settings::of(OUTER, &["eden:every=50"], SEEDS),
            Settings::of(OUTER, &["eden:bits=0.5,every=50"], 1),
        ],
    },
    SetUp {
        name: "2 ranks, half of the text each",
        change: |e| e.split = known("shards"),
        settings: &[
            Settings::of("gradients", &["none"], 1),
            Settings::of(OUTER, &["eden:every=50"], 1),
        ],
    },
    SetUp {
        name: "4 ranks, 6 windows each",
        change: |e| (e.workers, e.batch) = (4, 6),
        settings: &[
            Settings::of("gradients", &["none"], 1),
            Settings::of(OUTER, &["eden:bits=0.5,every=10", "eden:every=50"], 1),
        ],
    },
    SetUp {
        name: "8 ranks, 3 windows each",
        change: |e| (e.workers, e.batch) = (8, 3),
        settings: &[
            Settings::of("gradients", &["none"], 1),
            Settings::of(OUTER, &["eden:bits=0.5,every=10", "eden:every=50"], 1),
        ],
    },
];

/// The batch of all ranks together.
const WINDOWS: usize = 24;

/// The name of the family of local steps whose settings are tried here.
const OUTER: &str = "local steps, outer Nesterov (0.7, momentum 0.5)";

impl SetUp {
    fn specs(&self) -> impl Iterator<Item = &'static &'static str> {
        self.settings.iter().flat_map(|settings| settings.compressors)
    }

    /// Its experiments, by exchange, each with its family.
    fn experiments(&self, base: &Experiment) -> Vec<(&'static Family, Experiment)> {
        let base = base.clone().with(self.change);
        let of_family = |settings: &Settings| {
            let family = FAMILIES.iter().find(|family| family.name == settings.family);
            let family = family.expect("a set-up names families that there are");
            let base = base.clone().with(|e| e.seeds.truncate(settings.seeds));
            let experiments = family.experiments(&base, settings.compressors).into_iter();
            experiments.map(move |one| (family, one)).collect::<Vec<_>>()
        };
        self.settings.iter().flat_map(of_family).collect()
    }
}

/// The experiments of all set-ups.
fn variants(experiment: &Experiment) -> Vec<(&'static SetUp, &'static Family, Experiment)> {
    let of_set_up = |set_up: &'static SetUp| {
        set_up.experiments(experiment).into_iter().map(move |(family, one)| (set_up, family, one))
    };
    SETUPS.iter().flat_map(of_set_up).collect()
}

/// The settings of every set-up, compared with `none` in the same one.
fn settings<'a>(
    experiment: &Experiment,
    runs: &'a [RunRecord],
) -> Vec<(&'static SetUp, Setting<'a>)> {
    let of_set_up = |set_up: &'static SetUp| {
        let experiments = set_up.experiments(experiment);
        let settings = Setting::all(experiments.iter().map(|(family, one)| (*family, one)), runs);
        settings.into_iter().map(move |setting| (set_up, setting))
    };
    SETUPS.iter().flat_map(of_set_up).collect()
}

fn report(results: &Results<'_>) -> Result<Report, TestbedError> {
    let runs: Vec<RunRecord> = results.runs.iter().map(with_loss).collect();
    let all = settings(results.experiment, &runs);
    let Some((_, first)) = all.first() else {
        return Err(TestbedError::Config("there are no runs to show".to_owned()));
    };
    let names = Table::of(&all).column("set-up", |(set_up, _)| set_up.name);
    let table = Setting::columns(names, |(_, setting)| setting).table();
    let run = first.runs[0];
    let text = format!(
        "{} with {} parameters on {}, {} steps unless stated otherwise, {WINDOWS} windows per step of all ranks \
         together. AdamW and learning rates are as in [transformer-frontier](../transformer-frontier), where they were \
         searched for 2000 steps; the learning rate of Muon was not searched. With half of the text each, ranks read \
         different plays, because the text is cut into consecutive parts.\n\nLoss: mean cross-entropy per token of the \
         test text after the last step. Against none: the difference from the run of `none` in the same set-up with \
         the same seed. Bytes: bytes that a worker sent in the run, counted at the transport. ±: standard deviation \
         over seeds.\n\n{}",
        run.model,
        run.parameters,
        run.data,
        results.experiment.steps,
        table.markdown(),
    );
    Ok(page(results, &text, &Vec::new(), vec![table.into()]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic;

    #[test]
    fn settings_are_compared_with_none_in_the_same_set_up() {
        let experiment = SET_UPS.experiment.unwrap()(0);
        let mut runs = Vec::new();
        for (at, (set_up, _, one)) in variants(&experiment).into_iter().enumerate() {
            for spec in &one.compressors {
                // Set-ups differ by tens, settings within a set-up by less.
                let place = SETUPS.iter().position(|other| other.name == set_up.name).unwrap();
                let above = if spec.to_string() == "none" { 0.0 } else { 1.0 + at as f64 / 100.0 };
                let run = synthetic::run(&spec.to_string(), 0);
                let quality = 10.0 * place as f64 + above;
                runs.push(RunRecord { settings: one.settings(), quality, ..run });
            }
        }
        let settings = settings(&experiment, &runs);
        assert_eq!(settings.len(), SETUPS.iter().flat_map(SetUp::specs).count());
        for (_, setting) in &settings {
            let expected = if setting.compressor() == "none" { 0.0..0.1 } else { 1.0..2.0 };
            assert!(expected.contains(&setting.above_none().unwrap()), "{}", setting.compressor());
        }
        for set_up in &SETUPS {
            let first = settings.iter().find(|(one, _)| one.name == set_up.name).unwrap();
            assert_eq!(first.1.compressor(), "none");
        }
    }

    #[test]
    fn ranks_share_one_batch() {
        for (set_up, _, one) in variants(&SET_UPS.experiment.unwrap()(0)) {
            assert_eq!(one.workers * one.batch, WINDOWS, "{}", set_up.name);
        }
    }
}
