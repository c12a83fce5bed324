//! Workers that die or are late, and runs that cannot go well.

use std::sync::Arc;
use std::time::Duration;

use gradwire_exchange::ExchangeError;

use super::*;
use gradwire_models::data::{Content, Dataset, ImageSet, Images};

/// The error of a run whose worker 1 breaks.
fn broken(exchange: &str, before: fn(u64) -> Result<(), ExchangeError>) -> TrainError {
    let config = config("3lc", exchange).with(|c| {
        c.workers = 3;
        c.evaluate_every = 2;
    });
    run_wrapped(&config, &(), &RunOptions::default(), &|rank, inner| {
        if rank == 1 {
            Box::new(Wrapped { before: Box::new(before), ..Wrapped::new(inner) })
        } else {
            inner
        }
    })
    .unwrap_err()
}

#[test]
fn a_worker_that_dies_ends_the_run_with_its_own_error() {
    for exchange in ["server", "all-gather", "scatter-reduce"] {
        let error = broken(exchange, |step| {
            assert!(step < 3, "the memory of this worker is gone");
            Ok(())
        });
        let TrainError::Panicked { rank: 1, message } = &error else { panic!("{error}") };
        assert!(message.contains("memory of this worker"), "{message}");
        let error = broken(exchange, |step| {
            if step < 2 { Ok(()) } else { Err(ExchangeError::Config("a cable is cut".to_owned())) }
        });
        assert!(error.to_string().starts_with("rank 1: a cable is cut"), "{error}");
    }
}

#[test]
fn a_worker_that_dies_ends_workers_that_do_not_wait_for_it() {
    let config = config("3lc", "server:mode=async").with(|c| c.steps = 2000);
    let log = Log::default();
    let slow = |_| {
        std::thread::sleep(Duration::from_millis(1));
        Ok(())
    };
    let dies = |step| {
        assert!(step < 3, "the memory of this worker is gone");
        Ok(())
    };
    let error = run_wrapped(&config, &(), &RunOptions::default(), &|rank, inner| {
        let before: Before = if rank == 0 { Box::new(slow) } else { Box::new(dies) };
        let log = if rank == 0 { Arc::clone(&log) } else { Log::default() };
        Box::new(Wrapped { before, log, ..Wrapped::new(inner) })
    })
    .unwrap_err();
    assert!(matches!(error, TrainError::Panicked { rank: 1, .. }), "{error}");
    let calls = log.lock().unwrap().len();
    assert!(calls < 1000, "{calls} calls after the other worker had died");
}

#[test]
fn backup_workers_may_be_late() {
    let config = config("3lc", "server:backup=1").with(|c| {
        c.workers = 3;
        c.steps = 20;
        c.evaluate_every = 8;
    });
    let record = run_wrapped(&config, &(), &RunOptions::default(), &|rank, inner| {
        let slow = |_| {
            std::thread::sleep(Duration::from_millis(20));
            Ok(())
        };
        if rank != 2 {
            return inner;
        }
        Box::new(Wrapped { before: Box::new(slow), ..Wrapped::new(inner) })
    })
    .unwrap();
    assert_eq!(record.trace.len(), 20);
    let evaluated: Vec<_> = record.evaluations.iter().map(|evaluation| evaluation.step).collect();
    assert_eq!(evaluated, [8, 16, 20]);
}

#[test]
fn a_diverging_run_says_so() {
    let mut config = config("none", "server");
    config.learning_rate = "1e30".parse().unwrap();
    refused(&config, &["lower the learning rate"]);
}

#[test]
fn impossible_configurations_are_refused_before_anything_runs() {
    let base = || config("3lc", "server");
    let empty = || {
        let data = digits();
        let images = data.images().unwrap().clone();
        let none = Images { pixels: Vec::new(), labels: Vec::new(), ..images.train };
        let content = Content::Images(ImageSet { train: none, ..images });
        Arc::new(Dataset { content, ..(*data).clone() })
    };
    for (config, part) in [
        (base().with(|c| c.workers = 0), "at least one worker"),
        (base().with(|c| c.steps = 0), "at least one step"),
        (base().with(|c| c.batch = 0), "one example"),
        (base().with(|c| c.data = empty()), "one training"),
        (base().with(|c| c.weight_decay = -1.0), "weight_decay"),
        (
            base().with(|c| {
                c.evaluate_every = 1;
                c.evaluate_at_most = 0;
            }),
            "at least one image",
        ),
        (base().with(|c| c.straggler = "2=0.1".parse().ok()), "workers 0 to 1"),
        (config("3lc", "all-reduce"), "scatter-reduce"),
        (config("3lc", "server:servers=7"), "7 servers cannot share 6 tensors"),
    ] {
        refused(&config, &[part]);
    }
}

#[test]
fn everyone_waits_for_a_straggler() {
    let held = config("3lc", "all-gather").with(|c| {
        c.straggler = Some("1=0.03".parse().unwrap());
        c.steps = 4;
    });
    let record = train(&held);
    // The mean over two workers, one of which takes at least the delay.
    assert!(record.trace.iter().all(|step| step.wall >= 0.015), "{:?}", record.trace);
    assert_eq!(record.digest, train(&held.with(|c| c.straggler = None)).digest);
    assert_eq!(record.straggler.unwrap().to_string(), "1=0.03");
    for nonsense in ["1", "x=1", "1=-1", "1=inf", "=1"] {
        let error = nonsense.parse::<Straggler>().unwrap_err();
        assert!(error.contains(nonsense) && error.contains("3=0.2"), "{error}");
    }
}
