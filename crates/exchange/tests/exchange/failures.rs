//! When one rank fails, the others stop and name it.

use std::sync::Barrier;
use std::time::Duration;

use crate::common::{RATE, Run, Sgd, exchange, gradients, lossless, threads};
use gradwire::Error;
use gradwire_exchange::{DistributedOptimizer, ExchangeError, Optimizer, Role, StepInput, launch};

/// The suffix of the name of an exchange with overlap.
const OVERLAPPED: &str = " overlapped";

const STRATEGIES: [&str; 9] = [
    "all-reduce",
    "all-reduce overlapped",
    "all-gather",
    "all-gather overlapped",
    "scatter-reduce overlapped",
    "scatter-reduce",
    "sparse-all-reduce",
    "hierarchical",
    "server:servers=2",
];

fn run(name: &str) -> Run {
    let plain = name.strip_suffix(OVERLAPPED).unwrap_or(name);
    let mut run = Run::new(exchange(plain), 3, &lossless(plain), &[40, 0, 1000]);
    run.groups = name.ends_with(OVERLAPPED).then(|| vec![vec![2], vec![0, 1]]);
    run
}

fn steps(
    run: &Run,
    rank: usize,
    exchange: &mut dyn DistributedOptimizer,
    steps: u64,
) -> Result<(), ExchangeError> {
    let mut parameters = run.initial.clone();
    for step in 0..steps {
        let gradients = gradients(&run.tensors, rank, step);
        early(exchange, step, &gradients);
        exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters)?;
    }
    Ok(())
}

/// Hands over the last gradient early, if the exchange overlaps.
fn early(exchange: &mut dyn DistributedOptimizer, step: u64, gradients: &[Vec<f32>]) {
    if let Some(early) = exchange.gradient_sink(step) {
        early.ready(2, &gradients[2]);
    }
}

fn assert_names(error: &ExchangeError, rank: usize, name: &str) {
    let peer = match error {
        ExchangeError::PeerLost { peer, .. } | ExchangeError::Deadline { peer, .. } => *peer,
        other => panic!("{name}: {other}"),
    };
    assert_eq!(peer, rank, "{name}: {error}");
    assert!(error.to_string().contains(&format!("rank {rank}")));
}

#[test]
fn a_panic_stops_all_ranks_and_names_its_own() {
    for name in STRATEGIES {
        let run = run(name);
        let (results, servers) = run.workers(|rank, exchange| {
            steps(&run, rank, exchange, 2)?;
            let gradients = gradients(&run.tensors, rank, 2);
            early(exchange, 2, &gradients);
            assert!(rank != 1, "this rank dies in the middle of its run");
            exchange.step(StepInput::new(2, RATE, &gradients), &mut run.initial.clone())
        });
        for (rank, result) in results.into_iter().enumerate() {
            match (rank, result) {
                (1, result) => assert!(result.is_err(), "{name}: rank 1 did not panic"),
                (_, result) => assert_names(&result.unwrap().unwrap_err(), 1, name),
            }
        }
        if run.exchange.servers() > 0 {
            assert_names(&servers.unwrap_err(), 1, name);
        }
    }
}

#[test]
fn a_nan_names_the_tensor_on_its_rank_and_the_rank_elsewhere() {
    for name in STRATEGIES {
        let run = run(name);
        let (results, _) = run.workers(|rank, exchange| {
            steps(&run, rank, exchange, 1)?;
            let mut gradients = gradients(&run.tensors, rank, 1);
            if rank == 2 {
                gradients[0][7] = f32::NAN;
            }
            early(exchange, 1, &gradients);
            let failed =
                exchange.step(StepInput::new(1, RATE, &gradients), &mut run.initial.clone());
            // Nobody waits for what the error has ended.
            for step in 2..4 {
                let input = StepInput::new(step, RATE, &gradients);
                assert!(exchange.step(input, &mut run.initial.clone()).is_err(), "{name}");
            }
            failed
        });
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap().unwrap_err();
            if rank < 2 {
                assert_names(&error, 2, name);
                continue;
            }
            let ExchangeError::Codec(Error::NonFinite { tensor, index, .. }) = error else {
                panic!("{name}: {error}");
            };
            assert_eq!((tensor.split('[').next(), index), (Some("t0.weight"), 7), "{name}");
        }
    }
}

