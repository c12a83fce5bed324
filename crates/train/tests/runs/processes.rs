//! Ranks that share nothing but a transport do what the threads of one process do.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Barrier, Mutex};
use std::time::Instant;

use gradwire::State;
use gradwire_exchange::{Endpoint, ExchangeError, Header, Operation, Transport, in_process};
use gradwire_train::{WorkersChanged, run_elastic_rank};

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
pub(super) fn connected<R: Send>(
    size: usize,
    run: impl Fn(Box<dyn Transport>) -> R + Sync,
) -> Vec<R> {
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

/// Workers that do not wait for each other meet only where all evaluate.
#[test]
fn asynchronous_and_backup_workers_stop_where_they_evaluate() {
    for exchange in ["server:mode=async", "server:backup=1"] {
        let config = config("3lc", exchange).with(|c| c.steps = 40);
        let asked = |rank: usize| -> Box<dyn Observer> {
            if rank == 1 { Box::new(StopAfter::new(0)) } else { Box::new(()) }
        };
        let all = ranks(&config, &RunOptions::default(), &asked);
        for result in &all[..3] {
            assert!(matches!(result, Err(TrainError::Stopped { step: 4, .. })), "{result:?}");
        }
    }
}

#[test]
fn the_gradient_of_a_slow_asynchronous_worker_is_in_the_model_that_is_evaluated() {
    let config = config("none", "server:mode=async").with(|c| {
        c.model = "mlp:8".parse().unwrap();
        c.optimizer = "sgd".parse().unwrap();
        c.learning_rate = "0.5".parse().unwrap();
        c.straggler = Some("1=0.1".parse().unwrap());
        (c.workers, c.steps) = (2, 1);
    });
    let loss = |record: &RunRecord| record.evaluations[0].loss;
    let (here, apart) = (loss(&train(&config)), loss(&together(&config)));
    // Sums of two gradients, in either order.
    assert!((here - apart).abs() < 1e-5, "{here} {apart}");
    let alone = loss(&train(&config.with(|c| (c.workers, c.straggler) = (1, None))));
    assert!((here - alone).abs() > 1e-3, "{here} {alone}");
}

#[test]
fn ranks_of_different_configurations_are_told_what_differs() {
    let base = config("3lc", "all-gather");
    differ(&base, &base.clone().with(|c| c.batch = 5), ["batch 5", "batch 4"]);
    differ(&base, &base.clone().with(|c| c.overlap = true), ["overlap true", "overlap false"]);
    let transport = in_process::connect(2, in_process::Options::default()).remove(0);
    let error = run_rank(&base, &(), &RunOptions::default(), Box::new(transport)).unwrap_err();
    assert!(error.to_string().contains("3 ranks, but 2 were started"), "{error}");
}

#[test]
fn ranks_that_would_save_at_different_steps_are_told() {
    let (base, (_folder, path)) = (config("3lc", "all-gather"), checkpoint());
    let errors = connected(3, |transport| {
        let options = saving(&path, if transport.rank() == 2 { 3 } else { 5 }, 1);
        run_rank(&base, &(), &options, transport).unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("rank 2 was started with save every 3"), "{error}");
    }
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

/// Connects the ranks of a job, and once more those that are left after one is lost.
struct Meeting {
    first: Mutex<Vec<Option<Box<dyn Transport>>>>,
    again: Mutex<Vec<usize>>,
    left: Mutex<BTreeMap<usize, Box<dyn Transport>>>,
    all_came: Barrier,
}

impl Meeting {
    fn new(size: usize) -> Self {
        let transports = in_process::connect(size, in_process::Options::default());
        let first = transports.into_iter().map(|one| Some(Box::new(one) as _)).collect();
        let (again, left) = (Mutex::default(), Mutex::default());
        Self { first: Mutex::new(first), again, left, all_came: Barrier::new(size) }
    }

    fn connect(&self, rank: usize) -> Box<dyn Transport> {
        if let Some(transport) = self.first.lock().unwrap()[rank].take() {
            return transport;
        }
        self.again.lock().unwrap().push(rank);
        self.meet();
        self.left.lock().unwrap().remove(&rank).unwrap()
    }

    /// Waits until all have come who are left, and the one that is lost has ended.
    fn meet(&self) {
        if self.all_came.wait().is_leader() {
            let mut ranks = std::mem::take(&mut *self.again.lock().unwrap());
            ranks.sort_unstable();
            let transports = in_process::connect(ranks.len(), in_process::Options::default());
            let transports = transports.into_iter().map(|one| Box::new(one) as _);
            *self.left.lock().unwrap() = ranks.into_iter().zip(transports).collect();
        }
        self.all_came.wait();
    }
}

/// The end of a rank that is lost, unless it has come to the meeting.
struct End<'a>(&'a Meeting, &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        if !self.1.load(Ordering::SeqCst) {
            self.0.meet();
        }
    }
}

