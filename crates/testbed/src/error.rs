//! Errors of experiments.

use std::io;
use std::path::{Path, PathBuf};

use gradwire::{files, printable};
use gradwire_models::data::DataError;
use gradwire_train::TrainError;

/// Why an experiment cannot be read, run or reported. Messages name the cause and the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TestbedError {
    /// A file cannot be read.
    #[error("cannot read '{path}': {1}{remedy}", path = printable(.0.display()), remedy = files::remedy(.1))]
    Read(PathBuf, #[source] io::Error),
    /// A file cannot be written.
    #[error("cannot write '{path}': {1}{remedy}", path = printable(.0.display()), remedy = files::remedy(.1))]
    Write(PathBuf, #[source] io::Error),
    /// A measurement was stopped before its end.
    #[error("{0}")]
    Stopped(String),
    /// An invalid setting, or a file that is not an experiment or has no runs.
    #[error("{0}")]
    Config(String),
    /// A run failed.
    #[error("{compressor}, seed {seed}: {source}")]
    Run {
        /// The compressor of the run.
        compressor: String,
        /// Its seed.
        seed: u64,
        /// The error.
        source: Box<TrainError>,
    },
    /// The data set cannot be loaded.
    #[error(transparent)]
    Data(#[from] DataError),
}

impl TestbedError {
    /// Converts an error of reading this file into this type.
    pub fn read(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Read(path.to_owned(), source)
    }

    pub(crate) fn write(path: &Path) -> impl FnOnce(io::Error) -> Self {
        |source| Self::Write(path.to_owned(), source)
    }
}
