//! Overlap of exchange and back-propagation: the digests are those of runs without.

use super::small as config;
use super::*;

#[test]
fn digests_are_those_of_runs_without_overlap() {
    for (model, compressor, exchange) in [
        ("lenet5", "none", "all-gather"),
        ("lenet5", "3lc", "all-gather"),
        ("lenet5", "topk:ratio=0.05", "all-gather"),
        ("lenet5", "none", "all-reduce"),
        ("lenet5", "fp16:ef=on", "all-reduce"),
        ("lenet5", "powersgd", "all-reduce"),
        ("resnet8", "3lc", "all-gather"),
        ("resnet8", "powersgd", "all-reduce"),
    ] {
        let plain = train(&config(model, compressor, exchange, false));
        let early = train(&config(model, compressor, exchange, true));
        assert_eq!(early.digest, plain.digest, "{model}, {compressor}, {exchange}");
        assert_eq!(early.evaluations, plain.evaluations);
        assert_eq!(early.sent, plain.sent);
        // Of headers every group has its own.
        assert!(early.bytes_up > plain.bytes_up && early.bytes_up < plain.bytes_up + 2000.0);
        assert!(plain.hidden().is_none() && early.hidden().is_some());
        assert!(early.trace.iter().all(|step| step.background > 0.0));
    }
}

#[test]
fn weights_of_shards_and_plans_are_kept() {
    let plain =
        config("lenet5", "topk:ratio=0.1 until 0.5 then topk:ratio=0.01", "all-gather", false)
            .with(|c| c.split = "shards:sizes=3+1".parse().unwrap());
    let early = plain.clone().with(|c| c.overlap = true);
    assert_eq!(train(&early).digest, train(&plain).digest);
}

#[test]
fn scatter_reduce_by_tensor_is_deterministic_and_learns_as_well() {
    let early = config("lenet5", "3lc", "scatter-reduce", true);
    let first = train(&early);
    assert_eq!(first.digest, train(&early).digest);
    let losses = |run: &RunRecord| run.trace.iter().map(|step| step.loss).sum::<f64>();
    let plain = train(&early.with(|c| c.overlap = false));
    assert!((losses(&first) / losses(&plain) - 1.0).abs() < 0.05);
}

#[test]
fn processes_have_the_bits_of_threads() {
    for exchange in ["all-gather", "scatter-reduce"] {
        let config = config("lenet5", "3lc", exchange, true);
        let here = train(&config);
        let apart = super::processes::together(&config);
        assert!(apart.hidden().is_some());
        assert_eq!((apart.digest, apart.bytes_up), (here.digest, here.bytes_up), "{exchange}");
    }
}

#[test]
fn a_stopped_run_goes_on_bit_for_bit_with_overlap_or_without() {
    let folder = tempfile::tempdir().unwrap();
    for (at, (compressor, exchange)) in
        [("3lc", "all-gather"), ("powersgd", "all-reduce"), ("topk:ratio=0.1", "scatter-reduce")]
            .into_iter()
            .enumerate()
    {
        let path = folder.path().join(format!("{at}.state"));
        let config = config("lenet5", compressor, exchange, true);
        let whole = train(&config);
        stop(&config, 3, &path);
        assert_eq!(resume(&config, &path).unwrap().digest, whole.digest, "{exchange}");
        let plain = resume(&config.clone().with(|c| c.overlap = false), &path);
        if exchange == "scatter-reduce" {
            let message = plain.unwrap_err().to_string();
            assert!(message.contains("of each tensor with 2 workers"), "{message}");
        } else {
            assert_eq!(plain.unwrap().digest, whole.digest, "{exchange}");
        }
        // Another number of workers takes over what these have left.
        let three = config.with(|c| c.workers = 3);
        assert_eq!(resume(&three, &path).unwrap().trace.len(), 6, "{exchange}");
    }
}

#[test]
fn a_run_that_diverges_ends() {
    let config = config("lenet5", "none", "all-gather", true)
        .with(|c| c.learning_rate = "1e30".parse().unwrap());
    refused(&config, &["lower the learning rate"]);
}

#[test]
fn what_does_not_go_with_overlap_is_refused_with_the_remedy() {
    let base = || config("lenet5", "3lc", "all-gather", true);
    let text = super::text::config("3lc");
    for (config, part) in [
        (
            text.with(|c| {
                (c.overlap, c.clip) = (true, None);
                c.exchange = "all-gather".parse().unwrap();
            }),
            "images",
        ),
        (base().with(|c| c.exchange = "server".parse().unwrap()), "use all-reduce"),
        (base().with(|c| c.exchange = "hierarchical".parse().unwrap()), "use all-reduce"),
        (base().with(|c| c.send = Payload::Updates), "send gradients"),
        (base().with(|c| c.participation = 0.5), "participation at 1"),
        (base().with(|c| c.dropout = 0.1), "dropout at 0"),
        (config("lenet5", "topk within 1MB", "all-gather", true), "give a compressor"),
        (base().with(|c| c.clip = Some(1.0)), "--clip off"),
        (base().with(|c| c.l1 = 0.1), "leave l1 at 0"),
        (base().with(|c| c.svrg = 5), "leave svrg at 0"),
        (config("lenet5", "3lc:every=2", "all-gather", true), "every=1"),
        (config("lenet5", "none until 0.5 then none:every=2", "all-gather", true), "every=1"),
        (config("lenet5", "variance", "all-gather", true), "another compressor"),
    ] {
        refused(&config, &[part, "leave overlap off"]);
    }
}
