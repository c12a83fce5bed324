//! Asynchronous servers, without a bound on the staleness of workers or with one.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Duration;

use crate::common::{RATE, Run, bits, gradients, saved};
use gradwire_exchange::{DistributedOptimizer, ExchangeError, Participation, StepInput};

const SIZES: [usize; 4] = [100, 0, 3, 900];
const WORKERS: usize = 4;

fn run(name: &str, spec: &str) -> Run {
    Run::of(name, WORKERS, spec, &SIZES)
}

/// Gradients and parameters whose sums are exact in any order: multiples of 2⁻⁸ below 1.
fn coarse(tensors: Vec<Vec<f32>>) -> Vec<Vec<f32>> {
    let round = |x: f32| (x * 256.0).round() / 256.0;
    tensors.into_iter().map(|tensor| tensor.into_iter().map(round).collect()).collect()
}

/// The parameters after `steps` steps with coarse gradients.
fn steps(
    run: &Run,
    rank: usize,
    exchange: &mut dyn DistributedOptimizer,
    steps: u64,
) -> Vec<Vec<f32>> {
    let mut parameters = run.initial.clone();
    more_steps(run, rank, exchange, 0..steps, &mut parameters);
    parameters
}

fn more_steps(
    run: &Run,
    rank: usize,
    exchange: &mut dyn DistributedOptimizer,
    steps: Range<u64>,
    parameters: &mut [Vec<f32>],
) {
    for step in steps {
        let gradients = coarse(gradients(&run.tensors, rank, step));
        exchange.step(StepInput::new(step, RATE, &gradients), parameters).unwrap();
    }
}

#[test]
fn without_slack_all_hold_what_the_bulk_synchronous_server_makes() {
    for spec in ["none", "topk:ratio=0.25", "onebit", "randomk:ratio=0.5"] {
        let ends = ["server", "server:stale=0", "server:servers=2,stale=0"].map(|name| {
            let mut run = run(name, spec);
            run.initial = coarse(run.initial);
            // Pushes stay exact; pulls are compressed with the same compressor.
            run.policy.push.first = "none".parse().unwrap();
            run.policy.pull = Some(spec.parse().unwrap());
            run.each(|rank, exchange| {
                let parameters = steps(&run, rank, exchange, 6);
                exchange.control().check(6, &parameters).unwrap();
                parameters
            })
        });
        let expected = bits(&ends[0][0]);
        // With two servers, one of them draws with another rank.
        let alike = if spec.starts_with("randomk") { &ends[..2] } else { &ends[..] };
        for end in alike.iter().flatten() {
            assert!(bits(end) == expected, "{spec}");
        }
    }
}

#[test]
fn every_gradient_counts_once() {
    for (name, spec) in [
        ("server:stale=0", "none"),
        ("server:stale=2", "none"),
        ("server:servers=3,mode=async", "none"),
        ("server:mode=async", "threshold:v=0"),
    ] {
        let mut run = run(name, spec);
        run.initial = coarse(run.initial);
        let done = Barrier::new(WORKERS);
        let (ends, servers) = run.workers(|rank, exchange| {
            steps(&run, rank, exchange, 5);
            done.wait();
            let global = if rank == 0 { exchange.global_model().unwrap() } else { None };
            done.wait();
            global
        });
        let updates: u64 = servers.unwrap().iter().map(|report| report.updates).sum();
        assert_eq!(updates, 5 * (WORKERS * SIZES.len()) as u64);
        let mut expected = run.initial.clone();
        for (rank, step) in (0..WORKERS).flat_map(|rank| (0..5).map(move |step| (rank, step))) {
            let gradients = coarse(gradients(&run.tensors, rank, step));
            for (w, g) in expected.iter_mut().flatten().zip(gradients.iter().flatten()) {
                *w -= RATE / WORKERS as f32 * g;
            }
        }
        let global = ends.into_iter().next().unwrap().unwrap().unwrap();
        assert!(bits(&global) == bits(&expected), "{name}, {spec}");
    }
}

#[test]
fn what_a_worker_pulls_and_what_is_kept_for_it_are_all_there_was() {
    // One worker pulls last, and nothing changes after. So its copy plus the residual of its pulls
    // is the global model.
    let run = run("server:mode=async", "topk:ratio=0.1");
    let (others, last) = (Barrier::new(WORKERS), Mutex::new(None));
    let (ends, servers) = run.workers(|rank, exchange| {
        let mut parameters = run.initial.clone();
        for step in 0..4 {
            if (rank, step) == (1, 3) {
                others.wait();
            }
            run.step(rank, step, exchange, &mut parameters);
        }
        if rank != 1 {
            others.wait();
        }
        let state = saved(exchange);
        if rank == 1 {
            *last.lock().unwrap() = Some(parameters);
        }
        state
    });
    servers.unwrap();
    let state = ends.into_iter().next().unwrap().unwrap();
    let copy = last.into_inner().unwrap().unwrap();
    for (tensor, copy) in run.tensors.iter().zip(&copy) {
        let global = state.floats(&format!("server0/global/{}", tensor.name())).unwrap();
        let kept = state.floats(&format!("server0/pull1/residual/{}", tensor.name()));
        for (at, (global, copy)) in global.iter().zip(copy).enumerate() {
            let kept = kept.as_ref().map_or(0.0, |kept| kept[at]);
            assert!((copy + kept - global).abs() < 1e-5, "{}: {at}", tensor.name());
        }
    }
}

