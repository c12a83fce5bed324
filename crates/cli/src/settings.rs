//! The settings of training that several verbs share.

use std::cell::RefCell;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches};
use gradwire::files;
use gradwire_exchange::{Exchange, Link};
use gradwire_testbed::TestbedError;
use gradwire_testbed::experiment::{ExchangeChoice, Experiment};
use gradwire_testbed::files::write_atomic;
use gradwire_train::CompressionSchedule;
use gradwire_train::settings::{SETTINGS, Setting};

use crate::failure::Failure;
use crate::numbers::{number, whole};
use crate::output;

/// Missing settings come from the experiment file, or else from the defaults.
#[derive(Debug, Default, PartialEq, Args)]
pub(crate) struct Settings {
    /// Take settings from a TOML file, with the keys in docs/experiments.md; flags override it.
    /// With a file, a missing setting has its general default, not the default of the model
    #[arg(long, value_name = "FILE")]
    experiment: Option<PathBuf>,
    /// A folder with MNIST, CIFAR-10, class folders of images, text or MovieLens' ratings, or the
    /// name of a known data set [default: digits, which is generated]
    #[arg(long, value_name = "DIR|NAME")]
    data: Option<String>,
    #[command(flatten)]
    given: Given,
    /// Passes over the training set, instead of steps
    #[arg(long, value_name = "N", conflicts_with = "steps", value_parser = number)]
    epochs: Option<f64>,
    /// Evaluations on the test set during a run [default: 10]
    #[arg(long, value_name = "N", value_parser = whole::<u64>)]
    evaluations: Option<u64>,
    /// Diagnose the first worker's gradients and residuals about fifty times per run; reports show
    /// charts of them, and warn if a residual grows without bound
    #[arg(long)]
    diagnose: bool,
}

impl Settings {
    /// The experiment file.
    pub(crate) fn file(&self) -> &Option<PathBuf> {
        &self.experiment
    }

    /// Writes an experiment file into a folder. If the settings come from the file there, keeps it,
    /// with a note if its text differs.
    pub(crate) fn write_experiment(&self, folder: &Path, text: &str) -> Result<(), TestbedError> {
        let path = folder.join("experiment.toml");
        let given = self.experiment.as_ref().and_then(|file| file.canonicalize().ok());
        // `canonicalize` fails for a file that does not exist.
        if given.is_some() && given == path.canonicalize().ok() {
            if files::read_text(&path, u64::MAX).map_err(TestbedError::read(&path))? != text {
                output::note(format!(
                    "'{}' is left unchanged; the report and runs.jsonl have the settings that flags changed",
                    path.display()
                ));
            }
            return Ok(());
        }
        write_atomic(&path, text.as_bytes())
    }

    /// Whether this flag of a setting was given.
    pub(crate) fn has(&self, flag: &str) -> bool {
        let named = |name: &str| Setting::named(name).is_some_and(|setting| setting.flag == flag);
        self.given.0.iter().any(|(name, _)| named(name))
    }

    /// The given data set and number of steps, for runs that have all other settings already.
    ///
    /// # Errors
    /// If another setting was given.
    pub(crate) fn data_and_steps(&self) -> Result<(Option<&str>, Option<u64>), Failure> {
        let only = Self {
            data: self.data.clone(),
            given: Given(
                self.given.0.iter().filter(|(name, _)| *name == "steps").cloned().collect(),
            ),
            ..Self::default()
        };
        if *self != only {
            return Err(Failure::Input(
                "--check repeats runs with their recorded settings; the only settings it takes are --data and --steps"
                    .to_owned(),
            ));
        }
        let steps = self.has("steps").then(|| self.experiment()).transpose()?;
        Ok((self.data.as_deref(), steps.map(|experiment| experiment.steps)))
    }

    /// The experiment these settings describe, on top of the file's settings or the model's
    /// defaults.
    pub(crate) fn experiment(&self) -> Result<Experiment, Failure> {
        self.experiment_from(Experiment::default())
    }

    /// As [`experiment`](Self::experiment), with other defaults.
    pub(crate) fn experiment_from(&self, defaults: Experiment) -> Result<Experiment, Failure> {
        let mut with_model = Experiment::default();
        self.given.apply(&mut with_model)?;
        match &self.experiment {
            Some(path) => self.change(defaults.changed_by(path)?),
            None => self.change(defaults.suiting(with_model.model.clone())?),
        }
    }

    /// The experiment these settings describe, on top of the file's settings or a study's. A file
    /// without an exchange has a parameter server.
    pub(crate) fn of_study(&self, study: Experiment) -> Result<Experiment, Failure> {
        match &self.experiment {
            Some(path) => {
                let defaults =
                    Experiment::default().with(|e| e.exchange = Exchange::default().into());
                self.change(defaults.changed_by(path)?)
            }
            None => self.change(study),
        }
    }

