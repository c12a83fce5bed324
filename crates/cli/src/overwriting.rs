//! Files that commands write do not replace others, unless the user says so.

use std::path::Path;

use clap::Args;

use crate::failure::Failure;
use crate::streams::is_standard;

/// Whether an output may replace a file.
#[derive(Debug, Args)]
pub(crate) struct Force {
    /// Replace the output file if it exists
    #[arg(short, long)]
    force: bool,
}

impl Force {
    /// Refuses a file that exists, and standard output.
    pub(crate) fn check_file(&self, path: &Path) -> Result<(), Failure> {
        match is_standard(path) {
            true => Err(Failure::Input(
                "this command cannot write to standard output; name a file".to_owned(),
            )),
            false => self.check(path),
        }
    }

    /// Refuses a file that exists. A folder or a device is refused when it is written.
    pub(crate) fn check(&self, path: &Path) -> Result<(), Failure> {
        if self.force || is_standard(path) || !path.is_file() {
            return Ok(());
        }
        Err(Failure::Input(format!(
            "'{}' exists already; name another file, or replace it with --force (-f)",
            path.display()
        )))
    }
}
