//! Throughput of runs with measured time on the wire, and its bound if compression took no time.
//!
//! Workers share the cores of one machine, so the wall-clock time of a step is longer than with one
//! machine for each worker. The time of a step is therefore the sum of its parts: the recorded CPU
//! times of gradient, codec and update, and the measured time on the wire. To measure the time on
//! the wire, ranks on a throttled transport send each other the same number of bytes as in the run,
//! without compression. Without the time of the codec, the sum is the bound that the survey of
//! compressed communication measures by skipping compression (Xu et al. 2020, section 5.6).

use std::thread;
use std::time::{Duration, Instant};

use gradwire_exchange::{ExchangeError, Link, Operation, Phase, Transport, in_process};
use gradwire_train::RunRecord;

use crate::TestbedError;
use crate::step_time::{Common, mean_step, without_first};

/// The number of timed exchanges, after one that is not timed.
const REPETITIONS: u64 = 3;

/// The caption of tables and charts.
pub const NOTE: &str = "The time of a step is the CPU time of gradient, codec and update in the \
    runs, plus the time for sending as many bytes over the first link, measured on a throttled \
    transport without compression. The bound leaves out the time of the codec.";

/// A run's step in parts, in seconds.
#[derive(Debug, Clone, PartialEq)]
pub struct Scaled {
    /// The spec.
    pub compressor: String,
    /// Number of workers.
    pub workers: usize,
    /// Examples of all workers per step.
    pub examples: usize,
    /// Forward and backward passes, and the optimizer.
    pub compute: f64,
    /// Compression and decompression.
    pub codec: f64,
    /// On the wire, measured.
    pub wire: f64,
}

impl Scaled {
    /// Examples a second.
    pub fn throughput(&self) -> f64 {
        self.examples as f64 / (self.compute + self.codec + self.wire)
    }

    /// The same if compression took no time.
    pub fn bound(&self) -> f64 {
        self.examples as f64 / (self.compute + self.wire)
    }
}

/// The step times of runs, with their bytes on `link`.
///
/// # Errors
/// If ranks do not all send the same number of bytes in a run's exchange, or the transport fails.
pub fn scaled(runs: &[RunRecord], link: Link) -> Result<Vec<Scaled>, TestbedError> {
    // Buffers grow in the first step.
    let warm = |run: &RunRecord| without_first(run).unwrap_or_else(|| run.clone());
    let warm: Vec<RunRecord> = runs.iter().map(warm).collect();
    let common = Common::of(&warm);
    let both = runs.iter().zip(&warm);
    both.map(|(run, warm)| of_run(run, warm, common, link)).collect()
}

/// The step time of `run`, with the times of `warm`.
fn of_run(
    run: &RunRecord,
    warm: &RunRecord,
    common: Common,
    link: Link,
) -> Result<Scaled, TestbedError> {
    if !run.exchange.facts().sends_own_messages || run.exchange.servers() > 0 {
        let message =
            "scaling can only be measured for exchanges in which all ranks send equally many \
             bytes; use all-gather or all-reduce"
                .to_owned();
        return Err(TestbedError::Config(message));
    }
    let phases = run.exchange.phases(run.workers) as usize;
    let bytes = run.bytes_up / run.steps.max(1) as f64;
    Ok(Scaled {
        compressor: run.compressor.clone(),
        workers: run.workers,
        examples: run.workers * run.batch,
        compute: common.compute_of(warm) + mean_step(warm, |step| step.update),
        codec: mean_step(warm, |step| step.compress + step.decompress),
        wire: wire_seconds(run.workers, phases, bytes, link)?,
    })
}

/// The seconds for each of `workers` ranks to send `bytes` bytes in total to the others: one
/// message to every other rank in each of `phases` phases.
fn wire_seconds(
    workers: usize,
    phases: usize,
    bytes: f64,
    link: Link,
) -> Result<f64, TestbedError> {
    let messages = (phases * (workers - 1)).max(1) as f64;
    let payload = vec![0; (bytes / messages).round() as usize];
    // Longer than any of these exchanges takes.
    let deadline = Duration::from_secs(600);
    let options = in_process::Options { deadline, link: Some(link) };
    let ranks = in_process::connect(workers, options);
    let seconds: Result<Vec<f64>, ExchangeError> = thread::scope(|scope| {
        let payload = &payload;
        let threads: Vec<_> = ranks
            .into_iter()
            .map(|mut rank| scope.spawn(move || exchange(&mut rank, phases, payload)))
            .collect();
        let join =
            |thread: thread::ScopedJoinHandle<'_, _>| thread.join().expect("ranks do not panic");
        threads.into_iter().map(join).collect()
    });
    let seconds = seconds
        .map_err(|error| TestbedError::Config(format!("the link was not measured: {error}")))?;
    Ok(seconds.into_iter().fold(0.0, f64::max))
}

/// One rank's part: the mean seconds of an exchange.
fn exchange(rank: &mut dyn Transport, phases: usize, payload: &[u8]) -> Result<f64, ExchangeError> {
    let mut received = Vec::new();
    let (own, size) = (rank.rank(), rank.size());
    let mut start = Instant::now();
    for step in 0..=REPETITIONS {
        for _ in 0..phases {
            let operation = Operation::whole(Phase::Gather, step);
            rank.send_to_others(operation, payload)?;
            for from in (0..size).filter(|&from| from != own) {
                rank.recv(from, operation, &mut received)?;
            }
        }
        if step == 0 {
            rank.barrier()?;
            start = Instant::now();
        }
    }
    Ok(start.elapsed().as_secs_f64() / REPETITIONS as f64)
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Exchange;

    use super::*;
    use crate::synthetic;

    #[test]
    fn a_step_is_put_together_from_its_parts() {
        let one = Scaled {
            compressor: "3lc".to_owned(),
            workers: 4,
            examples: 128,
            compute: 0.5,
            codec: 0.25,
            wire: 0.25,
        };
        assert_eq!(one.throughput(), 128.0);
        assert_eq!(one.bound(), 128.0 / 0.75);
    }

    #[test]
    fn the_wire_takes_at_least_what_its_bytes_take() {
        let mut run = synthetic::run("3lc", 1);
        run.exchange = Exchange::AllGather;
        // In the first step memory is new.
        run.trace[0].compress = 9.0;
        // 300 000 bytes a step at 100 Mbit/s take 24 ms.
        run.bytes_up = 3e6;
        let found = &scaled(&[run.clone()], Link::mbit(100.0)).unwrap()[0];
        assert!((0.0235..1.0).contains(&found.wire), "{}", found.wire);
        // 10 ms of compute and half a millisecond of update; 1 and 2 of codec.
        assert!((found.compute - 0.0105).abs() < 1e-9 && (found.codec - 0.003).abs() < 1e-9);
        assert_eq!(found.examples, 128);
        run.exchange = Exchange::default();
        assert!(scaled(&[run], Link::mbit(100.0)).is_err());
    }
}
