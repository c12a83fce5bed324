//! `gradwire completions`: completions of the command line, for a shell.

use clap::{Args, Command};
use clap_complete::Shell;

use crate::failure::Failure;
use crate::output;

/// Print completions for a shell.
///
/// The shell then completes commands, flags and their values after Tab.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    shell: Shell,
}

impl Completions {
    /// Prints the completions of a command.
    pub(crate) fn run(&self, mut command: Command) -> Result<(), Failure> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command, "gradwire", &mut script);
        output::line(String::from_utf8_lossy(&script).trim_end())
    }
}
