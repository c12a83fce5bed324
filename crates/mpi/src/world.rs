//! The membership of a process in the job, from the start of MPI to its end.

use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use gradwire_exchange::{Endpoint, ExchangeError, Result};
use mpi::Threading;
use mpi::environment::Universe;
use mpi::topology::SimpleCommunicator;
use mpi::traits::Communicator;

use crate::call;
use crate::links::Links;
use crate::regroup::regroup;
use crate::transport::{Home, Mpi};
use crate::watchdog::Watch;

/// The job of this process: all processes that `mpirun` started, or this process alone.
pub struct World {
    /// `Some` until MPI has ended or been given up.
    universe: Option<Universe>,
    home: Home,
    deadline: Duration,
    rank: usize,
    size: usize,
    watch: Arc<Watch>,
}

impl World {
    /// Starts MPI, once in a process. Ranks wait for each other until the `deadline`, also in this
    /// function. If a process is stuck inside MPI a second after its deadline, a thread ends it
    /// with [`STUCK_STATUS`](crate::STUCK_STATUS) and a line on standard error.
    ///
    /// # Errors
    /// `Config` if MPI was started before, or cannot be called from any thread; `System` if no
    /// thread can be started.
    pub fn init(deadline: Duration) -> Result<Self> {
        let deadline = deadline.min(Endpoint::LONGEST_DEADLINE);
        let watch = Watch::start().map_err(|error| {
            ExchangeError::System(format!("the thread that watches MPI cannot start: {error}"))
        })?;
        let _busy = watch.busy("MPI_Init", deadline);
        let Some((universe, threading)) = mpi::initialize_with_threading(Threading::Serialized)
        else {
            return refuse("MPI was started before in this process; start it only once");
        };
        if threading < Threading::Serialized {
            return refuse(format!(
                "this MPI allows {threading:?} calls, but gradwire must call MPI from any thread; \
                 use an MPI with MPI_THREAD_SERIALIZED"
            ));
        }
        if let Err(fault) = call::return_errors() {
            return refuse(format!("MPI does not return errors: {fault}"));
        }
        let world = universe.world();
        let (rank, size) = (world.rank() as usize, world.size() as usize);
        watch.set_rank(rank);
        let links = Links::new((0..size).collect(), rank, 0, Arc::clone(&watch));
        let home = Arc::new(Mutex::new(Some(links)));
        Ok(Self { universe: Some(universe), home, deadline, rank, size, watch })
    }

    /// This process's rank, from 0.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// The number of processes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// A transport for one run. For another run, all ranks drop it and connect again. Dropping it
    /// waits until all messages have been sent, at most for the deadline, and announces that this
    /// rank has left.
    ///
    /// # Errors
    /// `Config` while there is another transport.
    pub fn connect(&mut self) -> Result<Mpi> {
        let links = self.home.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(links) = links else {
            return refuse(ONE_TRANSPORT);
        };
        let links = if links.has_ended() { links.next_session() } else { links };
        Ok(Mpi::new(links, Arc::clone(&self.home), self.deadline))
    }

    /// A transport between the ranks that are left after the loss of one, numbered anew in the same
    /// order. All of them call it, after they have dropped their transports. It takes no longer
    /// than twice the deadline. The launcher must let them go on (Open MPI: `--enable-recovery`,
    /// MPICH: `-disable-auto-cleanup`).
    ///
    /// # Errors
    /// `Config` if the others count this rank as lost, if half of the ranks or more are lost
    /// (except one of two), or while there is another transport.
    pub fn reconnect(&mut self) -> Result<Mpi> {
        let mut home = self.home.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(links) = &mut *home else { return refuse(ONE_TRANSPORT) };
        *links = regroup(links, self.deadline)?;
        drop(home);
        self.connect()
    }

    /// Waits until every rank has left the last run, and ends MPI. Ranks that have begun another
    /// run learn that this rank is gone. Drop the transport first. A rank that never had a
    /// transport leaves the first run now. After a run that was stopped, it waits for one second at
    /// most.
    ///
    /// # Errors
    /// `Deadline`, or `StillThere` after a run that was stopped, with the first rank that has not
    /// left by then. MPI is then not ended, because it would wait for this rank; let the process
    /// exit with a status other than 0.
    pub fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        let Some(universe) = self.universe.take() else { return Ok(()) };
        // Ending MPI waits for all ranks, even dead ones: so it is ended below, or never.
        let universe = ManuallyDrop::new(universe);
        let links = self.home.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(mut links) = links else {
            return refuse("the transport is still in use; drop it before MPI ends");
        };
        let deadline = self.deadline;
        let busy = links.busy("waiting for all to leave", links.wait_at_end(deadline));
        if !links.has_ended() {
            links.leave();
        }
        links.leave_next();
        let none_there = |links: &Links| links.still_there().is_none();
        let ended = links.settle(Instant::now() + deadline, Links::is_over, none_there);
        drop(busy);
        // If ranks are lost, ending MPI would wait for them.
        if ended && links.size < self.size {
            return Ok(());
        }
        if ended {
            let _busy = self.watch.busy("MPI_Finalize", deadline);
            drop(ManuallyDrop::into_inner(universe));
            return Ok(());
        }
        let peer = links.still_there().unwrap_or(self.rank);
        let waited = links.wait_at_end(deadline);
        Err(match waited < deadline {
            // Raising the deadline would not help.
            true => ExchangeError::StillThere { peer, waited },
            false => ExchangeError::late(peer, "end of the run", deadline),
        })
    }

    /// Ends all processes of the job at once, this one with `status`. The others can no longer
    /// report errors; to let them, return the error and [finish](Self::finish).
    pub fn abort(self, status: i32) -> ! {
        SimpleCommunicator::world().abort(status);
    }
}

/// A rank that panics gives the others time to report it, because `mpirun` ends them when this
/// process ends.
impl Drop for World {
    fn drop(&mut self) {
        // Nobody is left to receive an error.
        let _ = self.end();
    }
}

const ONE_TRANSPORT: &str = "a process can have one transport at a time; drop the earlier one";

fn refuse<R>(reason: impl Into<String>) -> Result<R> {
    Err(ExchangeError::config(reason))
}