#[test]
fn nobody_is_further_ahead_than_the_bound_and_everybody_may_be_so_far() {
    const STEPS: u64 = 9;
    for bound in [0, 1, 3] {
        let run = run(&format!("server:stale={bound}"), "none");
        let begun: Vec<_> = (0..WORKERS).map(|_| AtomicU64::new(0)).collect();
        let ahead = Barrier::new(WORKERS);
        run.each(|rank, exchange| {
            let mut parameters = run.initial.clone();
            for step in 0..STEPS {
                // The straggler waits until the others are as far ahead as the bound allows.
                if (rank == 2 && step == 0) || (rank != 2 && step == bound) {
                    ahead.wait();
                }
                begun[rank].fetch_add(1, Ordering::SeqCst);
                run.step(rank, step, exchange, &mut parameters);
                let slowest = begun.iter().map(|steps| steps.load(Ordering::SeqCst)).min();
                assert!(step < slowest.unwrap() + bound, "{bound}: {step}, {slowest:?}");
            }
        });
    }
}

#[test]
fn without_a_bound_nobody_waits_for_a_straggler() {
    let run = run("server:mode=async", "onebit");
    let others_done = Barrier::new(WORKERS);
    run.each(|rank, exchange| {
        if rank == 2 {
            others_done.wait();
        }
        steps(&run, rank, exchange, 7);
        if rank != 2 {
            others_done.wait();
        }
    });
}

#[test]
fn a_worker_that_leaves_early_or_says_nothing_is_named() {
    let named = |error: &ExchangeError| match error {
        ExchangeError::PeerLost { peer: 1, operation }
        | ExchangeError::Deadline { peer: 1, operation, .. } => operation.starts_with("push"),
        _ => false,
    };
    for (name, silent) in
        [("server:stale=1", false), ("server:stale=1", true), ("server:mode=async", false)]
    {
        let mut run = run(name, "none");
        run.options.deadline = Duration::from_secs(2);
        let all_done = Barrier::new(WORKERS);
        let (ends, servers) = run.workers(|rank, exchange| {
            let mut parameters = run.initial.clone();
            let steps = if rank == 1 { 1 } else { 5 };
            let result = (0..steps).try_for_each(|step| {
                run.try_step(rank, step, exchange, &mut parameters).map(|_| ())
            });
            if silent {
                all_done.wait();
            }
            result
        });
        let error = servers.unwrap_err();
        assert!(named(&error), "{name}: {error}");
        for (rank, end) in ends.into_iter().enumerate() {
            match end.unwrap() {
                Ok(()) => assert!(rank == 1 || name == "server:mode=async", "{name}: {rank}"),
                Err(error) => assert!(error.to_string().contains("rank 1"), "{name}: {error}"),
            }
        }
    }
}

#[test]
fn a_resumed_run_goes_on_where_it_was() {
    let run = run("server:stale=0", "topk:ratio=0.2");
    run.each(|rank, exchange| {
        let mut whole = steps(&run, rank, exchange, 3);
        let (mut state, mut again) = (gradwire::State::new(), whole.clone());
        exchange.save(&mut state).unwrap();
        more_steps(&run, rank, exchange, 3..6, &mut whole);
        exchange.restore(&state).unwrap();
        more_steps(&run, rank, exchange, 3..6, &mut again);
        for (a, b) in whole.iter().flatten().zip(again.iter().flatten()) {
            assert!((a - b).abs() < 1e-5);
        }
    });
}

#[test]
fn what_needs_all_at_once_is_refused() {
    let refused = |run: &Run| run.setup().validate().unwrap_err().to_string();
    assert!(refused(&run("server:stale=1,backup=1", "none")).contains("backup=0"));
    for name in ["server:mode=async", "server:stale=1"] {
        let mut some = run(name, "none");
        some.participation = Participation::equal(WORKERS).with_participants(2, 0.0, 0);
        let message = refused(&some);
        assert!(message.contains("full participation, or leave out mode and stale"), "{message}");
    }
    let mut votes = run("server:mode=async", "signsgd");
    votes.policy.pull = Some("none".parse().unwrap());
    assert!(refused(&votes).contains("votes of 'signsgd'"));
    assert!(
        refused(&run("server:stale=1", "chunk-topk:mean=senders")).contains("over the workers")
    );
}
