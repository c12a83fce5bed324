//! `gradwire patch`: a checkpoint after changes.

use std::path::PathBuf;

use clap::{ArgGroup, Args};
use gradwire_delta::on_disk;
use gradwire_delta::safetensors::Checkpoint;

use crate::deltas::{Threads, inputs};
use crate::failure::Failure;
use crate::numbers::whole;
use crate::output;
use crate::overwriting::Force;

/// Apply deltas to a checkpoint, one after the other.
///
/// The checksums of the old weights and of the result are verified; a delta that was applied
/// already has no effect. With -o the result appears whole or not at all. With --in-place all new
/// values of a delta are first written to a log beside the weights, gradwire.redo. If the process
/// is killed, the weights are the old ones, or the next gradwire command that opens them completes
/// the patch. Until then other programs may see a mixture, so do not load the weights while the log
/// is there. Weights are read in blocks: memory is at most about 150 MiB for each thread, whatever
/// the size of the model; a delta from standard input is kept in memory, too.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("result").required(true).args(["output", "in_place"]))]
pub(crate) struct Patch {
    /// The checkpoint: a .safetensors file, or a folder with such files and their index
    old: PathBuf,
    /// The .gwd files to apply, the oldest first; - for standard input
    #[arg(required = true, value_name = "D")]
    deltas: Vec<PathBuf>,
    /// The file to write, or the new folder
    #[arg(short, long, value_name = "NEW")]
    output: Option<PathBuf>,
    /// Change the checkpoint itself
    #[arg(long)]
    in_place: bool,
    /// Maximum number of bytes of new tensors in a delta [default: 1024 times the delta, at least
    /// 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>, conflicts_with = "in_place")]
    max_bytes: Option<u64>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    force: Force,
}

impl Patch {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.output.as_ref().map_or(Ok(()), |path| self.force.check_file(path))?;
        let deltas = inputs(&self.deltas)?;
        let mut workers = self.threads.workers();
        let (path, state) = match &self.output {
            Some(path) => {
                let old = Checkpoint::open(&self.old)?;
                (path, on_disk::patch(&old, &deltas, path, self.max_bytes, &mut workers)?)
            }
            None => (&self.old, on_disk::patch_in_place(&self.old, &deltas, &mut workers)?),
        };
        output::line(format!("{}: {state}", path.display()))
    }
}