/// What happens to a rank when it sends its message of step 6.
#[derive(Clone, Copy, PartialEq)]
enum Harm {
    Dies,
    Fails,
    /// It waits, and takes this other rank for lost.
    Suspects(usize),
}

/// A transport that makes its rank die, fail or suspect another at step 6.
struct Mortal {
    inner: Box<dyn Transport>,
    harm: Harm,
}

impl Transport for Mortal {
    fn endpoint(&self) -> &Endpoint {
        self.inner.endpoint()
    }

    fn send(
        &mut self,
        to: usize,
        operation: Operation<'_>,
        payload: &[u8],
    ) -> Result<(), ExchangeError> {
        if operation.step >= 6 {
            match self.harm {
                Harm::Dies => panic!("this rank is lost"),
                Harm::Fails => return Err(ExchangeError::Config("a cable is cut".to_owned())),
                Harm::Suspects(_) => {}
            }
        }
        self.inner.send(to, operation, payload)
    }

    fn recv_any(
        &mut self,
        from: &[usize],
        during: Operation<'_>,
        until: Instant,
        into: &mut Vec<u8>,
    ) -> Result<(usize, Header), ExchangeError> {
        let received = self.inner.recv_any(from, during, until, into);
        match (received, self.harm) {
            (Err(ExchangeError::PeerLost { operation, .. }), Harm::Suspects(peer)) => {
                Err(ExchangeError::PeerLost { peer, operation })
            }
            (received, _) => received,
        }
    }

    fn abort(&mut self, culprit: usize) {
        self.inner.abort(culprit);
    }
}

/// The results of all ranks where some die, fail or suspect another in the exchange of step 6;
/// `lost` dies or fails.
fn with_harm(
    lost: usize,
    harms: &[(usize, Harm)],
    config: &RunConfig,
    options: &RunOptions,
) -> Vec<std::thread::Result<Result<Option<RunRecord>, TrainError>>> {
    let size = config.exchange.ranks(config.workers);
    let (meeting, led) = (Meeting::new(size), Mutex::default());
    let run = |rank: usize| {
        let (mut first, came) = (true, AtomicBool::new(false));
        let _end = (rank == lost).then(|| End(&meeting, &came));
        let connect = || {
            let again = !std::mem::replace(&mut first, false);
            came.store(again, Ordering::SeqCst);
            let inner = meeting.connect(rank);
            let harm = harms.iter().find(|(of, _)| *of == rank && !again);
            Ok(match harm {
                Some(&(_, harm)) => Box::new(Mortal { inner, harm }) as Box<dyn Transport>,
                None => inner,
            })
        };
        let result = run_elastic_rank(config, &Leads(rank, &led), options, connect);
        // If the first worker is lost, the next one keeps the record, and says so.
        let dies = |(of, harm): &(usize, Harm)| *of == 0 && matches!(harm, Harm::Dies);
        let leads = rank == 1 && harms.iter().any(dies);
        assert_eq!(led.lock().unwrap().contains(&rank), leads, "rank {rank}");
        result
    };
    std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..size).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join()).collect()
    })
}

/// Notes that its rank has become the first.
struct Leads<'a>(usize, &'a Mutex<Vec<usize>>);

impl Observer for Leads<'_> {
    fn leads(&self) {
        self.1.lock().unwrap().push(self.0);
    }
}

