//! Backup workers: a step does not wait for the last pushes, and late workers catch up.

use std::sync::Barrier;

use crate::common::{RATE, Run, bits, gradients, zeros};
use gradwire::State;
use gradwire_exchange::{Participation, StepInput};

const STEPS: u64 = 6;

#[test]
fn the_others_finish_without_a_worker_that_never_pushed_and_it_catches_up() {
    for text in ["3lc", "none", "topk:ratio=0.1", "terngrad", "randomk:ratio=0.2"] {
        for servers in [1, 2] {
            let name = format!("server:servers={servers},backup=1");
            let run = Run::of(&name, 3, text, &[100, 0, 3, 900]);
            let others_done = Barrier::new(3);
            let (results, reports) = run.workers(|rank, exchange| {
                let mut parameters = run.initial.clone();
                let mut skipped = 0;
                if rank == 1 {
                    others_done.wait();
                    let report = run.step(rank, 0, exchange, &mut parameters);
                    assert_eq!(report.traffic.bytes_up, 0, "a push that nobody wants");
                    skipped = report.skipped;
                } else {
                    run.advance(rank, 0..STEPS, exchange, &mut parameters);
                    others_done.wait();
                }
                (parameters, skipped)
            });
            let results: Vec<_> = results.into_iter().map(Result::unwrap).collect();
            assert_eq!(results[1].1, STEPS - 1);
            assert!(bits(&results[0].0) == bits(&results[1].0), "{text}");
            assert!(bits(&results[0].0) == bits(&results[2].0), "{text}");
            let updates: u64 = reports.unwrap().iter().map(|report| report.updates).sum();
            assert_eq!(updates, STEPS * 4);
        }
    }
}

#[test]
fn a_step_is_the_mean_of_those_who_were_in_time() {
    let run = Run::of("server:backup=1", 2, "none", &[50]);
    let done = Barrier::new(2);
    let results = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        if rank == 0 {
            done.wait();
        }
        run.step(rank, 0, exchange, &mut parameters);
        if rank == 1 {
            done.wait();
        }
        parameters
    });
    let theirs = gradients(&run.tensors, 1, 0);
    for result in results {
        for ((w, w0), g) in result[0].iter().zip(&run.initial[0]).zip(&theirs[0]) {
            assert_eq!(*w, w0 + ((w0 - RATE * g) - w0));
        }
    }
}

#[test]
fn the_weights_of_those_who_were_in_time_are_the_whole() {
    let mut run = Run::of("server:backup=1", 3, "none", &[50]);
    run.participation = Participation::weighted(vec![1.0, 4.0, 3.0]);
    run.initial = zeros(&run.tensors);
    let done = Barrier::new(3);
    let results = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        let gradients = [vec![[8.0, 16.0, -8.0][rank]; 50]];
        if rank == 0 {
            done.wait();
        }
        exchange.step(StepInput::new(0, RATE, &gradients), &mut parameters).unwrap();
        if rank != 0 {
            done.wait();
        }
        parameters
    });
    // (16·4/8 − 8·3/8) / (7/8) = 40/7.
    for w in results.concat().concat() {
        assert!((w + RATE * 40.0 / 7.0).abs() < 1e-6, "{w}");
    }
}

#[test]
fn racing_workers_end_with_the_same_bits_and_can_be_saved() {
    for (workers, backups) in [(2, 1), (4, 1), (5, 3)] {
        let name = format!("server:servers=2,backup={backups}");
        let run = Run::of(&name, workers, "3lc", &[500, 0, 40, 3]);
        let (results, reports) = run.workers(|rank, exchange| {
            let mut parameters = run.initial.clone();
            for half in [0, 1] {
                let (mut step, end) = (half * 40, (half + 1) * 40);
                while step < end {
                    let report = run.step(rank, step, exchange, &mut parameters);
                    step += 1 + report.skipped;
                }
                assert_eq!(step, end);
                exchange.control().check(step, &parameters).unwrap();
                exchange.save(&mut State::new()).unwrap();
            }
            parameters
        });
        let results: Vec<_> = results.into_iter().map(|result| bits(&result.unwrap())).collect();
        assert!(results.iter().all(|other| *other == results[0]));
        let updates: u64 = reports.unwrap().iter().map(|report| report.updates).sum();
        assert_eq!(updates, 80 * 4);
    }
}

#[test]
fn the_others_go_on_without_a_worker_that_has_left() {
    let run = Run::of("server:servers=2,backup=1", 3, "3lc", &[100, 900]);
    let results = run.each(|rank, exchange| {
        let mut parameters = run.initial.clone();
        // Worker 1 leaves after its first step.
        for step in 0..if rank == 1 { 1 } else { STEPS } {
            run.step(rank, step, exchange, &mut parameters);
        }
        parameters
    });
    assert!(bits(&results[0]) == bits(&results[2]));
}
