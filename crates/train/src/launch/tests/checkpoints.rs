//! Runs that are stopped and resumed.

use std::collections::BTreeMap;
use std::sync::Arc;

use gradwire::State;

use super::*;
use crate::checkpoint::Checkpoint;
use gradwire_models::data::embedded_sized;

#[test]
fn resumed_runs_give_the_bits_of_one_never_stopped() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (compressor, exchange, optimizer)) in [
        ("3lc", "server", "momentum"),
        ("topk:ratio=0.05", "all-gather", "adam"),
        ("terngrad", "scatter-reduce", "nesterov"),
        ("3lc:s=1.5", "server:servers=2", "adam"),
        ("randomk:every=2", "all-reduce", "momentum"),
    ]
    .into_iter()
    .enumerate()
    {
        let path = folder.path().join(format!("{at}.state"));
        let mut config = config(compressor, exchange)
            .with(|c| (c.optimizer, c.evaluate_every) = (optimizer.parse().unwrap(), 4));
        if at == 0 {
            config.model = "lenet5".parse().unwrap();
        }
        let whole = train(&config);

        let step = stop(&config, 5, &path);
        assert!((5..12).contains(&step), "{step}");
        let resumed = resume(&config, &path).unwrap();
        assert_eq!(resumed.digest, whole.digest, "{compressor} over {exchange}");
        // The earlier record has been printed and read, which may cost the last bit.
        for (resumed, whole) in resumed.trace.iter().zip(&whole.trace) {
            assert!((resumed.loss - whole.loss).abs() < 1e-12);
            assert!((resumed.bytes_up - whole.bytes_up).abs() < 1e-6);
        }
        assert_eq!(resumed.trace.len(), whole.trace.len());
        assert_eq!(resumed.quality, whole.quality);
        assert_eq!(resumed.evaluations.len(), whole.evaluations.len());
    }
}

#[test]
fn statistics_are_of_a_worker_who_took_part_also_after_a_resumption() {
    let (_folder, path) = checkpoint();
    let config = config("topk", "all-gather").with(|c| {
        c.model = "resnet8".parse().unwrap();
        c.workers = 3;
        c.steps = 6;
        c.batch = 2;
        c.participation = 0.4;
        c.evaluate_every = 1;
    });
    stop(&config, 4, &path);
    let resumed = resume(&config, &path).unwrap();
    assert_eq!(resumed.evaluations, train(&config).evaluations);
}

