//! `gradwire pack`: a checkpoint as a snapshot.

use std::path::PathBuf;

use clap::Args;
use gradwire_delta::on_disk;
use gradwire_delta::safetensors::Checkpoint;

use crate::deltas::{Output, Threads, report};
use crate::failure::Failure;
use crate::overwriting::Force;

/// Compress a checkpoint into a .gwd file, without loss.
///
/// A checkpoint is a .safetensors file, or a folder with such files and their index. `gradwire
/// unpack` restores these files byte for byte; files without weights, such as config.json, are not
/// included. Weights are read in blocks: memory is about 200 MiB for each thread, whatever the size
/// of the model.
#[derive(Debug, Args)]
pub(crate) struct Pack {
    /// The checkpoint
    input: PathBuf,
    /// The .gwd file to write; - for standard output
    #[arg(short, long, value_name = "D")]
    output: PathBuf,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    force: Force,
}

impl Pack {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let checkpoint = Checkpoint::open(&self.input)?;
        let mut output = Output::create(&self.output, &self.force)?;
        let mut workers = self.threads.workers();
        let summary = output.fill(|sink| on_disk::pack(&checkpoint, &mut workers, sink))?;
        output.finish()?;
        report(&self.output, &summary, checkpoint.bytes())
    }
}
