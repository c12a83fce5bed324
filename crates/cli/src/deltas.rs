//! What the commands on deltas of weights share.

use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};

use clap::Args;
use gradwire_delta::files::{FileError, NewFile};
use gradwire_delta::on_disk::Input;
use gradwire_delta::{Error, Sink, Summary, Workers};

use crate::failure::Failure;
use crate::numbers::whole_in;
use crate::output;
use crate::overwriting::Force;
use crate::streams::{self, is_standard, refuse_terminal};

/// The number of threads.
#[derive(Debug, Args)]
pub(crate) struct Threads {
    /// Number of threads; it does not change the result [default: the number of cores]
    #[arg(long, value_name = "N", value_parser = whole_in(1..=MOST_THREADS))]
    threads: Option<usize>,
}

/// The most threads.
const MOST_THREADS: usize = 1024;

impl Threads {
    pub(crate) fn workers(&self) -> Workers {
        let cores = || std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Workers::new(self.threads.unwrap_or_else(cores))
    }
}

/// A stream to read; standard input is read to its end.
pub(crate) fn input(path: &Path) -> Result<Input, Failure> {
    match is_standard(path) {
        true => Ok(Input::read("standard input", io::stdin().lock())?),
        false => Ok(Input::File(path.to_owned())),
    }
}

/// Streams to read, standard input at most once.
pub(crate) fn inputs(paths: &[PathBuf]) -> Result<Vec<Input>, Failure> {
    if paths.iter().filter(|path| is_standard(path)).count() > 1 {
        let reason = "standard input (-) is named twice; name each delta once";
        return Err(Failure::Input(reason.to_owned()));
    }
    paths.iter().map(|path| input(path)).collect()
}

/// Where a stream is written: a file that appears whole or not at all, or standard output.
pub(crate) enum Output {
    File(NewFile),
    Standard,
}

impl Output {
    pub(crate) fn create(path: &Path, force: &Force) -> Result<Self, Failure> {
        refuse_terminal(path)?;
        force.check(path)?;
        match is_standard(path) {
            true => Ok(Output::Standard),
            false => Ok(Output::File(NewFile::create(path)?)),
        }
    }

    /// Writes a stream.
    pub(crate) fn fill(
        &mut self,
        write: impl FnOnce(&mut Sink<'_>) -> Result<Summary, Error>,
    ) -> Result<Summary, Failure> {
        let mut out = match self {
            Output::File(file) => return Ok(write(&mut |bytes| file.write_all(bytes))?),
            Output::Standard => io::stdout().lock(),
        };
        let summary = write(&mut |bytes| out.write_all(bytes)).map_err(|error| match error {
            Error::Io(error) => output::failed(error),
            error => error.into(),
        })?;
        out.flush().map_err(output::failed)?;
        Ok(summary)
    }

    pub(crate) fn finish(self) -> Result<(), Failure> {
        match self {
            Output::File(file) => Ok(file.finish()?),
            Output::Standard => Ok(()),
        }
    }
}

/// Says what was written.
pub(crate) fn report(path: &Path, summary: &Summary, weights: u64) -> Result<(), Failure> {
    let share = 100.0 * summary.len as f64 / weights.max(1) as f64;
    let text = format!("{} bytes, {share:.3} % of {weights} bytes of weights", summary.len);
    streams::report(path, &text)
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        if is_input(&error) {
            Failure::Input(error.to_string())
        } else {
            Failure::Run(error.to_string())
        }
    }
}

/// Whether a command failed because of what it was given, not because of the machine.
fn is_input(error: &Error) -> bool {
    match error {
        Error::Io(_) => false,
        Error::Input { source, .. } => is_input(source),
        Error::File(FileError::System { source, .. }) => matches!(
            source.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::PermissionDenied
                | io::ErrorKind::AlreadyExists
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::InvalidFilename
        ),
        _ => true,
    }
}