    /// Applies the given flags.
    fn change(&self, mut experiment: Experiment) -> Result<Experiment, Failure> {
        self.given.apply(&mut experiment)?;
        set(&mut experiment.data, self.data.clone());
        set(&mut experiment.evaluations, self.evaluations);
        experiment.diagnose |= self.diagnose;
        if self.has("steps") || self.epochs.is_some() {
            experiment.epochs = self.epochs;
        }
        Ok(experiment)
    }
}

/// The given flags of the settings that [`SETTINGS`] declares: their names and values.
#[derive(Debug, Default, PartialEq)]
struct Given(Vec<(&'static str, Vec<String>)>);

impl Given {
    /// Applies the flags that were given to an experiment.
    fn apply(&self, experiment: &mut Experiment) -> Result<(), Failure> {
        for (name, texts) in &self.0 {
            let setting = Setting::named(name).expect("flags are those of settings");
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            experiment.set(setting, &texts).map_err(Failure::Input)?;
        }
        Ok(())
    }
}

impl Args for Given {
    fn augment_args(command: Command) -> Command {
        command.args(SETTINGS.iter().map(flag))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let given = |setting: &Setting| {
            let texts = matches.get_many::<String>(setting.name)?;
            Some((setting.name, texts.cloned().collect()))
        };
        Ok(Self(SETTINGS.iter().filter_map(given).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

/// Whether a flag belongs to a setting.
pub(crate) fn is_setting(flag: &Arg) -> bool {
    ["data", "evaluations"].contains(&flag.get_id().as_str())
        || Setting::named(flag.get_id().as_str()).is_some()
}

/// The flag of a setting. It refuses invalid values of the setting.
fn flag(setting: &'static Setting) -> Arg {
    let flag = Arg::new(setting.name)
        .long(setting.flag)
        .value_name(setting.value_name)
        .help(ExchangeChoice::help(setting))
        .action(if setting.repeats { ArgAction::Append } else { ArgAction::Set });
    if setting.switch {
        return flag.value_parser(PossibleValuesParser::new(["on", "off"]));
    }
    flag.value_parser(move |text: &str| {
        let checked = Experiment::default().set(setting, &[text]);
        checked.map(|()| text.to_owned())
    })
}

/// Compressors and seeds, for verbs that take several.
#[derive(Debug, Args)]
pub(crate) struct Several {
    /// A compressor such as 3lc:s=1.75 or topk:ratio=0.01,ef=off; repeat it to compare several. A
    /// schedule changes it during the run: 'sbc2 until 0.5 then sbc1', 'sbc2 until drop then sbc1',
    /// or 'sbc within 2MB' for a budget of the bytes that a worker sends
    #[arg(long = "compressor", value_name = "SPEC")]
    compressors: Option<Vec<CompressionSchedule>>,
    /// Seed of weights, data order and random draws; repeat it for the spread over seeds [default:
    /// 0]
    #[arg(long = "seed", value_name = "S", value_parser = whole::<u64>)]
    seeds: Option<Vec<u64>>,
    /// Model times for this link, such as 100mbit, 1gbps or, with a latency, 100mbit/20ms (a number
    /// alone is Mbit/s); repeat it for several [default: 10mbit, 100mbit, 1gbit and 10gbit]
    #[arg(long = "link", value_name = "LINK")]
    links: Option<Vec<Link>>,
}

impl Several {
    /// Applies the flags that were given to an experiment.
    pub(crate) fn apply(&self, experiment: &mut Experiment) {
        set(&mut experiment.compressors, self.compressors.clone());
        set(&mut experiment.seeds, self.seeds.clone());
        set(&mut experiment.links, self.links.clone());
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(value) = given {
        *setting = value;
    }
}

thread_local! {
    /// The arguments of the command that this thread runs. The process may be a Python interpreter
    /// with other arguments.
    static ARGUMENTS: RefCell<Vec<OsString>> = const { RefCell::new(Vec::new()) };
}

/// Stores the arguments of the command that this thread runs, for [`command_line`]; the first is
/// the program's name.
pub(crate) fn remember(arguments: &[OsString]) {
    ARGUMENTS.set(arguments.to_vec());
}

/// The original command, quoted for a shell. Bytes that are not UTF-8 are replaced.
pub(crate) fn command_line() -> String {
    let quoted = |word: &OsString| quoted(&word.to_string_lossy());
    let words: Vec<String> =
        ARGUMENTS.with_borrow(|arguments| arguments.iter().skip(1).map(quoted).collect());
    format!("gradwire {}", words.join(" "))
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_has_the_arguments_that_were_given_and_not_those_of_the_process() {
        remember(&["/usr/bin/gradwire", "compare", "--out", "my data"].map(OsString::from));
        assert_eq!(command_line(), "gradwire compare --out 'my data'");
    }

    #[test]
    fn words_are_quoted_where_a_shell_would_split_them() {
        assert_eq!(quoted("3lc:s=1.75"), "3lc:s=1.75");
        assert_eq!(quoted("my data"), "'my data'");
        assert_eq!(quoted("it's"), r"'it'\''s'");
        assert_eq!(quoted(""), "''");
    }
}
