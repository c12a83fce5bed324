//! Ranks that share nothing but a transport do what the threads of one process do.

use gradwire::State;
use gradwire_exchange::{Transport, in_process};

use super::*;

fn config(compressor: &str, exchange: &str) -> RunConfig {
    let config = super::text::config(compressor);
    config.with(|c| {
        c.model = "lenet5".parse().unwrap();
        c.data = std::sync::Arc::new(gradwire_models::data::embedded_sized(3, 60, 30));
        c.batch = 4;
        c.steps = 10;
        c.optimizer = "momentum".parse().unwrap();
        c.learning_rate = "0.01".parse().unwrap();
        c.clip = None;
        c.exchange = exchange.parse().unwrap();
        c.workers = 3;
        c.evaluate_every = 4;
    })
}

/// What `run` returns on each of `size` ranks, which are threads.
fn connected<R: Send>(size: usize, run: impl Fn(Box<dyn Transport>) -> R + Sync) -> Vec<R> {
    std::thread::scope(|scope| {
        let transports = in_process::connect(size, in_process::Options::default()).into_iter();
        let run = &run;
        let threads: Vec<_> =
            transports.map(|transport| scope.spawn(move || run(Box::new(transport)))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// The result of each rank.
fn ranks(
    config: &RunConfig,
    options: &RunOptions,
    observer: &(dyn Fn(usize) -> Box<dyn Observer> + Sync),
) -> Vec<Result<Option<RunRecord>, TrainError>> {
    connected(config.exchange.ranks(config.workers), |transport| {
        let observer = observer(transport.rank());
        run_rank(config, &*observer, options, transport)
    })
}

fn no_observer(_: usize) -> Box<dyn Observer> {
    Box::new(())
}

/// The record of the first rank, where no rank failed.
fn first(all: Vec<Result<Option<RunRecord>, TrainError>>) -> RunRecord {
    let mut records: Vec<_> = all.into_iter().map(Result::unwrap).collect();
    assert!(records[1..].iter().all(Option::is_none));
    records.swap_remove(0).unwrap()
}

/// The record of the first rank.
pub(super) fn together(config: &RunConfig) -> RunRecord {
    first(ranks(config, &RunOptions::default(), &no_observer))
}

#[test]
fn processes_have_the_bits_of_threads() {
    for (compressor, exchange) in [
        ("3lc", "server:servers=2"),
        ("topk:ratio=0.1", "all-gather"),
        ("powersgd", "all-reduce"),
        ("terngrad:every=2", "scatter-reduce"),
    ] {
        let config = config(compressor, exchange);
        let here = train(&config);
        let apart = together(&config);
        assert_eq!(apart.digest, here.digest, "{compressor} over {exchange}");
        assert_eq!(apart.evaluations, here.evaluations);
        assert_eq!((apart.bytes_up, apart.bytes_down), (here.bytes_up, here.bytes_down));
        assert_eq!(apart.trace.len(), here.trace.len());
        for (apart, here) in apart.trace.iter().zip(&here.trace) {
            assert!((apart.loss - here.loss).abs() < 1e-12);
        }
    }
}

#[test]
fn statistics_and_shards_are_the_same_too() {
    let config = config("topk", "all-gather").with(|c| {
        c.model = "resnet8".parse().unwrap();
        c.split = "shards:sizes=3+2+1".parse().unwrap();
        c.participation = 0.7;
        c.batch = 2;
        c.steps = 5;
    });
    let here = train(&config);
    let apart = together(&config);
    assert_eq!((apart.digest, apart.evaluations), (here.digest, here.evaluations));
}

#[test]
fn a_run_stopped_as_processes_resumes_as_threads_and_the_reverse() {
    let config = config("onebit", "server").with(|c| c.steps = 40);
    let whole = train(&config);
    let (_folder, path) = checkpoint();

    // Any rank may be asked.
    let asked = |rank: usize| -> Box<dyn Observer> {
        if rank == 1 { Box::new(StopAfter::new(1)) } else { Box::new(()) }
    };
    let all = ranks(&config, &saving(&path, 0, 1), &asked);
    for (rank, result) in all.iter().enumerate().take(3) {
        assert!(matches!(result, Err(TrainError::Stopped { step: 15, .. })), "{rank}: {result:?}");
    }
    assert_eq!(State::read(&path).unwrap().number("step").unwrap(), 15);
    assert_eq!(resume(&config, &path).unwrap().digest, whole.digest);
    let apart = first(ranks(&config, &resuming(&path), &no_observer));
    assert_eq!((apart.digest, apart.trace.len()), (whole.digest, whole.trace.len()));
}

#[test]
fn processes_stopped_after_a_saved_step_save_it_once() {
    let config = config("topk:ratio=0.1", "all-gather").with(|c| c.steps = 40);
    let whole = train(&config);
    let (folder, path) = checkpoint();
    let asked = |rank: usize| -> Box<dyn Observer> {
        if rank == 2 { Box::new(StopAfter::new(1)) } else { Box::new(()) }
    };
    let all = ranks(&config, &saving(&path, 5, 2), &asked);
    assert!(all.iter().all(|one| matches!(one, Err(TrainError::Stopped { step: 15, .. }))));
    for (path, step) in [(path, 15), (folder.path().join("run.state.1"), 10)] {
        assert_eq!(State::read(&path).unwrap().number("step").unwrap(), step);
        assert_eq!(first(ranks(&config, &resuming(&path), &no_observer)).digest, whole.digest);
    }
}

#[test]
fn ranks_of_different_configurations_are_told_what_differs() {
    let base = config("3lc", "all-gather");
    differ(&base, &base.clone().with(|c| c.batch = 5), ["batch 5", "batch 4"]);
    differ(&base, &base.clone().with(|c| c.overlap = true), ["overlap true", "overlap false"]);
    let transport = in_process::connect(2, in_process::Options::default()).remove(0);
    let error = run_rank(&base, &(), &RunOptions::default(), Box::new(transport)).unwrap_err();
    assert!(error.to_string().contains("3 ranks, and 2 were started"), "{error}");
}

/// The last of three ranks is of another configuration: all are told by these words.
fn differ(base: &RunConfig, other: &RunConfig, parts: [&str; 2]) {
    let errors = connected(3, |transport| {
        let config = if transport.rank() == 2 { other } else { base };
        run_rank(config, &(), &RunOptions::default(), transport).unwrap_err().to_string()
    });
    for error in errors {
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        assert!(error.contains("rank 2"), "{error}");
    }
}

#[test]
fn an_absent_checkpoint_ends_every_rank() {
    let folder = tempfile::tempdir().unwrap();
    let options = resuming(&folder.path().join("absent.state"));
    let all = ranks(&config("3lc", "all-gather"), &options, &no_observer);
    assert!(all[0].as_ref().unwrap_err().to_string().contains("absent.state"));
    assert!(all.iter().all(Result::is_err));
}