/// The results of the ranks that are left when one of them dies in the exchange of step 6.
fn without(
    lost: usize,
    config: &RunConfig,
    options: &RunOptions,
) -> Vec<Result<Option<RunRecord>, TrainError>> {
    let mut results = with_harm(lost, &[(lost, Harm::Dies)], config, options);
    // The panic of a server is that of its process.
    let dead = results.remove(lost);
    assert!(dead.is_err() || matches!(dead, Ok(Err(TrainError::Panicked { .. }))), "{dead:?}");
    results.into_iter().map(Result::unwrap).collect()
}

#[test]
fn the_ranks_that_are_left_go_on_with_the_bits_of_a_resumed_run() {
    for (exchange, lost) in [
        ("all-gather", 1),
        ("scatter-reduce", 2),
        ("all-reduce", 0),
        ("server", 1),
        ("server", 0),
        // A server: the last worker takes its place.
        ("server:servers=2", 4),
    ] {
        let compressor = if exchange == "all-reduce" { "powersgd" } else { "topk:ratio=0.1" };
        let config = config(compressor, exchange).with(|c| {
            c.model = "mlp:8".parse().unwrap();
            (c.check_every, c.min_workers) = (1, Some(2));
        });
        let (_folder, path) = checkpoint();
        // If the first worker is lost, the state of the others is in the file.
        let options = if lost == 0 { saving(&path, 1, 1) } else { RunOptions::default() };
        let record = first(without(lost, &config, &options));
        let [change] = record.changes[..] else { panic!("{exchange}: {:?}", record.changes) };
        assert_eq!(change, WorkersChanged { step: 6, workers: 2, lost: Some(lost) }, "{exchange}");
        assert_eq!(record.trace.len(), 10, "{exchange}");

        let fixed = config.with(|c| c.min_workers = None);
        assert_eq!(stop(&fixed, 5, &path), 6);
        let resumed = resume(&fixed.with(|c| c.workers = 2), &path).unwrap();
        assert_eq!(record.digest, resumed.digest, "{exchange} without rank {lost}");
    }
}

/// A rank waits for another, which waits for the one that is lost.
#[test]
fn the_rank_that_is_lost_is_named_and_not_the_one_that_waited_for_it() {
    let config = config("3lc", "all-gather").with(|c| c.min_workers = Some(1));
    let harms = [(2, Harm::Dies), (0, Harm::Suspects(1))];
    let mut results = with_harm(2, &harms, &config, &RunOptions::default());
    let record = results.remove(0).unwrap().unwrap().unwrap();
    assert_eq!(record.changes, [WorkersChanged { step: 6, workers: 2, lost: Some(2) }]);
}

#[test]
fn an_error_that_is_no_loss_ends_the_run_on_all_ranks() {
    for exchange in ["all-gather", "server"] {
        let config = config("3lc", exchange).with(|c| c.min_workers = Some(1));
        let results = with_harm(1, &[(1, Harm::Fails)], &config, &RunOptions::default());
        for (rank, result) in results.into_iter().enumerate() {
            let error = result.unwrap().unwrap_err().to_string();
            assert!(error.ends_with("rank 1: a cable is cut"), "rank {rank}: {error}");
            assert_eq!(error.contains("rank 1 has ended the run"), rank != 1, "{error}");
        }
    }
}

#[test]
fn a_file_of_another_run_is_not_taken_for_one_of_this() {
    let config = config("3lc", "all-gather").with(|c| c.min_workers = Some(1));
    let (_folder, path) = checkpoint();
    gradwire::State::new().write_atomic(&path).unwrap();
    let meeting = Meeting::new(3);
    let run = |rank| {
        let connect = || Ok(meeting.connect(rank));
        run_elastic_rank(&config, &(), &saving(&path, 1, 1), connect).unwrap_err().to_string()
    };
    let error = std::thread::scope(|scope| {
        let run = &run;
        let threads: Vec<_> = (0..3).map(|rank| scope.spawn(move || run(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
    });
    assert!(error.iter().all(|error| error.contains("exists already")), "{error:?}");
}

#[test]
fn the_run_ends_where_the_state_is_lost_or_too_few_are_left() {
    for (least, lost) in [(2, 0), (3, 1)] {
        let config = config("3lc", "all-gather").with(|c| c.min_workers = Some(least));
        for result in without(lost, &config, &RunOptions::default()) {
            let error = result.unwrap_err().to_string();
            assert!(error.contains(&format!("rank {lost} is gone")), "{error}");
        }
    }
}
