//! `gradwire unpack`: the checkpoint of a snapshot.

use std::path::PathBuf;

use clap::Args;
use gradwire_delta::on_disk;

use crate::deltas::{Threads, input};
use crate::failure::Failure;
use crate::numbers::whole;
use crate::output;
use crate::overwriting::Force;

/// Restore the checkpoint that `gradwire pack` compressed.
///
/// Also takes a snapshot that a trainer published, which becomes one .safetensors file. The
/// checksum of all weights is verified before the checkpoint gets its name.
#[derive(Debug, Args)]
pub(crate) struct Unpack {
    /// The .gwd file to read; - for standard input
    input: PathBuf,
    /// The file to write, or the new folder if the snapshot holds a folder
    #[arg(short, long, value_name = "CHECKPOINT")]
    output: PathBuf,
    /// Maximum number of bytes of weights [default: 1024 times the input, at least 1 GiB]
    #[arg(long, value_name = "BYTES", value_parser = whole::<u64>)]
    max_bytes: Option<u64>,
    #[command(flatten)]
    threads: Threads,
    #[command(flatten)]
    force: Force,
}

impl Unpack {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        self.force.check_file(&self.output)?;
        let input = input(&self.input)?;
        let mut workers = self.threads.workers();
        let state = on_disk::unpack(&input, &self.output, self.max_bytes, &mut workers)?;
        output::line(format!("{}: {state}", self.output.display()))
    }
}
