//! Pushes that come after their step.

use std::thread;

use gradwire::{Spec, Tensor};

use super::*;
use crate::{Policy, in_process};

struct Sgd;

impl Optimizer for Sgd {
    fn update(&mut self, _: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
        parameters.iter_mut().zip(gradient).for_each(|(w, g)| *w -= rate * g);
    }
}

/// How a server ends whose worker 0 begins step 4, pushes for these steps, and leaves with worker 1.
fn served(exchange: &str, pushes: &[u64]) -> Result<ServerReport> {
    let (tensors, initial) = ([Tensor::new("w", &[1])], [vec![0.0]]);
    let config = GroupConfig {
        exchange: exchange.parse().unwrap(),
        policy: &Policy::new(Spec::none()),
        participation: &Participation::equal(2),
        tensors: &tensors,
        seed: 0,
        initial: &initial,
    };
    let mut ranks = in_process::connect(3, in_process::Options::default());
    let server = Box::new(ranks.remove(2));
    thread::scope(|scope| {
        let server =
            scope.spawn(|| Server::new(server, &config, Box::new(Sgd)).and_then(Server::run));
        let workers: Vec<_> = ranks
            .into_iter()
            .map(|mut worker| {
                let config = &config;
                scope.spawn(move || {
                    control::join(config, &mut worker, "").unwrap();
                    worker
                })
            })
            .collect();
        let mut workers: Vec<_> = workers.into_iter().map(|it| it.join().unwrap()).collect();
        let begin = encode_begin(4, 0.5);
        workers[0].send(2, Operation::whole(Phase::Begin, 4), &begin).unwrap();
        for &step in pushes {
            let push = Operation::tensor(Phase::Push, 0, "w", step);
            workers[0].send(2, push, &1f32.to_le_bytes()).unwrap();
        }
        drop(workers);
        server.join().unwrap()
    })
}

#[test]
fn a_step_that_an_absent_worker_has_begun_needs_the_pushes_of_the_others() {
    // Worker 0 says that it is at step 4, and leaves before any push.
    let lost = served("server", &[]).unwrap_err();
    assert!(matches!(lost, ExchangeError::PeerLost { .. }), "{lost}");
}

#[test]
fn late_pushes_are_counted_with_backup_workers_and_refused_without() {
    let report = served("server:backup=1", &[3, 4, 4]).unwrap();
    assert_eq!((report.updates, report.late), (1, 2));
    let refused = served("server", &[3]).unwrap_err();
    assert!(matches!(refused, ExchangeError::Protocol { peer: 0, .. }), "{refused}");
}
