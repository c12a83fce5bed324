//! Ranks as the processes of an MPI job. This crate is only a
//! [`Transport`](gradwire_exchange::Transport) over Open MPI or MPICH.
//!
//! A [`World`] is the membership of this process in the job. [`World::connect`] returns a transport
//! for each run, over which [`Role::join`](gradwire_exchange::Role::join) creates this rank's end
//! of any exchange.
//!
//! ```no_run
//! # use std::time::Duration;
//! # use gradwire_exchange::{ExchangeError, Transport};
//! # fn train(_: Box<dyn Transport>) -> Result<(), ExchangeError> { Ok(()) }
//! # fn main() -> Result<(), gradwire_exchange::ExchangeError> {
//! let mut world = gradwire_mpi::World::init(Duration::from_secs(60))?;
//! let done = train(Box::new(world.connect()?));
//! let left = world.finish();
//! done.and(left)
//! # }
//! ```
//!
//! **No call waits inside MPI.** A send is an `MPI_Isend` of bytes that the transport owns until
//! they have been sent. A receive looks for a message (`MPI_Improbe`), takes it (`MPI_Imrecv`), and
//! tests until it has arrived, with pauses that grow up to a millisecond. So every wait has a
//! deadline, and a rank that is lost or silent becomes an error that names the rank and the
//! operation. MPI is set to return errors; they become `PeerLost`.
//!
//! **A watchdog** guards against calls that nevertheless wait: `MPI_Init`, `MPI_Finalize` or any
//! other call that spins on a process that died. It is a thread that makes no calls of MPI. One
//! second after the deadline of the call, it ends the process with [`STUCK_STATUS`] and a line on
//! standard error.
//!
//! **A message** is the payload followed by the twelve bytes of its header, so the payload needs no
//! copy. Payloads of 2 GiB or more do not fit MPI's counts and are refused.
//!
//! **Notices** are sent under a separate tag and are not counted. One says that a rank has left,
//! and how many messages it sent to this rank. One says that the run must stop, and names the rank
//! that caused it. One names the rank that the sender has waited for during most of the deadline.
//! At the deadline, a rank that waits for a waiting rank can thus blame the rank at the end of the
//! chain. One says that its sender is left after the loss of a rank.
//!
//! **Lost ranks.** [`World::reconnect`] connects the ranks that are left. They exchange messages to
//! find out who is left, because MPI does not tell them. Processes cannot be added to a job.
//!
//! **The end.** `MPI_Finalize` waits for all processes and would wait forever for one that died. So
//! [`World::finish`] first waits until all ranks have left, at most for the deadline. It does not
//! finalize if a rank has not left or was lost before. If a rank has not left, the process should
//! exit with a status other than 0, and `mpirun` ends the rest of the job. [`World::abort`] asks
//! MPI to end all processes at once.

mod call;
mod links;
mod notice;
mod pause;
mod regroup;
mod transport;
mod watchdog;
mod world;

pub use transport::Mpi;
pub use watchdog::STUCK_STATUS;
pub use world::World;
