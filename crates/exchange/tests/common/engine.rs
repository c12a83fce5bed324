//! What runs the ranks of a test: threads here, the processes of an MPI job elsewhere.

use gradwire::Spec;
use gradwire_exchange::DistributedOptimizer;

use super::{Finished, Run, specs};

/// Runs the workers of a run, all or some of them in this process.
pub trait Engine {
    /// The numbers of workers to try a strategy with that has so many servers.
    fn workers(&self, servers: usize) -> Vec<usize>;

    /// The compressors to check.
    fn specs(&self) -> Vec<Spec> {
        specs()
    }

    /// Runs `work` as every worker that this process holds, and the servers that it holds: what
    /// those workers are left with, in rank order.
    fn run<R: Send>(
        &mut self,
        run: &Run,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> Vec<R>;

    /// Runs steps `0..steps`.
    fn steps(&mut self, run: &Run, steps: u64) -> Vec<Finished> {
        self.run(run, |rank, exchange| run.play(rank, exchange, steps))
    }
}

/// Threads of this process.
pub struct Threads;

impl Engine for Threads {
    fn workers(&self, _: usize) -> Vec<usize> {
        vec![1, 2, 3, 4, 7]
    }

    fn run<R: Send>(
        &mut self,
        run: &Run,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> Vec<R> {
        run.each(work)
    }
}
