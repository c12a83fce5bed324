//! Launchers that start several processes of one command, recognised by their environment
//! variables.

use std::fmt;

/// A launcher that started several processes of this command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Launcher {
    kind: Kind,
    /// The number of processes.
    pub(crate) processes: usize,
    /// The variable that gives the number, with its value.
    found: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The launcher of an MPI implementation, or one with the interface PMI.
    Mpi,
    /// Slurm's `srun`, which connects the processes only with the right `--mpi`.
    Srun,
    /// PyTorch's `torchrun`, which has nothing to do with MPI.
    Torchrun,
}

/// Variables that the launchers of MPI implementations set to the number of processes.
const MPI_SIZES: [&str; 4] =
    ["OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE", "MPI_SIZE"];

impl Launcher {
    /// The launcher of this process; `None` if the command was started once.
    pub(crate) fn of_this_process() -> Option<Self> {
        Self::of(&|name| std::env::var(name).ok())
    }

    /// The launcher of a process with these variables.
    fn of(variable: &dyn Fn(&str) -> Option<String>) -> Option<Self> {
        let number = |name: &str| variable(name)?.parse::<usize>().ok();
        // On other nodes mpirun starts its helpers with srun, and ranks inherit srun's variables.
        // So the innermost launcher is asked first.
        let by_mpi = MPI_SIZES.iter().find_map(|name| Some((Kind::Mpi, *name, number(name)?)));
        let (kind, name, processes) = by_mpi
            .or_else(|| torchrun(variable, &number))
            .or_else(|| srun(variable, &number))
            .or_else(|| pmix(&number))?;
        let found = format!("{name}={}", variable(name).unwrap_or_default());
        (processes > 1).then_some(Self { kind, processes, found })
    }

    /// Whether the launcher can connect its processes with MPI.
    #[cfg(feature = "mpi")]
    pub(crate) fn connects(&self) -> bool {
        self.kind != Kind::Torchrun
    }

    /// Why processes without an MPI connection are refused, and the remedy. `has_mpi` tells whether
    /// this build has MPI.
    pub(crate) fn refusal(&self, has_mpi: bool) -> String {
        let reason = match (self.kind, has_mpi) {
            (Kind::Torchrun, _) => "torchrun does not connect them by MPI",
            (_, true) => "MPI reports a single process",
            (_, false) => "this gradwire was built without MPI",
        };
        let alone = match self.kind {
            Kind::Mpi => "start it without the launcher",
            Kind::Srun => "use srun --ntasks=1",
            Kind::Torchrun => "start it without torchrun",
        };
        let together = match (self.kind, has_mpi) {
            (Kind::Mpi, true) => "use the mpirun of the MPI that gradwire was built with",
            (Kind::Srun, true) => {
                "use srun --mpi=pmix (srun --mpi=list shows what your Slurm has), or mpirun"
            }
            (Kind::Torchrun, true) => "use mpirun",
            (Kind::Srun, false) => {
                "build it with --features gradwire-cli/mpi and use srun --mpi=pmix, or mpirun"
            }
            (_, false) => "build it with --features gradwire-cli/mpi and use mpirun",
        };
        format!(
            "{self}, but {reason}, so each process would do all of the work and write the same \
             files; for ranks in several processes, {together}; for one process, {alone}"
        )
    }
}

impl fmt::Display for Launcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let by = match self.kind {
            Kind::Mpi => "an MPI launcher",
            Kind::Srun => "srun",
            Kind::Torchrun => "torchrun",
        };
        let Self { processes, found, .. } = self;
        write!(f, "{processes} processes were started by {by} ({found})")
    }
}

