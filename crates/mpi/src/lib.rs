//! Ranks as the processes of an MPI job: [`Transport`](gradwire_exchange::Transport) over Open MPI or
//! MPICH, and nothing else.
//!
//! A [`World`] is this process's membership of the job; it hands out a transport, on which
//! [`Role::join`](gradwire_exchange::Role::join) builds this rank's end of any strategy; run after run.
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn train(_: Box<dyn gradwire_exchange::Transport>) -> Result<(), gradwire_exchange::ExchangeError> { Ok(()) }
//! # fn main() -> Result<(), gradwire_exchange::ExchangeError> {
//! let mut world = gradwire_mpi::World::init(Duration::from_secs(60))?;
//! let done = train(Box::new(world.connect()?));
//! let left = world.finish();
//! done.and(left)
//! # }
//! ```
//!
//! **No call waits inside MPI.** Sends are `MPI_Isend` of bytes that the transport owns until they are
//! out; receives look for a message (`MPI_Improbe`), take it (`MPI_Imrecv`), and test until it is here,
//! pausing a little longer each time, up to a millisecond. So every wait has a deadline, and a rank
//! that was lost or is silent becomes an error that names it and the operation. MPI's own error handler
//! is set to return errors; they become `PeerLost`.
//!
//! **A watchdog** is there for what should not wait and does: `MPI_Init`, `MPI_Finalize` or any other call that spins on
//! a process that died. A thread outside of all calls ends the process, with [`STUCK_STATUS`] and a line on standard
//! error, a second after the deadline of what it is busy with.
//!
//! **A message** is the payload with the twelve bytes of its header behind it, so that the payload lands
//! where it belongs. Payloads of 2 GiB or more do not fit MPI's counts and are refused.
//!
//! **Notices** travel beside the messages, under a tag of their own, and are not counted: that a rank
//! has left, after so many messages to this one; that the run is to stop, and because of whom; for whom a
//! rank has waited for most of the deadline, so that when it is over, those who wait for one that waits
//! blame the one at the end of the chain.
//!
//! **The end.** `MPI_Finalize` waits for all processes and would wait for ever for one that died. So
//! [`World::finish`] first waits, no longer than the deadline, until everyone has left, and does not
//! finalize if someone has not; the process should then exit with a status other than 0, upon which
//! `mpirun` ends what is left of the job. [`World::abort`] asks MPI to end all processes at once.

mod call;
mod links;
mod notice;
mod pause;
mod transport;
mod watchdog;
mod world;

pub use transport::Mpi;
pub use watchdog::STUCK_STATUS;
pub use world::World;
