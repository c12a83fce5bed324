//! Runs that lose workers, and runs that workers join.
//!
//! `GRADWIRE_KILLS=100` sets the number of random changes; without it, a few.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use gradwire::Rng;

use super::stops::all;
use super::wrapped::Before;
use super::*;
use crate::rotation::earlier;

/// All configurations but those that cannot go on with another number of workers.
fn elastic() -> impl Iterator<Item = (&'static str, RunConfig)> {
    let possible = all().into_iter().filter(|(name, _)| *name != "hierarchical");
    possible.map(|(name, config)| {
        (name, config.with(|c| (c.min_workers, c.check_every) = (Some(1), 1)))
    })
}

/// The digest of a run that was saved after `step` steps and resumed with another number of
/// workers.
fn resumed_with(workers: usize, config: &RunConfig, step: u64) -> String {
    let (_folder, path) = checkpoint();
    let fixed = config.clone().with(|c| c.min_workers = None);
    run(&fixed, &(), &saving(&path, 1, 100)).unwrap();
    let of_step = |at| earlier(&path, at);
    let saved = (0..100)
        .map(of_step)
        .find(|path| gradwire::State::read(path).unwrap().number("step").unwrap() == step);
    let fewer = fixed.with(|c| c.workers = workers);
    resume(&fewer, &saved.unwrap()).unwrap().digest
}

/// Worker 1 panics once, before the first exchange from step 10 on.
fn loses_worker_1(config: &RunConfig) -> Result<RunRecord, TrainError> {
    let lives = Arc::new(AtomicBool::new(true));
    run_wrapped(config, &(), &RunOptions::default(), &|rank, inner| {
        let lives = Arc::clone(&lives);
        let before: Before = Box::new(move |step| {
            let lost = rank == 1 && step >= 10 && lives.swap(false, Ordering::SeqCst);
            assert!(!lost, "this worker is lost");
            Ok(())
        });
        Box::new(Wrapped { before, ..Wrapped::new(inner) })
    })
}

#[test]
fn the_others_go_on_with_the_bits_of_a_run_resumed_with_fewer_workers() {
    for (name, config) in elastic() {
        let record = loses_worker_1(&config).unwrap_or_else(|error| panic!("{name}: {error}"));
        let [change] = record.changes[..] else { panic!("{name}: {:?}", record.changes) };
        assert_eq!((change.workers, change.lost), (2, Some(1)), "{name}");
        assert!((8..=10).contains(&change.step), "{name}: {change:?}");
        assert_eq!(record.trace.len() as u64, config.steps, "{name}");
        assert_eq!(record.digest, resumed_with(2, &config, change.step), "{name}");
    }
}

#[test]
fn too_few_workers_end_the_run_with_the_error_of_the_lost_one() {
    let config = config("3lc", "all-gather").with(|c| {
        (c.workers, c.steps, c.min_workers) = (3, 24, Some(3));
    });
    let error = loses_worker_1(&config).unwrap_err();
    assert!(matches!(error, TrainError::Panicked { rank: 1, .. }), "{error}");
}

/// Asks once for a number of workers, when the seventh round begins.
struct Asks {
    workers: usize,
    rounds: AtomicUsize,
}

impl Observer for Asks {
    fn workers(&self) -> Option<usize> {
        (self.rounds.fetch_add(1, Ordering::SeqCst) == 6).then_some(self.workers)
    }
}

#[test]
fn workers_join_and_leave_with_the_bits_of_a_resumed_run() {
    for (name, config) in elastic() {
        for workers in [2, 5] {
            let asks = Asks { workers, rounds: AtomicUsize::new(0) };
            let record = run(&config, &asks, &RunOptions::default()).unwrap();
            let [change] = record.changes[..] else { panic!("{name}: {:?}", record.changes) };
            assert_eq!((change.workers, change.lost), (workers, None), "{name}");
            assert_eq!(record.workers, workers, "{name}");
            assert_eq!(record.digest, resumed_with(workers, &config, change.step), "{name}");
        }
    }
}

/// Asks in every round for a number of workers, and hears the warnings.
struct Insists {
    workers: usize,
    warnings: Mutex<Vec<String>>,
}

impl Observer for Insists {
    fn workers(&self) -> Option<usize> {
        Some(self.workers)
    }

    fn warned(&self, warning: &str) {
        self.warnings.lock().unwrap().push(warning.to_owned());
    }
}

/// There are shards for four workers.
#[test]
fn numbers_of_workers_that_cannot_train_are_refused_or_ignored() {
    let config = config("3lc", "all-gather").with(|c| {
        c.split = "shards:sizes=4+2+1+1".parse().unwrap();
        (c.workers, c.min_workers) = (4, Some(2));
    });
    refused(&config, &["min_workers=2", "with 2 workers, but cannot", "sizes"]);
    let config = config.with(|c| c.min_workers = Some(4));
    let asks = Insists { workers: 5, warnings: Mutex::default() };
    let record = run(&config, &asks, &RunOptions::default()).unwrap();
    assert_eq!((record.workers, record.changes.len()), (4, 0));
    let warnings = asks.warnings.into_inner().unwrap();
    let refused = warnings.iter().filter(|it| it.contains("cannot continue with 5 workers"));
    assert_eq!(refused.count(), 1, "{warnings:?}");
}