/// A launcher's environment variable, and the number of processes in it.
type Said = Option<(Kind, &'static str, usize)>;

/// Containers and jobs may set `WORLD_SIZE` as well, but not the name of a run of torchrun.
fn torchrun(
    variable: &dyn Fn(&str) -> Option<String>,
    number: &dyn Fn(&str) -> Option<usize>,
) -> Said {
    variable("TORCHELASTIC_RUN_ID")?;
    Some((Kind::Torchrun, "WORLD_SIZE", number("WORLD_SIZE")?))
}

/// The tasks of a step of Slurm. `SLURM_NTASKS` alone does not show several processes: a batch
/// script has it, but runs once.
fn srun(variable: &dyn Fn(&str) -> Option<String>, number: &dyn Fn(&str) -> Option<usize>) -> Said {
    let task = number("SLURM_PROCID");
    // An interactive shell (srun --pty, salloc) is the first task of a step; its commands run once.
    if variable("SLURM_PTY_PORT").is_some() && task == Some(0) {
        return None;
    }
    let step = variable("SLURM_STEP_ID").is_some();
    let sizes = [("SLURM_STEP_NUM_TASKS", true), ("SLURM_NTASKS", step)];
    let size = sizes
        .into_iter()
        .filter(|(_, counts)| *counts)
        .find_map(|(name, _)| Some((Kind::Srun, name, number(name)?)));
    size.or_else(|| Some((Kind::Srun, "SLURM_PROCID", task.filter(|task| *task > 0)? + 1)))
}

/// PMIx tells a process its rank, but not the number of processes.
fn pmix(number: &dyn Fn(&str) -> Option<usize>) -> Said {
    Some((Kind::Mpi, "PMIX_RANK", number("PMIX_RANK")?.saturating_add(1)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(variables: &[(&str, &str)]) -> Option<Launcher> {
        Launcher::of(&|name| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    fn found(variables: &[(&str, &str)]) -> (Kind, usize) {
        let launcher = of(variables).unwrap_or_else(|| panic!("{variables:?}"));
        (launcher.kind, launcher.processes)
    }

    #[test]
    fn launchers_of_several_processes_are_recognised() {
        assert_eq!(found(&[("OMPI_COMM_WORLD_SIZE", "3")]), (Kind::Mpi, 3));
        assert_eq!(found(&[("PMI_SIZE", "2"), ("PMI_RANK", "0")]), (Kind::Mpi, 2));
        assert_eq!(found(&[("PMIX_RANK", "4")]), (Kind::Mpi, 5));
        let step = [
            ("SLURM_NTASKS", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_STEP_NUM_TASKS", "4"),
            ("PMIX_RANK", "0"),
        ];
        assert_eq!(found(&step), (Kind::Srun, 4));
        assert_eq!(found(&step[..3]), (Kind::Srun, 8));
        assert_eq!(found(&[("SLURM_PROCID", "1")]), (Kind::Srun, 2));
        let torchrun = [("TORCHELASTIC_RUN_ID", "none"), ("WORLD_SIZE", "2"), ("RANK", "0")];
        assert_eq!(found(&torchrun), (Kind::Torchrun, 2));
    }

    #[test]
    fn commands_that_run_once_are_not_refused() {
        // A batch script, with the variables of its job.
        let batch = [("SLURM_JOB_ID", "7"), ("SLURM_NTASKS", "4"), ("SLURM_PROCID", "0")];
        assert_eq!(of(&batch), None);
        // A step of one task, in a job of several.
        let one = [("SLURM_STEP_NUM_TASKS", "1"), ("SLURM_NTASKS", "4"), ("SLURM_STEP_ID", "3")];
        assert_eq!(of(&one), None);
        // An interactive shell in a step of four tasks; the other tasks of the step are refused.
        let shell = |task: &'static str| {
            [("SLURM_STEP_NUM_TASKS", "4"), ("SLURM_PTY_PORT", "1234"), ("SLURM_PROCID", task)]
        };
        assert_eq!(of(&shell("0")), None);
        assert_eq!(found(&shell("1")), (Kind::Srun, 4));
        // mpirun with one process, on a node on which srun started its helper.
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "1"), ("SLURM_STEP_NUM_TASKS", "2")]), None);
        assert_eq!(of(&[("WORLD_SIZE", "2"), ("RANK", "0")]), None);
        assert_eq!(of(&[("PMIX_RANK", "0")]), None);
        assert_eq!(of(&[("OMPI_COMM_WORLD_SIZE", "many")]), None);
    }

    #[test]
    fn refusals_name_the_launcher_what_was_found_and_the_remedy() {
        let text = of(&[("SLURM_STEP_NUM_TASKS", "4")]).unwrap().refusal(false);
        for part in
            ["4 processes", "srun", "SLURM_STEP_NUM_TASKS=4", "gradwire-cli/mpi", "--ntasks=1"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let text = of(&[("SLURM_STEP_NUM_TASKS", "4")]).unwrap().refusal(true);
        assert!(text.contains("a single process") && text.contains("--mpi=pmix"), "{text}");
        let text = of(&[("TORCHELASTIC_RUN_ID", "x"), ("WORLD_SIZE", "2")]).unwrap().refusal(true);
        assert!(text.contains("WORLD_SIZE=2") && text.contains("without torchrun"), "{text}");
    }
}
