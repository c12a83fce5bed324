//! `gradwire fold`: several deltas as one.

use std::path::PathBuf;

use clap::Args;
use gradwire_delta::on_disk;
use gradwire_delta::safetensors::Checkpoint;

use crate::deltas::{Output, Threads, inputs, report};
use crate::failure::Failure;
use crate::numbers::whole;
use crate::overwriting::Force;

/// Join deltas that follow each other into one.
///
/// The delta is shorter than all of them together. Needs the checkpoint that the first delta
/// changes, and disk space for another one beside the output, for a moment.
#[derive(Debug, Args)]
pub(crate) struct Fold {
    /// The checkpoint that the first delta changes
    old: PathBuf,
    /// The .gwd files, the oldest first; - for standard input
    #[arg(required = true, value_name = "D")]
    deltas: Vec<PathBuf>,
    /// The .gwd file to write; - for standard output
    #[arg(short, long, value_name = "D")]
    output: PathBuf,
    /// Code positions without the old weights
    #[arg(long)]
    portable: bool,
    /// Maximum number of bytes of new tensors in a delta [default: 1024 times the delta, at least
    /// 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    force: Force,
}

impl Fold {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let deltas = inputs(&self.deltas)?;
        let old = Checkpoint::open(&self.old)?;
        let mut scratch = self.output.clone().into_os_string();
        scratch.push(".weights");
        let scratch = PathBuf::from(scratch);
        let mut output = Output::create(&self.output, &self.force)?;
        let mut workers = self.threads.workers();
        let (portable, max_bytes) = (self.portable, self.max_bytes);
        let summary = output.fill(|sink| {
            on_disk::fold(&old, &deltas, &scratch, portable, max_bytes, &mut workers, sink)
        })?;
        output.finish()?;
        report(&self.output, &summary, old.bytes())
    }
}