/// Workers that are lost and workers that join, one after the other.
struct Churn {
    /// The step, and the rank that is lost or the number of workers to go on with.
    events: Mutex<Vec<(u64, Change)>>,
}

#[derive(Clone, Copy)]
enum Change {
    Lost(usize),
    Workers(usize),
}

impl Churn {
    /// At random moments of a run of `steps` steps with three workers, one is lost, and later
    /// another joins.
    fn new(events: usize, steps: u64, seed: u64) -> Self {
        let mut draws = vec![0; 2 * events];
        Rng::new(seed, 0, 0, 0, 7).fill(&mut draws);
        let (moments, ranks) = draws.split_at_mut(events);
        moments.iter_mut().for_each(|moment| *moment %= steps as u32);
        moments.sort_unstable();
        let change =
            |(at, rank)| if at % 2 == 0 { Change::Lost(rank % 2) } else { Change::Workers(3) };
        let changes = ranks.iter().map(|&rank| rank as usize).enumerate().map(change);
        Self { events: Mutex::new(moments.iter().map(|&at| u64::from(at)).zip(changes).collect()) }
    }

    /// Takes an event that is due.
    fn take(&self, step: u64, is_due: impl Fn(Change) -> bool) -> Option<Change> {
        let mut events = self.events.lock().unwrap();
        let next =
            events.first().filter(|(due, change)| *due <= step && is_due(*change)).copied()?;
        events.remove(0);
        Some(next.1)
    }
}

/// Asks for the numbers of workers that are due.
struct Asking {
    churn: Arc<Churn>,
    step: AtomicU64,
    asked: Mutex<Option<usize>>,
}

impl Observer for Asking {
    fn step(&self, record: &StepRecord, _: u64) {
        self.step.store(record.step, Ordering::SeqCst);
    }

    fn workers(&self) -> Option<usize> {
        let step = self.step.load(Ordering::SeqCst);
        let mut asked = self.asked.lock().unwrap();
        let due = self.churn.take(step, |change| matches!(change, Change::Workers(_)));
        if let Some(Change::Workers(workers)) = due {
            *asked = Some(workers);
        }
        *asked
    }
}

/// A run with these events.
fn churned(config: &RunConfig, churn: Churn) -> RunRecord {
    let churn = Arc::new(churn);
    let (step, asked) = (AtomicU64::new(0), Mutex::new(None));
    let observer = Asking { churn: Arc::clone(&churn), step, asked };
    run_wrapped(config, &observer, &RunOptions::default(), &|rank, inner| {
        let churn = Arc::clone(&churn);
        let before: Before = Box::new(move |step| {
            let lost = |change| matches!(change, Change::Lost(lost) if lost == rank);
            assert!(churn.take(step, lost).is_none(), "this worker is lost");
            Ok(())
        });
        Box::new(Wrapped { before, ..Wrapped::new(inner) })
    })
    .unwrap()
}

#[test]
fn the_loss_is_that_of_an_undisturbed_run_whoever_comes_and_goes() {
    let wanted = std::env::var("GRADWIRE_KILLS").map_or(30, |text| text.parse().unwrap());
    let of = |exchange: &str, seed| {
        config("topk:ratio=0.1,every=2", exchange).with(|c| {
            (c.workers, c.steps, c.seed, c.check_every) = (3, 100, seed, 1);
            (c.min_workers, c.send) = (Some(1), Payload::Updates);
        })
    };
    let loss = |record: &RunRecord| record.evaluations.last().unwrap().loss;
    let (mut changes, mut losses, mut undisturbed) = (0, Vec::new(), Vec::new());
    for seed in 0.. {
        if changes >= wanted {
            break;
        }
        for exchange in ["all-gather", "server", "scatter-reduce"] {
            let config = of(exchange, seed);
            let record = churned(&config, Churn::new(8, config.steps, seed));
            assert_eq!(record.trace.len() as u64, config.steps);
            changes += record.changes.len();
            losses.push(loss(&record));
        }
        undisturbed.push(loss(&train(&of("all-gather", seed))));
    }
    let mean = |all: &[f64]| all.iter().sum::<f64>() / all.len() as f64;
    let spread = |all: &[f64]| {
        let square = |loss: &f64| (loss - mean(all)).powi(2);
        (all.iter().map(square).sum::<f64>() / all.len() as f64).sqrt()
    };
    let [disturbed, whole] = [&losses, &undisturbed].map(|all| (mean(all), spread(all)));
    println!("{changes} changes; loss {disturbed:.4?}, undisturbed {whole:.4?}");
    let difference = (disturbed.0 - whole.0).abs();
    assert!(difference < 2.0 * (disturbed.1 + whole.1), "{losses:?} {undisturbed:?}");
}
