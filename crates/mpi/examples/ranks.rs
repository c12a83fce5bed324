//! One rank of the checks that run under `mpirun`; `tests/mpirun.rs` starts it.
//!
//! ```text
//! mpirun -n 3 ranks matrix all-gather
//! ```
//!
//! The checks are those of ranks in one process; if one fails, the rank panics and exits with a
//! status other than 0. With `early`, `killed` and so on, rank 1 fails and the others print their
//! errors; with `meets`, it leaves early, and all connect again; with `between`, rank 0 ends after
//! the first of two runs; with `absent`, rank 1 does not call `MPI_Init`.

#[path = "../../exchange/tests/common/mod.rs"]
mod common;

use std::process::{Command, ExitCode};
use std::thread;
use std::time::Duration;

use common::checks;
use common::engine::Engine;
use common::{RATE, Run, exchange, gradients};
use gradwire::Spec;
use gradwire_exchange::{DistributedOptimizer, ExchangeError, Role, StepInput, Transport, laws};
use gradwire_mpi::World;

/// Time enough for a check on a busy machine.
const LONG: Duration = Duration::from_secs(120);
/// For ranks that wait for one that is silent.
const SHORT: Duration = Duration::from_secs(3);

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (verb, name) = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [verb, name] => (verb, name),
        _ => panic!(
            "usage: ranks laws|matrix|early|silent|killed|panics|differs|meets|between|absent STRATEGY"
        ),
    };
    if verb == "absent" && launched_as_1() {
        thread::sleep(Duration::from_secs(60));
    }
    let deadline = if ["laws", "matrix"].contains(&verb) { LONG } else { SHORT };
    let mut job = Job { world: World::init(deadline).unwrap() };
    let done = match verb {
        "matrix" => {
            matrix(&mut job, name);
            Ok(())
        }
        "laws" => job.obeys_laws(),
        "meets" => job.meets(name),
        "between" => job.between(),
        _ => job.harm(verb, name),
    };
    // Printed before the end: when the first rank fails, `mpirun` ends the others.
    if let Err(error) = &done {
        println!("rank {}: {error}", job.world.rank());
    }
    match done.and(job.world.finish()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// Whether the launcher made this process rank 1, before MPI says so.
fn launched_as_1() -> bool {
    let names = ["OMPI_COMM_WORLD_RANK", "PMI_RANK"];
    names.iter().any(|name| std::env::var(name).as_deref() == Ok("1"))
}

/// Every check, for one strategy.
fn matrix(job: &mut Job, name: &str) {
    // At their own pace ranks are added in the order of their arrival.
    if !name.contains("stale") {
        checks::uncompressed_means_are_naive(job, name, checks::mean_of(name));
    }
    checks::ends_identical(job, name);
    println!("rank {}: checked", job.world.rank());
}

/// The processes of this job.
struct Job {
    world: World,
}

impl Engine for Job {
    fn workers(&self, servers: usize) -> Vec<usize> {
        self.world.size().checked_sub(servers).filter(|&workers| workers > 0).into_iter().collect()
    }

    /// One of each way in which messages travel. What a compressor does in them is checked with
    /// ranks in one process.
    fn specs(&self) -> Vec<Spec> {
        let specs = [
            "none",
            "fp16",
            "3lc",
            "topk",
            "topk:ratio=0.25,ef=ef21,momentum=0.5",
            "sbc",
            "signsgd",
            "powersgd",
            "thc",
            "variance",
            "chunk-topk:mean=senders",
        ];
        specs.map(|text| text.parse().expect("a spec of the registry")).to_vec()
    }

    fn run<R: Send>(
        &mut self,
        run: &Run,
        work: impl Fn(usize, &mut dyn DistributedOptimizer) -> R + Sync,
    ) -> Vec<R> {
        match self.join(run).unwrap() {
            Role::Worker(mut exchange) => vec![work(self.world.rank(), &mut *exchange)],
            Role::Server(server) => {
                server.run().unwrap();
                Vec::new()
            }
        }
    }
}

impl Job {
    fn join(&mut self, run: &Run) -> Result<Role, ExchangeError> {
        let transport = Box::new(self.world.connect()?);
        Role::join(transport, &run.setup(), || run.optimizer())
    }

    /// The laws of transports of which no rank fails.
    fn obeys_laws(&mut self) -> Result<(), ExchangeError> {
        for (name, law) in laws::LAWS {
            law(&mut self.world.connect()?);
            println!("rank {}: {name}", self.world.rank());
        }
        Ok(())
    }

    /// Connects all ranks again after rank 1 has left with an error of its own.
    fn meets(&mut self, name: &str) -> Result<(), ExchangeError> {
        // The others name it.
        let _ = self.harm("early", name);
        let left = self.world.reconnect()?;
        println!("rank {}: {} are left", self.world.rank(), left.size());
        Ok(())
    }

    /// Two runs, of which rank 0 takes part in the first.
    fn between(&mut self) -> Result<(), ExchangeError> {
        self.world.connect()?.barrier()?;
        if self.world.rank() > 0 {
            self.world.connect()?.barrier()?;
        }
        Ok(())
    }

    /// A run in which rank 1 fails in its third step.
    fn harm(&mut self, how: &str, name: &str) -> Result<(), ExchangeError> {
        let servers = exchange(name).servers();
        let spec = if how == "differs" && self.world.rank() == 1 { "fp16" } else { "none" };
        let workers = self.world.size() - servers;
        let run = Run::of(name, workers, spec, &[1000, 0, 100_000]);
        let rank = self.world.rank();
        let mut exchange = match self.join(&run)? {
            Role::Worker(exchange) => exchange,
            Role::Server(server) => return server.run().map(|_| ()),
        };
        let mut parameters = run.initial.clone();
        for step in 0..5 {
            if (rank, step) == (1, 2) {
                match how {
                    "early" => return Ok(()),
                    "silent" => thread::sleep(3 * SHORT),
                    "killed" => kill(),
                    "panics" => panic!("this rank dies"),
                    _ => {}
                }
            }
            let gradients = gradients(&run.tensors, rank, step);
            exchange.step(StepInput::new(step, RATE, &gradients), &mut parameters)?;
        }
        Ok(())
    }
}

/// Ends this process as the kernel does when memory runs out.
fn kill() {
    let id = std::process::id().to_string();
    Command::new("kill").args(["-KILL", &id]).status().unwrap();
    thread::sleep(LONG);
}
