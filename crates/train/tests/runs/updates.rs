//! Local steps: workers that send updates or weights.

use std::sync::atomic::AtomicU64;

use super::*;

/// A configuration in which workers take local steps and send updates.
fn updates(compressor: &str, exchange: &str) -> RunConfig {
    RunConfig { send: Payload::Updates, ..config(compressor, exchange) }
}

#[test]
fn the_mean_update_of_plain_descent_is_the_update_of_the_mean_gradient() {
    let plain = |send| RunConfig {
        send,
        optimizer: "sgd".parse().unwrap(),
        weight_decay: 0.0,
        ..config("none", "all-gather")
    };
    let (gradients, updates) = (train(&plain(Payload::Gradients)), train(&plain(Payload::Updates)));
    for (a, b) in losses(&gradients).into_iter().zip(losses(&updates)) {
        assert!((a - b).abs() < 1e-4, "{a} {b}");
    }
    assert_eq!(gradients.rounds, 12);
}

#[test]
fn a_single_worker_trains_alike_whatever_the_length_of_rounds() {
    // After each exchange it continues from its own parameters, with its momentum.
    for optimizer in ["momentum", "adam"] {
        let alone = |compressor: &str| {
            let config = RunConfig {
                workers: 1,
                optimizer: optimizer.parse().unwrap(),
                learning_rate: "0.01".parse().unwrap(),
                ..updates(compressor, "all-gather")
            };
            train(&config)
        };
        let (often, rarely) = (alone("none"), alone("none:every=5"));
        for (a, b) in losses(&often).into_iter().zip(losses(&rarely)) {
            assert!((a - b).abs() < 1e-3, "{optimizer}: {a} {b}");
        }
        assert_eq!((often.rounds, rarely.rounds), (12, 3));
        assert!(
            often.bytes_up == 0.0 && rarely.bytes_up == 0.0,
            "there is no other worker to send to"
        );
    }
}

#[test]
fn masking_forgets_the_momentum_of_what_was_sent() {
    let masked = |mask, compressor: &str| {
        train(&RunConfig { mask, ..updates(compressor, "all-gather") }).digest
    };
    assert_ne!(masked(true, "topk:ratio=0.1"), masked(false, "topk:ratio=0.1"));
    assert_eq!(masked(true, "none"), masked(false, "none"), "without sparsity nothing is masked");
}

#[test]
fn federated_runs_resume_bit_for_bit_on_every_exchange() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.state");
    for exchange in ["all-gather", "scatter-reduce", "server:servers=2"] {
        for compressor in ["topk:ratio=0.05,every=3", "topk:every=2 until 0.5 then topk:ratio=0.1"]
        {
            let whole = RunConfig {
                workers: 4,
                split: "dirichlet:alpha=1".parse().unwrap(),
                participation: 0.5,
                dropout: 0.2,
                optimizer: "adam".parse().unwrap(),
                learning_rate: "0.001".parse().unwrap(),
                raw_vectors: false,
                raw_below: 0,
                ..updates(compressor, exchange)
            };
            let expected = train(&whole);
            let stop = StopAfter { steps: 6, asked: AtomicU64::new(0) };
            let save = Some(Save { path: path.clone(), every: 0, keep: 1 });
            let stopped = run(&whole, &stop, &RunOptions { save, ..RunOptions::default() });
            assert!(matches!(stopped, Err(TrainError::Stopped { .. })), "{exchange}");
            let options = RunOptions { resume: Some(path.clone()), ..RunOptions::default() };
            let resumed = run(&whole, &(), &options).unwrap();
            assert_eq!(resumed.digest, expected.digest, "{exchange}, {compressor}");
            assert_eq!(losses(&resumed), losses(&expected), "{exchange}, {compressor}");
        }
    }
}

#[test]
fn workers_with_more_examples_count_for_more() {
    let sizes = |sizes: &str| RunConfig {
        split: format!("shards:sizes={sizes}").parse().unwrap(),
        ..updates("none", "all-gather")
    };
    // The same parts of different sizes are different shards, and other weights.
    assert_ne!(train(&sizes("1+1")).digest, train(&sizes("1+5")).digest);
    let error = run(&sizes("1+2+3"), &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("3 sizes for 2 workers"), "{error}");
}

#[test]
fn weights_are_averaged_as_updates_are() {
    // Without compression the mean of weights is the common ones and the mean change.
    let plain = |send| RunConfig {
        send,
        weight_decay: 0.0,
        learning_rate: "0.05".parse().unwrap(),
        ..config("none:every=3", "all-gather")
    };
    let (updates, weights) = (train(&plain(Payload::Updates)), train(&plain(Payload::Weights)));
    for (updates, weights) in losses(&updates).iter().zip(losses(&weights)) {
        assert!((updates - weights).abs() < 1e-4, "{updates} is not {weights}");
    }
    for exchange in ["server", "scatter-reduce"] {
        let config = RunConfig { steps: 9, ..plain(Payload::Weights) };
        let config = RunConfig {
            exchange: exchange.parse().unwrap(),
            compressor: "entropy-bits:every=3".parse().unwrap(),
            ..config
        };
        let record = train(&config);
        assert!(record.bits_up() < 4.0, "{}", record.bits_up());
        assert!(record.trace[8].loss < record.trace[0].loss, "{exchange}");
    }
    let sparse = RunConfig { compressor: "topk".parse().unwrap(), ..plain(Payload::Weights) };
    let error = run(&sparse, &(), &RunOptions::default()).unwrap_err().to_string();
    assert!(error.contains("weights travel whole"), "{error}");
}