#[test]
fn checkpoints_are_written_at_intervals_and_at_the_end() {
    let (folder, path) = checkpoint();
    let config = config("3lc", "server")
        .with(|c| (c.model, c.batch, c.steps) = ("resnet8".parse().unwrap(), 2, 5));
    let whole = run(&config, &(), &saving(&path, 2, 1)).unwrap();
    let state = State::read(&path).unwrap();
    assert_eq!(state.number("step").unwrap(), 5);
    assert_eq!(state.floats("parameters/conv.weight").unwrap().len(), 144);
    assert_eq!(state.floats("statistics0/norm.mean").unwrap().len(), 16);
    // Nothing is left to do, and the record is whole.
    let resumed = resume(&config, &path).unwrap();
    assert_eq!((resumed.digest, resumed.quality), (whole.digest, whole.quality));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_checkpoint_of_another_run_is_refused_by_what_differs() {
    let (_folder, path) = checkpoint();
    let original = config("3lc", "server").with(|c| c.steps = 2);
    run(&original, &(), &saving(&path, 0, 1)).unwrap();

    let options = resuming(&path);
    let refused = |changed: RunConfig| run(&changed, &(), &options).unwrap_err().to_string();
    let base = || original.clone();
    for (changed, parts) in [
        (base().with(|c| c.model = "lenet5".parse().unwrap()), ["model = mlp", "lenet5"]),
        (base().with(|c| c.compressor = "onebit".parse().unwrap()), ["compressor = 3lc", "onebit"]),
        (base().with(|c| c.seed = 9), ["seed = 5", "9"]),
        (base().with(|c| c.steps = 4), ["steps = 2", "4"]),
        (base().with(|c| c.batch = 4), ["batch = 16", "4"]),
        (base().with(|c| c.optimizer = "sgd".parse().unwrap()), ["optimizer = momentum", "sgd"]),
        (
            base().with(|c| c.exchange = "all-gather".parse().unwrap()),
            ["exchange = server", "all-gather"],
        ),
        (
            base().with(|c| c.learning_rate = "0.1".parse().unwrap()),
            ["learning rate = cosine", "0.1"],
        ),
        (
            base().with(|c| c.data = Arc::new(embedded_sized(2, 20, 10))),
            ["data checksum", "run.state"],
        ),
    ] {
        let message = refused(changed);
        assert!(parts.iter().all(|part| message.contains(part)), "{message}");
    }

    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() / 2]).unwrap();
    assert!(matches!(run(&original, &(), &options), Err(TrainError::Resume { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(refused(base()).contains("run.state"));
}

#[test]
fn workers_at_their_own_pace_learn_and_go_on_from_checkpoints() {
    let (_folder, path) = checkpoint();
    for (exchange, send, compressor) in [
        ("server:mode=async", "gradients", "topk:ratio=0.1"),
        ("server:stale=2", "gradients", "3lc"),
        // Basu et al. 2019, algorithm 2: each worker synchronises at its own times.
        ("server:mode=async", "updates", "qsparse-local:every=4"),
    ] {
        let config = config(compressor, exchange).with(|c| {
            c.send = send.parse().unwrap();
            c.optimizer = "sgd".parse().unwrap();
            c.steps = 40;
        });
        let whole = run(&config, &(), &saving(&path, 20, 2)).unwrap();
        let losses: Vec<f64> = whole.trace.iter().map(|step| step.loss).collect();
        let [first, last] = [&losses[..5], &losses[35..]].map(|part| part.iter().sum::<f64>());
        assert!(last < first, "{compressor} over {exchange}: {first} to {last}");
        let mut earlier = path.clone().into_os_string();
        earlier.push(".1");
        let resumed = resume(&config, earlier.as_ref()).unwrap();
        assert_eq!(resumed.trace.len(), 40);
        // After the checkpoint the loss is about the loss of the uninterrupted run, not the loss at
        // the beginning.
        let [there, on] = [&whole, &resumed]
            .map(|run| run.trace[20..25].iter().map(|step| step.loss).sum::<f64>());
        let near = (on - there).abs() < (first - last) / 2.0;
        assert!(near, "{compressor} over {exchange}: {first} to {last}, {there}, {on}");
    }
}

#[test]
fn workers_with_parameters_of_their_own_go_on_with_more_and_with_fewer() {
    let (_folder, path) = checkpoint();
    for exchange in ["server:mode=async", "server:stale=1,servers=2"] {
        // One worker may be far ahead of the other when the run is stopped.
        let config = config("topk:ratio=0.1", exchange).with(|c| (c.workers, c.steps) = (2, 60));
        stop(&config, 8, &path);
        let saved = State::read(&path).unwrap();
        let own = |rank| saved.extract(&format!("worker{rank}/")).extract("parameters/");
        assert!(own(0) != own(1), "{exchange}: the workers have the same parameters");
        for workers in [1, 3, 5] {
            let other = config.clone().with(|c| c.workers = workers);
            let checkpoint = Checkpoint::read(&path, &other, |_, _| {}).unwrap();
            for rank in 0..workers {
                let parameters = checkpoint.worker(rank, &other).extract("parameters/");
                assert!(parameters == own(rank % 2), "{exchange}: {rank} of {workers}");
            }
            let resumed = resume(&other, &path).unwrap();
            assert_eq!((resumed.trace.len(), resumed.workers), (60, workers), "{exchange}");
        }
    }
}

#[test]
fn a_hierarchy_goes_on_with_as_many_workers_only() {
    let (_folder, path) = checkpoint();
    let config = config("topk", "hierarchical").with(|c| (c.workers, c.steps) = (3, 20));
    stop(&config, 8, &path);
    let options = resuming(&path);
    let other = config.clone().with(|c| c.workers = 2);
    let error = run(&other, &(), &options).unwrap_err().to_string();
    assert!(error.contains("workers = 3") && error.contains("configure 3"), "{error}");
    assert_eq!(run(&config, &(), &options).unwrap().trace.len(), 20);
}

#[test]
fn another_number_of_workers_loses_nothing_that_is_still_to_be_sent() {
    let (_folder, path) = checkpoint();
    // For each tensor, the mean over the workers of the residual's sum.
    let left = |config: &RunConfig| -> BTreeMap<String, f64> {
        let checkpoint = Checkpoint::read(&path, config, |_, _| {}).unwrap();
        let mut means = BTreeMap::new();
        for rank in 0..config.workers {
            let residuals = checkpoint.worker(rank, config).extract("push/residual/");
            for (name, values) in residuals.floats_under("") {
                let tensor = name.split('[').next().unwrap_or(name).to_owned();
                let sum: f64 = values.iter().map(|value| f64::from(*value)).sum();
                *means.entry(tensor).or_insert(0.0) += sum / config.workers as f64;
            }
        }
        means
    };
    for exchange in ["all-gather", "server", "scatter-reduce"] {
        let config = config("topk:ratio=0.01", exchange).with(|c| (c.workers, c.steps) = (4, 20));
        stop(&config, 8, &path);
        let before = left(&config);
        assert!(before.values().any(|sum| sum.abs() > 1e-3), "{before:?}");
        for workers in [1, 2, 3, 6] {
            let other = config.clone().with(|c| c.workers = workers);
            let (after, step) =
                (left(&other), Checkpoint::read(&path, &other, |_, _| {}).unwrap().step);
            // An owner's residual of means in a scatter-reduce comes on top.
            if exchange != "scatter-reduce" {
                assert!(before.keys().eq(after.keys()));
                for (tensor, before) in &before {
                    let near = (before - after[tensor]).abs() <= 1e-5 * (1.0 + before.abs());
                    assert!(near, "{exchange} to {workers}, {tensor}: {before}, {}", after[tensor]);
                }
            }
            let resumed = resume(&other, &path).unwrap();
            assert_eq!((resumed.trace.len(), resumed.workers), (20, workers));
            assert_eq!(resumed.changes, [WorkersChanged { step, workers, lost: None }]);
        }
    }
}

#[test]
fn crafted_residuals_are_refused_before_memory_is_taken() {
    let (_folder, path) = checkpoint();
    let config =
        config("topk:ratio=0.01", "scatter-reduce").with(|c| (c.workers, c.steps) = (2, 20));
    stop(&config, 8, &path);
    let good = State::read(&path).unwrap();
    let (name, _) = good.floats_under("parameters/").next().unwrap();
    for (range, values) in [
        ("4000000000000..4000000000000", vec![]),
        ("18446744073709551615..0", vec![1.0]),
        ("0..1", vec![1.0; 2]),
    ] {
        let mut state = good.clone();
        state.set_floats(&format!("worker1/push/residual/{name}[{range}]"), values);
        state.write_atomic(&path).unwrap();
        for workers in [1, 2, 3] {
            let error = resume(&config.clone().with(|c| c.workers = workers), &path).unwrap_err();
            assert!(error.to_string().contains(range), "{error}");
        }
    }
}

#[cfg(unix)]
#[test]
fn a_checkpoint_that_cannot_be_written_ends_the_run_before_its_first_step() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("device");
    std::os::unix::fs::symlink("/dev/null", &link).unwrap();
    for path in [folder.path().join("absent/run.state"), link, folder.path().to_owned()] {
        let options = saving(&path, 0, 1);
        // A run of this length does not end.
        let config = config("none", "all-gather").with(|c| c.steps = 1 << 40);
        let error = run(&config, &(), &options).unwrap_err();
        assert!(
            matches!(&error, TrainError::Save { path: named, .. } if *named == path),
            "{error}"
        );
    }
    assert!(folder.path().join("device").is_symlink());
}

/// Removes a folder as soon as the last step is done, and records the error of the checkpoint that
/// could not be saved.
struct Removing<'a> {
    folder: &'a std::path::Path,
    unsaved: std::sync::Mutex<Option<String>>,
}

impl Observer for Removing<'_> {
    fn step(&self, record: &StepRecord, total: u64) {
        if record.step + 1 == total {
            std::fs::remove_dir_all(self.folder).unwrap();
        }
    }

    fn unsaved(&self, error: &TrainError) {
        *self.unsaved.lock().unwrap() = Some(error.to_string());
    }
}

