//! The `gradwire` command line: one file for each verb.
//!
//! [`run`] is the whole program; the binary and the Python package call it. [`main_with`] makes a
//! program that has more compressors, models and data sets.

mod deltas;
mod engine;
mod failure;
mod form;
mod help;
mod interrupt;
mod launcher;
mod numbers;
mod output;
mod overwriting;
mod progress;
mod settings;
mod streams;
mod tensors;
mod verbs;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{FromArgMatches, Parser, Subcommand};
use gradwire::{Entry, registry};
use gradwire_models::ModelEntry;
use gradwire_models::data::{self, Known};

/// Compressed exchange for distributed training.
///
/// Compares compressors on your data, and predicts step times on your link. Results go to standard
/// output, progress and errors to standard error.
#[derive(Debug, Parser)]
#[command(name = "gradwire", version = gradwire_train::VERSION, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 failure at run time; 2 bad usage or input; 130 stopped
by Ctrl-C or SIGTERM.";

#[derive(Debug, Subcommand)]
enum Verb {
    Compare(verbs::compare::Compare),
    Train(verbs::train::Train),
    Advise(verbs::advise::Advise),
    Bench(verbs::bench::Bench),
    Reproduce(verbs::reproduce::Reproduce),
    List(verbs::list::List),
    Compress(verbs::compress::Compress),
    Decompress(verbs::decompress::Decompress),
    Inspect(verbs::inspect::Inspect),
    Delta(verbs::delta::Delta),
    Patch(verbs::patch::Patch),
    Fold(verbs::fold::Fold),
    Pack(verbs::pack::Pack),
    Unpack(verbs::unpack::Unpack),
    Data(verbs::data::Data),
    Env(verbs::env::Env),
    Completions(verbs::completions::Completions),
    Man(verbs::man::Man),
}

/// What another crate adds to the program `gradwire`.
#[derive(Debug, Clone, Copy)]
pub enum Addition {
    /// A compressor, for all commands.
    Compressor(&'static Entry),
    /// A model, for `--model`.
    Model(&'static ModelEntry),
    /// A data set, for `--data`.
    Data(&'static Known),
}

/// The `main` of a program `gradwire` that has the compressors, models and data sets of other
/// crates, too: every command knows them by name.
///
/// ```no_run
/// # use std::process::ExitCode;
/// # use gradwire::{Entry, registry::REGISTRY};
/// # static ENTRY: Entry = Entry { id: "acme/scaled-sign", ..*REGISTRY[0] };
/// use gradwire_cli::{Addition, main_with};
///
/// fn main() -> ExitCode {
///     main_with(&[Addition::Compressor(&ENTRY)])
/// }
/// ```
pub fn main_with(additions: &[Addition]) -> ExitCode {
    let register = |addition: &Addition| match *addition {
        Addition::Compressor(entry) => registry::register(&[entry]),
        Addition::Model(entry) => gradwire_models::register(&[entry]),
        Addition::Data(known) => data::register(&[known]),
    };
    if let Err(error) = additions.iter().try_for_each(register) {
        output::note(error.to_string());
        return ExitCode::from(2);
    }
    ExitCode::from(run(std::env::args_os()))
}

/// Runs the command line with the arguments of a process, the program's name first. Returns the
/// exit code: 0 for success, 1 for a failure at run time, 2 for bad usage or input, 130 after
/// Ctrl-C or SIGTERM.
///
/// Commands that can stop cleanly install permanent handlers for these signals.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    settings::remember(&arguments);
    let parsed = help::command::<Arguments>().try_get_matches_from(arguments);
    let verb = match parsed.and_then(|matches| Arguments::from_arg_matches(&matches)) {
        Ok(arguments) => arguments.verb,
        Err(answer) => {
            // Help or a usage error; a failure to print it cannot be reported anywhere.
            let _ = answer.print();
            return u8::try_from(answer.exit_code()).unwrap_or(2);
        }
    };
    let result = match verb {
        Verb::Compare(verb) => verb.run(),
        Verb::Train(verb) => verb.run(),
        Verb::Advise(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(),
        Verb::Reproduce(verb) => verb.run(),
        Verb::List(verb) => verb.run(),
        Verb::Compress(verb) => verb.run(),
        Verb::Decompress(verb) => verb.run(),
        Verb::Inspect(verb) => verb.run(),
        Verb::Delta(verb) => verb.run(),
        Verb::Patch(verb) => verb.run(),
        Verb::Fold(verb) => verb.run(),
        Verb::Pack(verb) => verb.run(),
        Verb::Unpack(verb) => verb.run(),
        Verb::Data(verb) => verb.run(),
        Verb::Env(verb) => verb.run(),
        Verb::Completions(verb) => verb.run(help::command::<Arguments>()),
        Verb::Man(verb) => verb.run(help::command::<Arguments>()),
    };
    match result {
        Ok(()) => 0,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                output::note(text);
            }
            failure.code()
        }
    }
}
