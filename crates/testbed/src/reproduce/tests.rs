use std::path::Path;

use gradwire_train::CompressionSchedule;
use gradwire_train::settings::SETTINGS;

use super::*;
use crate::experiment::{Experiment, known};
use crate::runner::Progress;
use crate::synthetic;

mod committed;

/// The studies that train, each with its default experiment and its row.
fn that_train() -> impl Iterator<Item = (&'static Study, usize, Experiment)> {
    STUDIES.iter().flat_map(|study| {
        let rows = 0..study.rows.len().max(1);
        rows.filter_map(move |row| Some((study, row, study.experiment?(row))))
    })
}

#[test]
fn studies_are_found_by_their_ids_and_unknown_ones_refused() {
    for study in &STUDIES {
        assert!(std::ptr::eq(find(study.id).unwrap(), study) && !study.summary.is_empty());
    }
    let error = find("3lc-table9").err().unwrap().to_string();
    assert!(error.contains("3lc-table1") && error.contains("grace-fig9"), "{error}");
}

#[test]
fn default_experiments_can_run_and_begin_with_the_baseline() {
    for (study, row, experiment) in that_train() {
        experiment.check().unwrap();
        assert_eq!(experiment.compressors, study.compressors(row, experiment.steps));
        assert!(study.compressors(row, 2000)[0].to_string().starts_with("none"));
        for variant in (study.variants)(row, &experiment, None) {
            variant.check().unwrap();
        }
        // Tables find runs by printed specs.
        for schedule in &experiment.compressors {
            assert_eq!(schedule.to_string().parse::<CompressionSchedule>().unwrap(), *schedule);
        }
    }
}

#[test]
fn fixed_flags_are_flags() {
    let known = |flag: &str| SETTINGS.iter().any(|setting| setting.flag == flag);
    for study in &STUDIES {
        for flag in study.fixed {
            assert!(
                known(flag) || ["seed", "fraction", "compressor"].contains(flag),
                "{}: {flag}",
                study.id
            );
        }
    }
}

#[test]
fn what_a_study_fixes_cannot_be_changed_by_an_experiment_file() {
    let refused = |id: &str, change: fn(&mut Experiment)| {
        let study = find(id).unwrap();
        let experiment = study.experiment.unwrap()(0).with(change);
        study.check_fixed(0, &experiment).unwrap_err().to_string()
    };
    let seeds = refused("exchange-scaling", |e| e.seeds = vec![0, 1]);
    assert!(seeds.contains("sets seeds itself; write 'seeds = [0]'"), "{seeds}");
    let workers = refused("adacomp-fig7", |e| e.workers = 4);
    assert!(workers.contains("write 'workers = 8'"), "{workers}");
    let outer = refused("all-methods", |e| e.outer = Some(known("sgd")));
    assert!(outer.contains("leave 'outer = \"sgd\"' out"), "{outer}");
    let all_methods = find("all-methods").unwrap();
    let longer = all_methods.experiment.unwrap()(0).with(|e| {
        e.steps += 1;
        e.compressors.truncate(1);
    });
    all_methods.check_fixed(0, &longer).unwrap();
}

#[test]
fn vectors_are_compressed_as_in_the_papers() {
    for (study, _, experiment) in that_train().filter(|(study, ..)| !study.citation.is_empty()) {
        assert!(!experiment.raw_vectors, "{}", study.id);
    }
}

#[test]
fn rows_are_found_by_name_and_unknown_ones_refused() {
    let row = |id: &str, name| find(id).unwrap().row(Some(name)).map_err(|e| e.to_string());
    assert_eq!(row("sbc-table2", "wordlstm"), Ok(2));
    assert!(row("sbc-table2", "vgg").unwrap_err().contains("charlstm"));
    assert!(row("sbc-fig3", "lenet").unwrap_err().contains("no rows"));
    let folder = |id: &str, row| find(id).unwrap().default_folder(row);
    assert!(folder("grace-fig8", 4).ends_with("results/grace-fig8/ncf"));
    assert!(folder("3lc-table1", 0).ends_with("results/3lc-table1"));
}

/// A progress that shows nothing.
pub(super) struct Nobody;

impl gradwire_train::Observer for Nobody {}

impl Progress for Nobody {
    fn started(&self, _: usize, _: usize, _: &gradwire_train::RunConfig) {}

    fn finished(&self, _: &gradwire_train::RunRecord) {}

    fn note(&self, _: &str) {}
}

#[test]
fn each_study_writes_a_page_with_its_charts() {
    let mut half = synthetic::run("3lc", 1);
    half.steps = 5;
    let runs = [synthetic::run("none", 1), half, synthetic::run("3lc", 1)];
    for (id, charts, says) in [
        ("3lc-table1", 6, "163.84 epochs"),
        ("3lc-table2", 1, "arXiv:1802.07389"),
        ("adacomp-fig4", 4, "AAAI 2018"),
        ("adacomp-fig7", 2, "AAAI 2018"),
        ("entropy-bits-fig5", 3, "ICASSP 2015"),
        ("sbc-table2", 4, "arXiv:1805.08768"),
        ("sbc-fig3", 1, "arXiv:1805.08768"),
    ] {
        let study = find(id).unwrap();
        let experiment = study.experiment.unwrap()(0);
        let out = Path::new("results");
        let command = "gradwire reproduce";
        let (experiment, runs) = (&experiment, &runs);
        let failed = &["3lc, seed 2: the loss is NaN".to_owned()];
        let notes = "- **What** it [shows](a.md).\n\nBy hand.\n";
        let results = Results { study, row: 0, experiment, runs, failed, out, command, notes };
        let files = results.report(&Nobody).unwrap().files;
        let named = |ending: &str| files.iter().filter(|(name, _)| name.ends_with(ending)).count();
        assert_eq!((named(".svg"), named(".md"), named(".html")), (charts, 1, 1), "{id}");
        let readme = &files[0].1;
        assert!(readme.contains(says) && readme.contains(study.citation), "{id}");
        let (opening, rest) = readme.split_once("\n\n").unwrap().1.split_once("\n\n").unwrap();
        assert_eq!(opening, "- **What** it [shows](a.md).", "{id}");
        let (tables, notes) = rest.split_once("\n\n## Notes\n\nBy hand.\n\n").unwrap();
        assert!(tables.contains("\n|---|") && notes.starts_with("These runs failed"), "{id}");
        assert!(notes.contains("- 3lc, seed 2: the loss is NaN\n\n## How to repeat"), "{id}");
        let end = "With `--experiment results/experiment.toml`, every setting has the same value as in \
                   these runs, even if a default has changed since.\n\nRuns by gradwire 0.0.0.\n";
        assert!(readme.ends_with(&format!("```\n\n{end}")), "{id}");
        assert!(files[1].1.contains("<p>Runs by gradwire 0.0.0.</p>"), "{id}");
        let page = &files[1].1;
        assert!(page.matches("<figure>").count() >= charts && page.contains("How to cite"), "{id}");
        assert!(page.contains(">What it shows.</p>"), "{id}");
        assert!(files.iter().skip(2).all(|(name, _)| readme.contains(name.as_str())), "{id}");
    }
}