#[test]
fn a_last_checkpoint_that_cannot_be_written_leaves_the_record_whole() {
    let folder = tempfile::tempdir().unwrap();
    let runs = folder.path().join("runs");
    std::fs::create_dir(&runs).unwrap();
    let config = config("topk", "all-gather");
    let observer = Removing { folder: &runs, unsaved: std::sync::Mutex::default() };
    let record = run(&config, &observer, &saving(&runs.join("run.state"), 0, 1)).unwrap();
    assert_eq!(record.digest, train(&config).digest);
    let unsaved = observer.unsaved.into_inner().unwrap().unwrap();
    assert!(unsaved.contains("run.state"), "{unsaved}");
}

#[cfg(unix)]
#[test]
fn checkpoints_are_kept_where_a_link_leads() {
    let folder = tempfile::tempdir().unwrap();
    let (link, file) = (folder.path().join("link"), folder.path().join("disk/run.state"));
    std::fs::create_dir(folder.path().join("disk")).unwrap();
    std::os::unix::fs::symlink("disk/run.state", &link).unwrap();
    let config = config("topk", "all-gather");
    let whole = train(&config);
    stop(&config, 5, &link);
    assert!(link.is_symlink() && file.is_file());
    assert_eq!(resume(&config, &link).unwrap().digest, whole.digest);
}

/// The record of a long run may exceed the limit for a file's settings.
#[test]
fn the_record_is_bytes_and_no_setting() {
    let (_folder, path) = checkpoint();
    stop(&config("none", "all-reduce"), 5, &path);
    let state = State::read(&path).unwrap();
    assert!(state.setting("record").is_err() && state.bytes("record").is_ok());
}
