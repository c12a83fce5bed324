//! Loss against bytes of a small transformer with AdamW, by the values that workers send: gradients
//! at every step, updates at every step, and updates of several local steps, added or applied by an
//! outer optimizer.
//!
//! Losses are compared by seed. A setting has a run with the first seed, and with each further seed
//! if it is on the front or if a conclusion needs its spread.

use gradwire_train::RunRecord;

use super::families::{FAMILIES, Family, RATE};
use super::setting::{Setting, with_loss};
use crate::TestbedError;
use crate::experiment::{Experiment, known};
use crate::plot::{Chart, Mark, Point, Scale, Scatter, Unit};
use crate::reproduce::findings::page;
use crate::reproduce::study::{Charts, Report, Results, Study, chart, with_server};
use crate::reproduce::variation::each_once;
use crate::summary::Spread;
use crate::table::Table;

/// The study of a transformer.
pub(crate) const FRONTIER: Study = Study {
    id: "transformer-frontier",
    summary: "loss against bytes of a small GPT with AdamW: gradients, updates, local steps, outer optimizers",
    fixed: &[
        "compressor",
        "exchange",
        "send",
        "mask",
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

/// The families by exchange: first the compressors that run with every seed, the first seed before
/// the others; then the compressors with the first seed alone, the long list of gradients last.
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
        family.experiments(&base, specs(family)).into_iter().map(move |one| (family, one))
    };
    FAMILIES.iter().flat_map(of_family).collect()
}

/// The settings that have runs, the baseline first.
fn settings<'a>(experiment: &Experiment, runs: &'a [RunRecord]) -> Vec<Setting<'a>> {
    let variants = variants(&experiment.clone().with(|e| e.seeds.truncate(1)));
    Setting::all(variants.iter().map(|(family, one)| (*family, one)), runs)
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
    let text = format!(
        "{text}\n\n{}\n## Learning rates\n\nChosen [from a grid](rates) with `none`, for \
         gradients and for ten local steps. The learning rate of SGD was not searched.\n\n{}",
        table.markdown(),
        rates().markdown(),
    );
    Ok(page(results, &text, &charts(&all), vec![table.into()]))
}

/// The common settings, and the meaning of the columns.
fn set_up(run: &RunRecord) -> String {
    format!(
        "{} with {} parameters on {}, {} workers with {} windows each, {} steps, AdamW with a mean-square decay of \
         0.99 and a weight decay of {}. If messages are gathered, vectors are sent as `int8`. [Learning \
         rates](#learning-rates) were found without compression.\n\nLoss: mean cross-entropy per token of the test \
         text after the last step. Against none: the difference from the run of `none` with gradients and the same \
         seed. Bytes: bytes that a worker sent in the run, counted at the transport. On the front: no other setting \
         has both a lower difference and fewer bytes. ±: standard deviation over seeds.",
        run.model, run.parameters, run.data, run.workers, run.batch, run.steps, run.weight_decay,
    )
}

/// The learning rate of each family.
fn rates() -> Table {
    Table::of(FAMILIES.as_slice())
        .column("sent", |family| family.name)
        .column("learning rate", |family| family.rate)
        .table()
        .left_aligned()
}

fn table(all: &[Setting<'_>]) -> Table {
    Setting::columns(Table::of(all), |setting| setting)
        .column("front", |setting| if setting.is_on_front(all) { "yes" } else { "" })
        .table()
}

/// The loss minus the loss of `none`, over the ratio of bytes, by family; and the front.
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
    vec![chart("all.svg", scatter), chart("front.svg", front(all))]
}

/// The settings that no other setting beats, by name: the loss above `none`, over the bytes
/// relative to `none`.
fn front(all: &[Setting<'_>]) -> Scatter {
    let on_front: Vec<_> = all.iter().filter(|setting| setting.is_on_front(all)).collect();
    let mark = |(colour, setting): (usize, &&Setting<'_>)| {
        let Spread { mean, min, max, .. } = setting.differences?;
        let point = Point { x: 1.0 / setting.ratio?, y: mean, low: min, high: max };
        let compressor = setting.compressor();
        let named = on_front.iter().filter(|other| other.compressor() == compressor).count();
        let name = match named {
            1 => compressor.to_owned(),
            _ => format!("{compressor}, {}", setting.family.name),
        };
        Some(Mark { name, point, colour, on_front: true })
    };
    Scatter {
        title: "The lowest loss for the bytes, local steps (every) and gradients".to_owned(),
        x: ("times the bytes of none".to_owned(), Scale::Log),
        unit: Unit::Number,
        y: "loss above none, least to greatest of the seeds".to_owned(),
        marks: on_front.iter().enumerate().filter_map(mark).collect(),
        band: None,
    }
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
                runs.push(RunRecord { settings: one.settings(), quality, ..run });
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
        // All but the baseline send the same number of bytes, and equal bytes do not beat a
        // setting.
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
        // Without runs of `none` nothing is compared.
        worse.retain(|run| run.compressor != "none");
        let settings = self::settings(&experiment, &worse);
        assert!(settings.len() > 1 && settings.iter().all(|one| !one.is_on_front(&settings)));
    }
}