#[test]
fn a_gradient_of_another_length_stops_all_ranks_at_once() {
    for name in STRATEGIES {
        let run = run(name);
        let (results, _) = run.workers(|rank, exchange| {
            let mut gradients = gradients(&run.tensors, rank, 0);
            if rank == 1 {
                gradients[0].pop();
            }
            exchange.step(StepInput::new(0, RATE, &gradients), &mut run.initial.clone())
        });
        for (rank, result) in results.into_iter().enumerate() {
            match result.unwrap().unwrap_err() {
                ExchangeError::Codec(Error::WrongLength { .. }) if rank == 1 => {}
                ExchangeError::PeerLost { peer: 1, .. } if rank != 1 => {}
                error => panic!("{name}, rank {rank}: {error}"),
            }
        }
    }
}

#[test]
fn a_rank_that_leaves_early_is_missed_by_name() {
    for name in STRATEGIES {
        let run = run(name);
        let (results, servers) = run
            .workers(|rank, exchange| steps(&run, rank, exchange, if rank == 0 { 1 } else { 3 }));
        for result in results.into_iter().skip(1) {
            assert_names(&result.unwrap().unwrap_err(), 0, name);
        }
        if run.exchange.servers() > 0 {
            assert_names(&servers.unwrap_err(), 0, name);
        }
    }
}

#[test]
fn a_silent_rank_is_named_when_the_deadline_is_over() {
    for name in STRATEGIES {
        let mut run = run(name);
        run.options.deadline = Duration::from_secs(2);
        let all_done = Barrier::new(3);
        let (results, servers) = run.workers(|rank, exchange| {
            let result = steps(&run, rank, exchange, if rank == 1 { 1 } else { 2 });
            all_done.wait();
            result
        });
        for (rank, result) in results.into_iter().enumerate() {
            match rank {
                1 => result.unwrap().unwrap(),
                _ => assert_names(&result.unwrap().unwrap_err(), 1, name),
            }
        }
        if run.exchange.servers() > 0 {
            let error = servers.unwrap_err();
            assert_names(&error, 1, name);
            assert!(error.to_string().contains("push of 't"), "{error}");
        }
    }
}

/// Fails at its third update.
struct Fragile(u32);

impl Optimizer for Fragile {
    fn update(&mut self, index: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
        self.0 += 1;
        assert!(self.0 < 3, "this server dies");
        Sgd.update(index, rate, gradient, parameters);
    }
}

#[test]
fn a_dead_server_is_named_by_its_rank() {
    let run = run("server");
    let launched = launch(&run.setup(), run.options, |transport| {
        Role::join(transport, &run.setup(), || Box::new(Fragile(0)))
    })
    .unwrap();
    for error in
        threads(launched.workers, |rank, mut exchange| steps(&run, rank, &mut *exchange, 2))
    {
        assert_names(&error.unwrap().unwrap_err(), 3, "server");
    }
    let joined = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| launched.servers.join()));
    assert!(joined.is_err(), "the server's panic is passed on");
}

#[test]
fn ranks_whose_parameters_differ_are_told_so() {
    for name in STRATEGIES {
        let run = run(name);
        let (results, _) = run.workers(|rank, exchange| {
            let mut parameters = run.initial.clone();
            if rank > 0 {
                parameters[2][3] += rank as f32;
            }
            exchange.control().check(12, &parameters)
        });
        for result in results {
            let error = result.unwrap().unwrap_err().to_string();
            assert!(error.contains("step 12") && error.contains("rank 1, 2 differ"), "{error}");
        }
    }
}

#[test]
fn a_wrong_buffer_is_refused_by_name() {
    let run = run("all-gather");
    let errors = run.each(|_, exchange| {
        let mut gradients = run.initial.clone();
        gradients[2].pop();
        exchange
            .step(StepInput::new(0, RATE, &gradients), &mut run.initial.clone())
            .unwrap_err()
            .to_string()
    });
    assert!(errors.iter().all(|error| error.contains("'t2.weight' has 1000")));
}
