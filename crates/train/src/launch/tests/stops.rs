//! Runs that are stopped just after they saved: no saved state is lost.

use std::path::{Path, PathBuf};

use gradwire::State;

use super::*;
use crate::checkpoint::Checkpoint;
use crate::rotation::earlier;

/// Every exchange, with pending residuals if it has any; local steps, a schedule and overlap.
pub(super) fn all() -> Vec<(&'static str, RunConfig)> {
    let of = |compressor: &str, exchange: &str| {
        config(compressor, exchange).with(|c| {
            c.model = "mlp:8".parse().unwrap();
            c.workers = 3;
            c.steps = 24;
            c.batch = 2;
        })
    };
    let overlapped = of("topk:ratio=0.05", "all-gather").with(|c| c.overlap = true);
    let local = of("qsparse-local:every=4", "all-gather").with(|c| c.send = Payload::Updates);
    vec![
        ("all-reduce", of("randomk:ratio=0.1", "all-reduce")),
        ("all-reduce, no residual", of("none", "all-reduce")),
        ("all-gather", of("topk:ratio=0.05", "all-gather")),
        ("scatter-reduce", of("terngrad", "scatter-reduce")),
        ("sparse-all-reduce", of("topk:ratio=0.05", "sparse-all-reduce")),
        ("hierarchical", of("topk:ratio=0.05", "hierarchical:node=2")),
        ("server", of("3lc", "server")),
        ("three servers", of("3lc:s=1.5", "server:servers=3")),
        ("overlap", overlapped),
        ("local steps", local),
        ("schedule", of("topk:ratio=0.1 until 0.5 then topk:ratio=0.02", "all-gather")),
    ]
}

/// The steps of the checkpoints, each of which must be whole.
fn saved(path: &Path, config: &RunConfig) -> Vec<u64> {
    let all = (0..).map(|before| earlier(path, before)).take_while(|path| path.exists());
    let step = |path: PathBuf| {
        Checkpoint::of(State::read(&path).unwrap(), config).map(|checkpoint| checkpoint.step)
    };
    all.map(|path| step(path).unwrap()).collect()
}

#[test]
fn a_stop_after_a_saved_step_saves_it_once() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (name, config)) in all().into_iter().enumerate() {
        let whole = train(&config);
        for every in [0, 1, 3, 10] {
            let path = folder.path().join(format!("{at} {every}.state"));
            let mut options = RunOptions::default();
            let mut before = None;
            // Stopped, gone on, and stopped again.
            for steps in [5, 7] {
                options.save = Some(Save { path: path.clone(), every, at_end: true, keep: 2 });
                let error = run(&config, &StopAfter::new(steps), &options).unwrap_err();
                let TrainError::Stopped { step, .. } = error else { panic!("{name}: {error}") };
                let saved = saved(&path, &config);
                assert_eq!(saved[0], step, "{name}, every {every}");
                assert!(saved[1..].iter().all(|&earlier| earlier < step), "{name}: {saved:?}");
                assert!(every != 1 || saved.len() == 2, "{name}: {saved:?}");
                assert!(before.is_none_or(|before| before < step));
                before = Some(step);
                options.resume = Some(path.clone());
            }
            options.save = None;
            for from in [path.clone(), earlier(&path, 1)].into_iter().filter(|path| path.exists()) {
                options.resume = Some(from);
                let resumed = run(&config, &(), &options).unwrap();
                assert_eq!(resumed.digest, whole.digest, "{name}, every {every}");
                assert_eq!(resumed.trace.len(), whole.trace.len());
            }
        }
    }
}

#[test]
fn an_incomplete_checkpoint_counts_as_damaged() {
    let (_folder, path) = checkpoint();
    let config = config("none", "all-reduce").with(|c| c.workers = 3);
    let whole = run(&config, &(), &saving(&path, 5, 2)).unwrap();
    assert_eq!(saved(&path, &config), [12, 10]);
    let newest = State::read(&path).unwrap();
    let without = |prefix: &str| {
        let mut state = newest.clone();
        state.retain(|name| !name.starts_with(prefix));
        state
    };
    let moved = |rank: usize| {
        let mut state = newest.clone();
        state.set_number(&format!("worker{rank}/step"), 11);
        state
    };
    let step = || {
        let mut skipped = Vec::new();
        let hears = |_: &Path, error: &gradwire::StateError| {
            skipped.push(error.to_string());
        };
        let step = Checkpoint::read(&path, &config, hears).unwrap().step;
        (step, skipped.concat())
    };
    for (broken, says) in [
        (without("worker2/"), "worker 2 of 3 is missing"),
        (without("worker0/"), "worker 0 of 3 is missing"),
        (without("worker1/step"), "worker 1 of 3 is missing"),
        (moved(1), "worker 1 is from step 11"),
        (without("step"), "does not say its step"),
        (without("record"), "no record"),
        (without("config/workers"), "how many workers"),
    ] {
        broken.write_atomic(&path).unwrap();
        let (step, skipped) = step();
        assert_eq!(step, 10, "{says}");
        assert!(skipped.contains(says), "{skipped}");
    }
    // A run resumes from the one before.
    assert_eq!(resume(&config, &path).unwrap().digest, whole.digest);
    // A forged number of workers causes no loop and no allocation of that size.
    let mut forged = newest.clone();
    forged.set_setting("config/workers", usize::MAX.to_string());
    forged.write_atomic(&path).unwrap();
    assert_eq!(step().0, 10);
}
