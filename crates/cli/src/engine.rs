//! Selects the engine: ranks as threads of this process, or as the processes of an MPI job.

use gradwire_testbed::TestbedError;
use gradwire_testbed::engine::{Engine, Threads};
use gradwire_testbed::experiment::Experiment;
use gradwire_train::{RunConfig, check, check_memory};

use crate::failure::Failure;
use crate::interrupt;
use crate::launcher::Launcher;
use crate::progress::Bars;

/// The number of processes in the MPI job of this process; `None` if it was started alone.
///
/// # Errors
/// If a launcher started several processes that MPI cannot connect: each would do all the work.
pub(crate) fn processes() -> Result<Option<usize>, Failure> {
    let Some(launcher) = Launcher::of_this_process() else { return Ok(None) };
    if !connects(&launcher) {
        return Err(Failure::Input(launcher.refusal(cfg!(feature = "mpi"))));
    }
    Ok(Some(launcher.processes))
}

#[cfg(feature = "mpi")]
fn connects(launcher: &Launcher) -> bool {
    launcher.connects()
}

#[cfg(not(feature = "mpi"))]
fn connects(_: &Launcher) -> bool {
    false
}

/// Sets the number of workers, unless `given`, to the number of processes without servers.
///
/// # Errors
/// The errors of [`processes`]; if all processes are servers.
pub(crate) fn fit(experiment: &mut Experiment, given: bool) -> Result<(), Failure> {
    let Some(processes) = processes()? else { return Ok(()) };
    let servers = experiment.settings().exchange.servers();
    let workers =
        processes.checked_sub(servers).filter(|workers| *workers > 0).ok_or_else(|| {
            Failure::Input(format!(
                "{processes} processes were started, but '{}' needs {servers} of them as servers; \
             start more processes, or use fewer servers",
                experiment.exchange
            ))
        })?;
    if !given {
        experiment.workers = workers;
    }
    Ok(())
}

/// Refuses runs that cannot work, or that would not fit into memory, before anything is written.
///
/// # Errors
/// The errors of [`check`], [`check_memory`] and [`processes`].
pub(crate) fn check_run(run: &RunConfig) -> Result<(), Failure> {
    let workers = if processes()?.is_some() { 1 } else { run.workers };
    let checked = check(run).and_then(|()| check_memory(run, workers));
    checked.map_err(|source| {
        let (compressor, source) = (run.compressor.to_string(), Box::new(source));
        TestbedError::Run { compressor, seed: run.seed, source }.into()
    })
}

/// The engine of this process, for these runs. From now on an interrupt stops them.
///
/// # Errors
/// If MPI cannot be started in a job of several processes, or does not connect them.
pub(crate) fn start(runs: &[RunConfig]) -> Result<Started, Failure> {
    let (engine, reports) = match processes()? {
        None => (Box::new(Threads) as Box<dyn Engine>, true),
        Some(_) => job(runs)?,
    };
    interrupt::listen();
    Ok(Started { engine, bars: Bars::new(reports) })
}

/// An engine, and its progress.
pub(crate) struct Started {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) bars: Bars,
}

#[cfg(not(feature = "mpi"))]
fn job(_: &[RunConfig]) -> Result<(Box<dyn Engine>, bool), Failure> {
    let reason = "this gradwire was built without MPI; build it with --features gradwire-cli/mpi";
    Err(Failure::Input(reason.to_owned()))
}

#[cfg(feature = "mpi")]
use over_mpi::job;

#[cfg(feature = "mpi")]
mod over_mpi {
    use std::mem;
    use std::sync::{Mutex, PoisonError};
    use std::time::Duration;

    use gradwire_exchange::{ExchangeError, Operation, Phase, Transport};
    use gradwire_mpi::World;
    use gradwire_testbed::engine::Engine;
    use gradwire_train::{
        Observer, RunConfig, RunOptions, RunRecord, TrainError, deadline, marked, run_elastic_rank,
    };

    use crate::failure::Failure;
    use crate::launcher::Launcher;

    /// Ranks as the processes of an MPI job.
    struct Processes {
        /// The job; `None` only while this is dropped.
        world: Mutex<Option<World>>,
        rank: usize,
    }

    /// The engine, and whether this process reports.
    pub(super) fn job(runs: &[RunConfig]) -> Result<(Box<dyn Engine>, bool), Failure> {
        if runs.len() > 1 && runs.iter().any(|run| run.min_workers.is_some()) {
            return Err(Failure::Input(
                "under mpirun, min_workers is for a single run, because later runs would lack a \
                 lost rank; use gradwire train"
                    .to_owned(),
            ));
        }
        let mut longest = Duration::ZERO;
        for run in runs {
            longest = longest.max(deadline(run)?);
        }
        let world = World::init(longest).map_err(TrainError::Servers)?;
        if let Some(launcher) = Launcher::of_this_process()
            && world.size() == 1
        {
            return Err(Failure::Input(launcher.refusal(true)));
        }
        let rank = world.rank();
        Ok((Box::new(Processes { world: Mutex::new(Some(world)), rank }), rank == 0))
    }

    impl Processes {
        /// A transport between all ranks or, `again` in a run, between the remaining ranks.
        fn connect(&self, again: bool) -> Result<Box<dyn Transport>, ExchangeError> {
            let mut world = self.world.lock().unwrap_or_else(PoisonError::into_inner);
            let world = world.as_mut().expect("the job lasts as long as its engine");
            Ok(Box::new(if again { world.reconnect()? } else { world.connect()? }))
        }
    }

    impl Engine for Processes {
        fn run(
            &self,
            config: &RunConfig,
            observer: &dyn Observer,
            options: &RunOptions,
        ) -> Result<Option<RunRecord>, TrainError> {
            let mut again = false;
            let connect = || self.connect(mem::replace(&mut again, true));
            let record = run_elastic_rank(config, observer, options, connect)?;
            Ok(record.map(|record| marked(record, config)))
        }

        fn keeps_records(&self) -> bool {
            self.rank == 0
        }

        fn decide(&self, own: bool) -> Result<bool, TrainError> {
            let mut said = vec![u8::from(own)];
            let operation = Operation::whole(Phase::Broadcast, 0);
            let told = self
                .connect(false)
                .and_then(|mut transport| transport.broadcast(0, operation, &mut said));
            told.map_err(|source| TrainError::Exchange { rank: self.rank, source })?;
            Ok(said == [1])
        }

        fn any(&self, own: bool) -> Result<bool, TrainError> {
            let operation = Operation::whole(Phase::Report, 0);
            let told = self.connect(false).and_then(|mut transport| {
                let mut said = vec![vec![u8::from(own)]; transport.size()];
                transport.all_gather_v(operation, &mut said)?;
                Ok(said.contains(&vec![1]))
            });
            told.map_err(|source| TrainError::Exchange { rank: self.rank, source })
        }
    }

    impl Drop for Processes {
        /// Leaves the job, waiting for the others no longer than the deadline.
        fn drop(&mut self) {
            let world = self.world.get_mut().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(Err(error)) = world.map(World::finish) {
                crate::output::note(format!("error: {error}"));
            }
        }
    }
}
