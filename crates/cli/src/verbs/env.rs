//! `gradwire env`: what a bug report needs to know of this machine.

use std::env::{self, consts};
use std::fs;

use clap::Args;
use gradwire::registry;
use gradwire_models::data;
use gradwire_testbed::table::Table;
use gradwire_train::{VERSION, instruction_set, processor};
use serde::Serialize;

use crate::failure::Failure;
use crate::form::{FORM, Form};
use crate::output;

/// Show version and machine, for bug reports.
///
/// Nothing is sent anywhere. `gradwire` of the Python package adds the versions of Python and
/// PyTorch.
#[derive(Debug, Args)]
pub(crate) struct Env {
    /// Print JSON: an object
    #[arg(long, group = FORM)]
    json: bool,
    #[command(flatten)]
    form: Form,
    /// A package with its version; the Python package passes them on
    #[arg(long = "package", value_name = "TEXT", hide = true)]
    packages: Vec<String>,
}

/// The facts.
#[derive(Debug, Serialize)]
struct Facts<'a> {
    gradwire: &'static str,
    build: String,
    system: String,
    processor: String,
    cores: usize,
    instructions: String,
    memory_bytes: Option<u64>,
    compressors: usize,
    data_sets: Vec<&'static str>,
    /// Python and its packages, if the command runs in Python.
    packages: &'a [String],
    variables: Vec<String>,
}

/// Prefixes of environment variables that change what gradwire and its exchanges do.
const PREFIXES: [&str; 3] = ["GRADWIRE_", "GLOO_", "NCCL_"];

/// The other such variables, by their whole names: a report is shown to others.
const VARIABLES: [&str; 8] = [
    "OMP_NUM_THREADS",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "TRITON_INTERPRET",
    "CUDA_VISIBLE_DEVICES",
];

impl Env {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let facts = Facts::of_this_machine(&self.packages);
        if self.json {
            return output::line(output::json_of(&facts));
        }
        self.form.print(&facts.table())
    }
}

impl<'a> Facts<'a> {
    fn of_this_machine(packages: &'a [String]) -> Self {
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        let mpi = if cfg!(feature = "mpi") { "with MPI" } else { "without MPI" };
        let found = |known: &&data::Known| {
            known.files.is_empty()
                || data::places(known.name, None).iter().any(|place| place.exists())
        };
        Self {
            gradwire: VERSION,
            build: format!("{profile}, {mpi}"),
            system: system(),
            processor: processor(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            instructions: instruction_set(),
            memory_bytes: memory(),
            compressors: registry::all().count(),
            data_sets: data::catalogue()
                .into_iter()
                .filter(found)
                .map(|known| known.name)
                .collect(),
            packages,
            variables: variables(),
        }
    }

    fn table(&self) -> Table {
        let gib = |bytes: u64| format!("{:.1} GiB", bytes as f64 / f64::from(1 << 30));
        let or_none = |list: String| if list.is_empty() { "none".to_owned() } else { list };
        let mut table = Table::new(["what", "value"]).left_aligned();
        table.push(["gradwire", self.gradwire]);
        table.push(["build", &self.build]);
        table.push(["system", &self.system]);
        table.push(["processor", &self.processor]);
        table.push(["cores", &self.cores.to_string()]);
        table.push(["instructions", &self.instructions]);
        table.push(["memory", &self.memory_bytes.map_or("unknown".to_owned(), gib)]);
        table.push(["compressors", &self.compressors.to_string()]);
        table.push(["data sets", &self.data_sets.join(", ")]);
        if !self.packages.is_empty() {
            table.push(["packages", &self.packages.join(", ")]);
        }
        table.push(["variables", &or_none(self.variables.join(", "))]);
        table
    }
}

/// The operating system, as it names itself if it does, and the architecture.
fn system() -> String {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let name = release.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    let name = name.map_or(consts::OS, |name| name.trim_matches('"'));
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    match kernel.trim() {
        "" => format!("{name}, {}", consts::ARCH),
        kernel => format!("{name}, kernel {kernel}, {}", consts::ARCH),
    }
}

/// Bytes of main memory, on Linux.
fn memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    Some(line.split_whitespace().next()?.parse::<u64>().ok()? * 1024)
}

/// Environment variables that matter, with their values.
fn variables() -> Vec<String> {
    let mut found: Vec<String> = env::vars_os()
        .map(|(name, value)| (name.to_string_lossy().into_owned(), value))
        .filter(|(name, _)| {
            VARIABLES.contains(&name.as_str()) || PREFIXES.iter().any(|p| name.starts_with(p))
        })
        .map(|(name, value)| format!("{name}={}", value.to_string_lossy()))
        .collect();
    found.sort_unstable();
    found
}
