//! The `gradwire` command line: one file for each verb.

mod engine;
mod failure;
mod interrupt;
mod output;
mod progress;
mod settings;
mod tensors;
mod verbs;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Training allocates and frees large tensors all the time; the system's allocator returns their memory, and the kernel
/// clears each page again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Compressed exchange for distributed training: compare compressors on your model, data and link.
///
/// Results go to standard output, progress and errors to standard error.
#[derive(Debug, Parser)]
#[command(name = "gradwire", version, max_term_width = 100, after_help = EXIT_CODES)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 success; 1 a failure at run time; 2 bad usage or bad input; 130 stopped by Ctrl-C or SIGTERM.";

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
    Data(verbs::data::Data),
}

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Compare(verb) => verb.run(),
        Verb::Train(verb) => verb.run(),
        Verb::Advise(verb) => verb.run(),
        Verb::Bench(verb) => verb.run(),
        Verb::Reproduce(verb) => verb.run(),
        Verb::List(verb) => verb.run(),
        Verb::Compress(verb) => verb.run(),
        Verb::Decompress(verb) => verb.run(),
        Verb::Inspect(verb) => verb.run(),
        Verb::Data(verb) => verb.run(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            let text = failure.to_string();
            if !text.is_empty() {
                output::note(text);
            }
            failure.code()
        }
    }
}
