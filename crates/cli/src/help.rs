//! The help of the command line: groups of commands and of flags, and examples.

mod examples;

use std::fmt::Write;

use clap::{Command, CommandFactory};
use examples::EXAMPLES;

/// Groups of commands, in the order of the overview.
const COMMANDS: [(&str, &[&str]); 5] = [
    ("Train and compare", &["compare", "train", "reproduce"]),
    ("Predict and measure", &["advise", "bench"]),
    ("Compress tensors in files", &["compress", "decompress", "inspect"]),
    ("Ship changes of weights", &["delta", "patch", "fold", "pack", "unpack"]),
    ("Look up", &["list", "data", "env", "completions", "man", "help"]),
];

/// Groups of the flags of commands that train, by their names in experiment files or, without one,
/// in the command.
const FLAGS: [(&str, &[&str]); 6] = [
    (
        "Data and model",
        &["experiment", "data", "model", "split", "augment", "evaluations", "evaluate_at_most"],
    ),
    (
        "Training",
        &[
            "steps",
            "epochs",
            "batch",
            "optimizer",
            "learning_rate",
            "weight_decay",
            "l1",
            "clip",
            "svrg",
            "seed",
            "seeds",
        ],
    ),
    (
        "Compression",
        &["compressor", "compressors", "rules", "raw_vectors", "raw_below", "raw_names"],
    ),
    (
        "Workers and their exchange",
        &[
            "workers",
            "exchange",
            "links",
            "overlap",
            "participation",
            "dropout",
            "straggler",
            "min_workers",
            "deadline_s",
        ],
    ),
    ("Local steps", &["send", "outer", "outer_rate", "median_clip", "mask"]),
    (
        "Output",
        &[
            "out",
            "save",
            "save_every",
            "keep",
            "resume",
            "baseline",
            "diagnose",
            "json",
            "markdown",
            "csv",
            "force",
        ],
    ),
];

/// The command line with its help.
pub(crate) fn command<C: CommandFactory>() -> Command {
    // A negative number is a value, which a flag may refuse, not an unknown flag.
    let command = C::command()
        .mut_subcommands(|verb| with_examples(grouped(verb).allow_negative_numbers(true)));
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}Options:\n{{options}}{{after-help}}",
        overview(&command)
    );
    command.help_template(template)
}

/// A line for each command, in groups.
fn overview(command: &Command) -> String {
    let mut text = String::new();
    for (title, names) in COMMANDS {
        let _ = writeln!(text, "{title}:");
        for name in names {
            let verb = command.find_subcommand(name);
            let about = verb.and_then(Command::get_about).map(ToString::to_string);
            let about =
                about.unwrap_or_else(|| "Print this overview, or the help of a command".to_owned());
            let _ = writeln!(text, "  {name:<12} {about}");
        }
        text.push('\n');
    }
    text
}

/// The command with its examples below.
fn with_examples(verb: Command) -> Command {
    let found = EXAMPLES.iter().find(|(name, _)| *name == verb.get_name());
    let Some((_, examples)) = found else { return verb };
    let mut text = "Examples:".to_owned();
    for (what, line) in examples {
        let _ = write!(text, "\n  {what}:\n    gradwire {}", broken(line));
    }
    verb.after_help(text)
}

/// A command line in lines of at most 76 characters, as a shell reads it.
fn broken(line: &str) -> String {
    let (mut text, mut length) = (String::new(), "    gradwire ".len());
    for word in line.split(' ') {
        if length + word.len() > 74 {
            text.push_str(" \\\n       ");
            length = 7;
        }
        if !text.is_empty() && !text.ends_with(' ') {
            text.push(' ');
        }
        text.push_str(word);
        length += word.len() + 1;
    }
    text
}

/// The flags of a command that trains, in groups.
fn grouped(verb: Command) -> Command {
    if verb.get_arguments().all(|flag| flag.get_id() != "model") {
        return verb;
    }
    verb.mut_args(|flag| match group_of(flag.get_id().as_str()) {
        Some(title) if !flag.is_positional() => flag.help_heading(title),
        _ => flag,
    })
}

fn group_of(name: &str) -> Option<&'static str> {
    FLAGS.iter().find(|(_, names)| names.contains(&name)).map(|(title, _)| *title)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::Arg;
    use gradwire_train::settings::SETTINGS;

    use super::*;
    use crate::Arguments;

    #[test]
    fn every_command_is_in_a_group_with_three_examples() {
        let command = command::<Arguments>();
        let all: BTreeSet<&str> = command.get_subcommands().map(Command::get_name).collect();
        let grouped: Vec<&str> = COMMANDS
            .iter()
            .flat_map(|(_, names)| names.iter().copied())
            .filter(|name| *name != "help")
            .collect();
        assert_eq!(grouped.iter().copied().collect::<BTreeSet<_>>(), all);
        assert_eq!(grouped.len(), all.len());
        assert_eq!(EXAMPLES.iter().map(|(name, _)| *name).collect::<BTreeSet<_>>(), all);
    }

    /// A shell would take what follows a pipe or an arrow.
    #[test]
    fn examples_are_command_lines() {
        for (name, examples) in EXAMPLES {
            for (_, line) in examples {
                let words = line.split(' ').take_while(|word| !["|", ">"].contains(word));
                let parsed = command::<Arguments>()
                    .try_get_matches_from(std::iter::once("gradwire").chain(words.clone()));
                assert!(parsed.is_ok(), "{line}: {}", parsed.unwrap_err());
                assert_eq!(words.clone().next(), Some(name));
            }
        }
    }

    #[test]
    fn every_flag_of_training_is_in_a_group() {
        for setting in SETTINGS {
            assert!(group_of(setting.name).is_some(), "{} has no group", setting.name);
        }
        for verb in ["compare", "train", "reproduce"] {
            let command = command::<Arguments>();
            let verb = command.find_subcommand(verb).unwrap();
            let other = verb.get_opts().find(|flag| flag.get_help_heading().is_none());
            let other = other
                .map(Arg::get_id)
                .filter(|id| !["check", "row", "fractions"].contains(&id.as_str()));
            assert_eq!(other, None, "{}", verb.get_name());
        }
    }

    #[test]
    fn lines_fit_terminals() {
        let mut command = command::<Arguments>().term_width(80);
        let overview = command.render_long_help().to_string();
        assert!(overview.lines().all(|line| line.chars().count() <= 80), "{overview}");
        for verb in command.get_subcommands_mut() {
            let help = verb.clone().term_width(80).render_long_help().to_string();
            let wide = help.lines().find(|line| line.chars().count() > 80);
            // Usage and possible values are not wrapped.
            assert!(
                wide.is_none_or(|line| line.contains("Usage") || !line.contains(' ')),
                "{wide:?}"
            );
        }
    }
}
