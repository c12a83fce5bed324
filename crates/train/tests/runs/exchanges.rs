//! What is sent: over which exchange, how often, and in how many bytes.

use std::time::{Duration, Instant};

use super::*;

#[test]
fn uncompressed_runs_agree_whatever_the_exchange() {
    let expected = losses(&train(&config("none", "all-reduce")));
    for exchange in ["all-gather", "scatter-reduce", "server", "server:servers=3"] {
        let found = losses(&train(&config("none", exchange)));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-3, "{exchange}: {found} is not {expected}");
        }
    }
}

#[test]
fn what_servers_do_is_on_record() {
    assert!(train(&config("3lc", "server:servers=2")).server.is_some());
    assert_eq!(train(&config("3lc", "all-gather")).server, None);
}

#[test]
fn the_busiest_worker_of_a_step_is_on_record() {
    let header = gradwire_exchange::HEADER_BYTES as f64;
    let four = |exchange: &str| config("none", exchange).with(|c| c.workers = 4);
    // Half of four workers send to three others; absent ones send headers.
    let record = train(&four("all-gather").with(|c| c.participation = 0.5));
    for step in &record.trace {
        assert_eq!(step.bytes_busiest, 2.0 * step.bytes_up - 3.0 * header);
    }
    // Members send the model, leaders that and their messages: the mean lies halfway.
    let record = train(&four("hierarchical:node=2"));
    let model = 4.0 * record.parameters as f64 + header;
    for step in &record.trace {
        assert_eq!(step.bytes_busiest, 2.0 * step.bytes_up - model);
        assert!(step.bytes_busiest > 1.9 * model);
    }
}

#[test]
fn local_steps_send_the_sum() {
    let record = train(&config("none:every=2", "all-reduce").with(|c| c.steps = 5));
    let sent: Vec<bool> = record.trace.iter().map(|step| step.bytes_up > 0.0).collect();
    // The last step always exchanges.
    assert_eq!(sent, [false, true, false, true, true]);

    // The sum of two gradients at the same parameters is twice the mean gradient of their batches
    // together: plain descent takes the step of the wide batch at twice the rate.
    let plain = |every: &str, workers: usize, steps, rate: &str| {
        config(every, "all-reduce").with(|c| {
            c.steps = steps;
            c.workers = workers;
            c.optimizer = "sgd".parse().unwrap();
            c.weight_decay = 0.0;
            c.learning_rate = rate.parse().unwrap();
        })
    };
    let local = train(&plain("none:every=2", 1, 8, "0.05"));
    let wide = train(&plain("none", 2, 4, "0.1"));
    for (step, wide) in wide.trace.iter().enumerate() {
        let local = (local.trace[2 * step].loss + local.trace[2 * step + 1].loss) / 2.0;
        assert!((local - wide.loss).abs() < 1e-4, "{local} is not {}", wide.loss);
    }
}

#[test]
fn the_traffic_estimate_is_what_the_transport_counted_but_for_framing() {
    for (compressor, exchange) in [
        ("topk:ratio=0.01,every=4", "all-gather"),
        ("topk:ratio=0.05", "server"),
        ("none", "all-gather"),
        ("none:every=3", "server"),
        ("fp16", "all-reduce"),
        ("randomk:ratio=0.1", "all-reduce"),
        ("randomk:ratio=0.1", "all-gather"),
    ] {
        the_estimate_holds(compressor, exchange, 0);
    }
    // Of the parameters 30 910 travel raw.
    for compressor in ["fp16", "topk:ratio=0.05"] {
        the_estimate_holds(compressor, "server", 100_000);
    }
}

fn the_estimate_holds(compressor: &str, exchange: &str, raw_below: usize) {
    let config = config(compressor, exchange).with(|c| (c.workers, c.raw_below) = (3, raw_below));
    let record = train(&config);
    let equation = record.traffic_estimate().unwrap();
    let ratio = record.bytes_up / equation.bytes();
    assert!((0.97..1.03).contains(&ratio), "{compressor}, {exchange}: {ratio}, {equation:?}");
}

#[test]
fn a_budget_of_bytes_is_kept_and_used() {
    let rate = "step:from=0.05,factor=0.5,at=0.5";
    for (plan, exchange, part) in [
        ("topk within 60kB", "server", 1.0),
        ("topk within 20kB", "server:servers=2", 1.0),
        ("sbc within 20kB", "all-gather", 1.0),
        ("topk:ratio=0.001 within 100kB", "all-gather", 1.0),
        ("sbc within 40kB", "scatter-reduce", 1.0),
        ("sbc within 30kB", "server", 0.5),
    ] {
        let config = config(plan, exchange).with(|c| {
            c.workers = 4;
            c.steps = 24;
            c.batch = 4;
            c.participation = part;
            c.learning_rate = rate.parse().unwrap();
        });
        let record = train(&config);
        let budget: f64 =
            plan.split_once("within ").unwrap().1.trim_end_matches("kB").parse().unwrap();
        let used = record.bytes_up / (budget * 1000.0);
        assert!((0.6..=1.0).contains(&used), "{plan}, {exchange}: {used}");
    }
}

#[test]
fn tensors_travel_by_rules() {
    let rules = ["*.bias -> none", "matrices -> onebit"].map(|rule| rule.parse().unwrap()).to_vec();
    let config = config("none", "all-gather").with(|c| (c.steps, c.rules) = (4, rules));
    let ruled = train(&config);
    let plain = train(&config.clone().with(|c| c.rules = Vec::new()));
    // All but the biases are matrices.
    assert!(ruled.bytes_up * 20.0 < plain.bytes_up, "{} and {}", ruled.bytes_up, plain.bytes_up);
    assert_eq!(ruled.rules, config.rules);
    // The product counts the bits of one compressor.
    assert!(ruled.traffic_estimate().is_none() && plain.traffic_estimate().is_some());
    let budget = config.with(|c| c.compressor = "topk within 1MB".parse().unwrap());
    refused(&budget, &["leave out the rules"]);
}

#[test]
fn a_budget_is_refused_where_bytes_do_not_follow_from_the_messages() {
    for exchange in ["sparse-all-reduce", "hierarchical:node=3"] {
        refused(
            &config("topk within 1MB", exchange),
            &["a budget counts the bytes of messages", exchange],
        );
    }
    let budget = config("topk within 1MB", "all-gather");
    refused(&budget.clone().with(|c| c.min_workers = Some(1)), &["budget", "min_workers off"]);
    refused(&budget.with(|c| c.svrg = 10), &["budget", "svrg at 0"]);
    let updates = config("sbc within 1MB", "all-gather").with(|c| c.median_clip = true);
    let updates = updates.with(|c| c.send = Payload::Updates);
    refused(&updates, &["budget", "median_clip off"]);
}

#[test]
fn a_run_that_diverges_ends_at_once_though_absent_workers_wait() {
    // Workers that take part leave before they push; the others wait for the server.
    for seed in 0..4 {
        let config = config("none", "server").with(|c| {
            c.workers = 4;
            (c.seed, c.steps, c.participation, c.deadline_s) = (seed, 50, 0.5, 60.0);
            c.learning_rate = "1e30".parse().unwrap();
        });
        let start = Instant::now();
        let error = run(&config, &(), &RunOptions::default()).unwrap_err();
        assert!(matches!(error, TrainError::Diverged { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(30), "seed {seed}: {:?}", start.elapsed());
    }
}
