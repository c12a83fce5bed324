//! `gradwire delta`: the changes between two checkpoints.

use std::path::PathBuf;

use clap::Args;
use gradwire_delta::on_disk;
use gradwire_delta::safetensors::Checkpoint;

use crate::deltas::{Output, Threads, report};
use crate::failure::Failure;
use crate::overwriting::Force;

/// Write the changes from one checkpoint to the next.
///
/// Writes a .gwd file. A checkpoint is a .safetensors file, or a folder with such files and their
/// index. `gradwire patch OLD D -o NEW` restores the new files byte for byte; files without
/// weights, such as config.json, are not included. The same checkpoints give the same bytes.
/// Weights are read in blocks: memory is about 100 MiB for each thread, whatever the size of the
/// model.
#[derive(Debug, Args)]
pub(crate) struct Delta {
    /// The old checkpoint, which those who apply the delta have
    old: PathBuf,
    /// The new checkpoint
    new: PathBuf,
    /// The .gwd file to write; - for standard output
    #[arg(short, long, value_name = "D")]
    output: PathBuf,
    /// Code positions without the old weights: larger, but who lacks them can read what changes
    #[arg(long)]
    portable: bool,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    force: Force,
}

impl Delta {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let [old, new] = [&self.old, &self.new].map(|path| Checkpoint::open(path));
        let (old, new) = (old?, new?);
        let mut output = Output::create(&self.output, &self.force)?;
        let (portable, mut workers) = (self.portable, self.threads.workers());
        let summary =
            output.fill(|sink| on_disk::delta(&old, &new, portable, &mut workers, sink))?;
        output.finish()?;
        report(&self.output, &summary, new.bytes())
    }
}
