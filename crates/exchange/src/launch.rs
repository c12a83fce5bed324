//! All ranks of a run inside one process.

use std::fmt;
use std::panic;
use std::thread::{self, JoinHandle};

use crate::{
    DistributedOptimizer, ExchangeError, GroupConfig, Result, Role, ServerReport, Transport,
    in_process::{self, InProcess},
};

/// The handles of a run whose ranks are threads.
pub struct Launched {
    /// The workers' handles in rank order; each may move to another thread.
    pub workers: Vec<Box<dyn DistributedOptimizer>>,
    /// The servers, already running.
    pub servers: Servers,
}

impl fmt::Debug for Launched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { workers, servers } = self;
        f.debug_struct("Launched")
            .field("workers", &workers.len())
            .field("servers", servers)
            .finish_non_exhaustive()
    }
}

/// Servers, each running in its own thread until the workers' handles are dropped.
#[derive(Debug)]
pub struct Servers {
    threads: Vec<JoinHandle<Result<ServerReport>>>,
}

impl Servers {
    /// Waits for the servers to end. Drop the workers' handles first.
    ///
    /// # Errors
    /// The servers' first error that is not merely the loss of another rank, otherwise their first
    /// error. A server's panic is resumed in the caller.
    pub fn join(self) -> Result<Vec<ServerReport>> {
        let joined = self.threads.into_iter().map(|thread| thread.join());
        root_cause(joined.map(|result| result.unwrap_or_else(|panic| panic::resume_unwind(panic))))
    }
}

/// Creates all ranks of a run in this process and starts the servers. `join` creates one rank over
/// its transport; most callers pass [`Role::join`].
///
/// # Errors
/// `Config` if the setup cannot work; the errors of `join`.
pub fn launch(
    setup: &GroupConfig<'_>,
    options: in_process::Options,
    join: impl Fn(Box<dyn Transport>) -> Result<Role> + Sync,
) -> Result<Launched> {
    setup.validate()?;
    let transports = in_process::connect(setup.exchange.ranks(setup.workers()), options);
    start(join_all(transports, &join)?)
}

/// Calls `join` for all transports at the same time, because ranks compare their configurations
/// there.
fn join_all(
    transports: Vec<InProcess>,
    join: &(dyn Fn(Box<dyn Transport>) -> Result<Role> + Sync),
) -> Result<Vec<Role>> {
    thread::scope(|scope| {
        let start = |transport| scope.spawn(move || join(Box::new(transport)));
        let makers: Vec<_> = transports.into_iter().map(start).collect();
        let made = makers.into_iter().map(|maker| maker.join());
        root_cause(made.map(|end| end.unwrap_or_else(|panic| panic::resume_unwind(panic))))
    })
}

/// Starts the servers, and returns the workers.
fn start(ends: Vec<Role>) -> Result<Launched> {
    let mut launched = Launched { workers: Vec::new(), servers: Servers { threads: Vec::new() } };
    for end in ends {
        match end {
            Role::Worker(worker) => launched.workers.push(worker),
            Role::Server(server) => {
                let name = format!("server {}", launched.servers.threads.len());
                let thread = thread::Builder::new().name(name).spawn(move || server.run());
                launched.servers.threads.push(thread.map_err(|error| {
                    ExchangeError::System(format!("a server's thread cannot start: {error}"))
                })?);
            }
        }
    }
    Ok(launched)
}

/// All results, or the first error that is not merely the loss of another rank.
fn root_cause<R>(results: impl Iterator<Item = Result<R>>) -> Result<Vec<R>> {
    let (mut values, mut errors) = (Vec::new(), Vec::new());
    for result in results {
        match result {
            Ok(value) => values.push(value),
            Err(error) => errors.push(error),
        }
    }
    let lost = |error: &ExchangeError| matches!(error, ExchangeError::PeerLost { .. });
    let first = errors.iter().position(|error| !lost(error)).unwrap_or(0);
    if errors.is_empty() { Ok(values) } else { Err(errors.swap_remove(first)) }
}
