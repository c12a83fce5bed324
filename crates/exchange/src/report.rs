//! The cost of a step.

use std::time::{Duration, Instant};

use cpu_time::ThreadTime;

use crate::Traffic;

/// The cost of one step for this rank.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StepReport {
    /// Processor time spent encoding.
    pub compress: Duration,
    /// Processor time spent decoding and adding.
    pub decompress: Duration,
    /// Time spent sending, and waiting for others.
    pub wire: Duration,
    /// Processor time spent in the optimizer.
    pub update: Duration,
    /// Time that this rank's reducer thread spent encoding, sending, waiting for others and
    /// decoding; 0 without such a thread.
    pub background: Duration,
    /// The part of `background` that the caller waited for in
    /// [`step`](crate::DistributedOptimizer::step); the rest was hidden behind the caller's own
    /// work.
    pub waited: Duration,
    /// Bytes this rank sent and received, as counted by the transport.
    pub traffic: Traffic,
    /// The number of later steps that are already in the parameters: other ranks did them without
    /// this late rank, which skips them. Always 0 without backup workers.
    pub skipped: u64,
}

/// Runs `work` and adds the CPU time it took to `total`: its duration on an otherwise idle core.
pub(crate) fn worked<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = ThreadTime::now();
    let result = work();
    *total += start.elapsed();
    result
}

/// Runs `work`, which uses this number of threads. Adds its CPU time to `total`, or the elapsed
/// time if there are several threads.
pub(crate) fn spent_by<R>(threads: usize, total: &mut Duration, work: impl FnOnce() -> R) -> R {
    if threads > 1 { timed(total, work) } else { worked(total, work) }
}

/// Runs `work`, which waits for others, and adds the elapsed time to `total`.
pub(crate) fn timed<R>(total: &mut Duration, work: impl FnOnce() -> R) -> R {
    let start = Instant::now();
    let result = work();
    *total += start.elapsed();
    result
}
