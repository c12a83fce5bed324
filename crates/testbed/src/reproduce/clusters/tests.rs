use std::fs;
use std::path::Path;

use super::*;
use crate::experiment::Experiment;
use crate::reproduce::tests::Nobody;

#[test]
fn the_committed_page_is_what_the_source_makes() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../results/clusters");
    let experiment = &Experiment::default();
    let (runs, failed) = (&[], &[]);
    let notes = &crate::results::notes(&folder).unwrap();
    let (study, command) = (&CLUSTERS, "gradwire reproduce clusters");
    let out = Path::new("results/clusters");
    let results = Results { study, row: 0, experiment, runs, failed, out, command, notes };
    let report = results.report(&Nobody).unwrap();
    assert_eq!(report.files.len(), 5);
    for (name, text) in report.files {
        let committed = fs::read_to_string(folder.join(&name)).unwrap();
        assert!(committed == text, "{name} differs; run 'gradwire reproduce clusters'");
    }
}

#[test]
fn slow_links_are_compressed_and_fast_ones_are_not() {
    for kind in &KINDS[..2] {
        let simulated = Simulated::of(kind).unwrap();
        let best: Vec<_> = simulated.cells.iter().map(|cell| cell.best()).collect();
        let links = kind.picture.links.len();
        for (rows, cells) in best.chunks(links).zip(simulated.cells.chunks(links)) {
            assert!(!rows[0].is_none() && cells[0].speedup(rows[0]) > 1.5);
            // A faster link never makes a step longer.
            assert!(cells.is_sorted_by(|a, b| a.plain >= b.plain));
            assert!(rows.is_sorted_by(|a, b| a.seconds >= b.seconds * 0.95));
        }
    }
    let pcie = Simulated::of(&KINDS[0]).unwrap();
    assert!(pcie.cells.last().unwrap().best().is_none());
}
