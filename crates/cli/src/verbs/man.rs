//! `gradwire man`: manual pages.

use std::path::PathBuf;

use clap::{Args, Command};
use gradwire_testbed::files::write_atomic;

use crate::failure::Failure;
use crate::output;
use crate::verbs::compress::plural;

/// Print a manual page, or write all of them to a folder.
#[derive(Debug, Args)]
pub(crate) struct Man {
    /// The command; without it, the page of gradwire itself
    #[arg(value_name = "COMMAND", conflicts_with = "out")]
    name: Option<String>,
    /// Write the pages of gradwire and of all commands to this folder
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

impl Man {
    /// Prints or writes pages of a command and its subcommands.
    pub(crate) fn run(&self, command: Command) -> Result<(), Failure> {
        let pages = pages(command);
        let Some(folder) = &self.out else {
            let wanted =
                self.name.as_ref().map_or("gradwire".to_owned(), |name| format!("gradwire-{name}"));
            let page = pages.iter().find(|page| page.name == wanted);
            return output::line(
                page.ok_or_else(|| unknown(self.name.as_deref(), &pages))?.text.trim_end(),
            );
        };
        for page in &pages {
            write_atomic(&folder.join(format!("{}.1", page.name)), page.text.as_bytes())?;
        }
        output::line(format!("{}: {}", folder.display(), plural(pages.len(), "page")))
    }
}

/// A manual page.
struct Page {
    /// Its name, such as `gradwire-compare`.
    name: String,
    /// It in roff.
    text: String,
}

/// The page of a command, and of each of its subcommands.
fn pages(command: Command) -> Vec<Page> {
    let mut command = command.disable_help_subcommand(true);
    // Fills in the names of subcommands as a user types them.
    command.build();
    let verbs = command.get_subcommands().map(|verb| {
        let name = format!("gradwire-{}", verb.get_name());
        Page::of(verb.clone().name(name.clone()), name)
    });
    let verbs: Vec<Page> = verbs.collect();
    [Page::of(command, "gradwire".to_owned())].into_iter().chain(verbs).collect()
}

impl Page {
    fn of(command: Command, name: String) -> Self {
        let mut text = Vec::new();
        clap_mangen::Man::new(command).render(&mut text).expect("memory takes all bytes");
        Self { name, text: String::from_utf8_lossy(&text).into_owned() }
    }
}

/// The error for a command that does not exist.
fn unknown(name: Option<&str>, pages: &[Page]) -> Failure {
    let known: Vec<&str> =
        pages.iter().filter_map(|page| page.name.strip_prefix("gradwire-")).collect();
    let name = name.unwrap_or_default();
    let near = gradwire::suggestion(name, known.iter().copied());
    Failure::Input(format!("there is no command '{name}'{near}; commands: {}", known.join(", ")))
}
