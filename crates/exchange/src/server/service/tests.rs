//! Pushes that come after their step, or never.

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

/// How a server of two workers ends if they do `work` after they have joined it.
fn with_server(
    exchange: &str,
    participation: &Participation,
    options: in_process::Options,
    work: impl FnOnce(Vec<in_process::InProcess>),
) -> Result<ServerReport> {
    let (tensors, initial) = ([Tensor::new("w", &[1])], [vec![0.0]]);
    let config = GroupConfig {
        exchange: exchange.parse().unwrap(),
        policy: &Policy::new(Spec::none()),
        participation,
        tensors: &tensors,
        seed: 0,
        initial: &initial,
    };
    let mut ranks = in_process::connect(3, options);
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
        work(workers.into_iter().map(|it| it.join().unwrap()).collect());
        server.join().unwrap()
    })
}

/// How a server ends if worker 0 begins step 4, pushes for these steps, and leaves with worker 1.
fn served(exchange: &str, pushes: &[u64]) -> Result<ServerReport> {
    with_server(
        exchange,
        &Participation::equal(2),
        in_process::Options::default(),
        |mut workers| {
            let begin = encode_begin(4, 0.5);
            workers[0].send(2, Operation::whole(Phase::Begin, 4), &begin).unwrap();
            for &step in pushes {
                let push = Operation::tensor(Phase::Push, 0, "w", step);
                workers[0].send(2, push, &1f32.to_le_bytes()).unwrap();
            }
        },
    )
}

#[test]
fn a_step_that_an_absent_worker_has_begun_needs_the_pushes_of_the_others() {
    // Worker 0 says that it is at step 4, and leaves before any push.
    let lost = served("server", &[]).unwrap_err();
    assert!(matches!(lost, ExchangeError::PeerLost { .. }), "{lost}");
}

#[test]
fn a_step_does_not_begin_before_the_pushes_of_the_last_are_complete() {
    let equal = Participation::equal(2);
    let ended = with_server("server", &equal, in_process::Options::default(), |mut workers| {
        for step in [4, 5] {
            let begin = encode_begin(step, 0.5);
            workers[0].send(2, Operation::whole(Phase::Begin, step), &begin).unwrap();
            let push = Operation::tensor(Phase::Push, 0, "w", step);
            // The server may have left after the second begin.
            let _ = workers[0].send(2, push, &1f32.to_le_bytes());
        }
    });
    let refused = ended.unwrap_err();
    assert!(matches!(refused, ExchangeError::Protocol { peer: 0, .. }), "{refused}");
}

#[test]
fn late_pushes_are_counted_with_backup_workers_and_refused_without() {
    let report = served("server:backup=1", &[3, 4, 4]).unwrap();
    assert_eq!((report.updates, report.late), (1, 2));
    let refused = served("server", &[3]).unwrap_err();
    assert!(matches!(refused, ExchangeError::Protocol { peer: 0, .. }), "{refused}");
}

#[test]
fn a_worker_that_takes_no_part_learns_the_name_of_one_that_hangs() {
    let participation = Participation::equal(2).with_participants(1, 0.0, 3);
    let step = (0..).find(|&step| participation.takes_part(1, step)).unwrap();
    let deadline = Duration::from_secs(1);
    let options = in_process::Options { deadline, link: None };
    let ended = with_server("server", &participation, options, |mut workers| {
        let begin = encode_begin(step, 0.5);
        workers[0].send(2, Operation::whole(Phase::Begin, step), &begin).unwrap();
        // It waits as a worker waits for its server, and worker 1 never pushes.
        let pull = Operation::tensor(Phase::Pull, 0, "w", step);
        let waited = workers[0].recv_within(2, pull, deadline * 5 / 4, &mut Vec::new());
        assert_eq!(waited.unwrap_err().culprit(0), 1);
    });
    let error = ended.unwrap_err();
    assert!(matches!(error, ExchangeError::Deadline { peer: 1, .. }), "{error}");
    assert!(error.to_string().contains("push of 'w'"), "{error}");
}
