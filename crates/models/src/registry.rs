//! Models by name: gradwire's own, and those that other crates [register].
//!
//! A model of another crate is an [entry](ModelEntry) called `CRATE/NAME`. It says which parameters
//! the model has, and makes its [`Task`](crate::tasks::Task) on a data set. Settings, experiment
//! files, checkpoints and records have the text of a [`ModelSpec`], such as `acme/net:hidden=64`.

use std::fmt;
use std::str::FromStr;

use gradwire::parameters::{Param, Value};
use gradwire::registry::{RegistryError, crate_of};
use gradwire::{Named, Table, read_values, suggestion};

use crate::TaskKind;
use crate::data::Dataset;
use crate::models::{self, ModelKind, UnknownModel};
use crate::tasks::{self, Task};

/// A model of another crate.
#[derive(Debug, Clone, Copy)]
pub struct ModelEntry {
    /// The name: `CRATE/NAME`.
    pub id: &'static str,
    /// What it is, in a line.
    pub summary: &'static str,
    /// Its parameters, which [`gradwire::parameters!`] declares: `Net::PARAMETERS`.
    pub parameters: &'static [Param],
    /// Settings that suit it, which the command line takes without a flag: the keys of experiment
    /// files and the texts of flags, such as `("learning_rate", "0.1")`.
    pub defaults: &'static [(&'static str, &'static str)],
    /// Makes the task of the model with these values of its parameters, which `Net::new` turns into
    /// the struct, on a data set; or says why it cannot learn from the data, with the remedy. The
    /// task must be the same on all ranks.
    pub task: MakeTask,
}

/// Makes the task of a model.
pub type MakeTask = for<'a> fn(&[Value], &'a Dataset) -> Result<Box<dyn Task<'a> + 'a>, String>;

impl Named for ModelEntry {
    const WHAT: &'static str = "model";

    fn name(&self) -> &'static str {
        self.id
    }

    fn summary(&self) -> &'static str {
        self.summary
    }
}

/// The models of other crates. Names of gradwire's own have no slash.
static OTHERS: Table<ModelEntry> = Table::new(&[]);

/// Adds models of another crate, for the rest of the process. Register them first, before any
/// setting is read, and on every rank. Entries that are registered already are left out.
///
/// # Errors
/// If a name does not have the form `CRATE/NAME`, or belongs to another model. Then nothing is
/// registered.
pub fn register(entries: &[&'static ModelEntry]) -> Result<(), RegistryError> {
    OTHERS.register(entries)
}

/// A model with its parameters, as `--model` takes it: `mlp:392-50,tanh`, `acme/net:hidden=64`.
///
/// A name of the form `CRATE/NAME` parses even if the program does not know it, so records of such
/// a model can be shown; [`check`](Self::check) refuses it.
#[derive(Debug, Clone)]
pub struct ModelSpec {
    text: String,
    model: Model,
}

#[derive(Debug, Clone)]
enum Model {
    Own(ModelKind),
    Other(&'static ModelEntry, Vec<Value>),
    Unknown(Box<UnknownModel>),
}

impl ModelSpec {
    /// An entry, registered or not, with these parameters, in the syntax after the colon.
    ///
    /// # Errors
    /// If there is no such parameter, or its value is not allowed.
    pub fn of(entry: &'static ModelEntry, parameters: &str) -> Result<Self, UnknownModel> {
        let values = read_values(entry.id, entry.parameters, parameters)?;
        let given = entry.parameters.iter().zip(&values);
        let items: Vec<_> = given
            .filter(|(parameter, value)| parameter.kind.default() != **value)
            .map(|(parameter, value)| format!("{}={value}", parameter.key))
            .collect();
        let text =
            [entry.id.to_owned(), items.join(",")].join(if items.is_empty() { "" } else { ":" });
        Ok(Self { text, model: Model::Other(entry, values) })
    }

    /// A text that begins with the name of another crate's model.
    fn of_crate(text: &str) -> Self {
        let (name, items) = text.split_once(':').unwrap_or((text, ""));
        let known = OTHERS.find(name).ok_or_else(|| unknown(name));
        known.and_then(|entry| Self::of(entry, items)).unwrap_or_else(|error| Self {
            text: text.to_owned(),
            model: Model::Unknown(Box::new(error)),
        })
    }

    /// Refuses a model of another crate that this program does not know.
    ///
    /// # Errors
    /// The name, and the remedy.
    pub fn check(&self) -> Result<(), UnknownModel> {
        match &self.model {
            Model::Unknown(error) => Err(UnknownModel::clone(error)),
            _ => Ok(()),
        }
    }

    /// The task of the model on a data set.
    ///
    /// # Errors
    /// If the model is unknown or cannot learn from the data, with the reason and the remedy.
    pub fn task<'a>(&self, data: &'a Dataset) -> Result<Box<dyn Task<'a> + 'a>, String> {
        match &self.model {
            Model::Own(kind) => tasks::task_of(*kind, data),
            Model::Other(entry, values) => (entry.task)(values, data)
                .map_err(|reason| format!("{self} on data set '{}': {reason}", data.name)),
            Model::Unknown(error) => Err(error.to_string()),
        }
    }

    /// The model, if it is one of gradwire's own.
    pub fn own(&self) -> Option<ModelKind> {
        match self.model {
            Model::Own(kind) => Some(kind),
            _ => None,
        }
    }

    /// The kind of data that it learns from; [`TaskKind::Other`] for models of other crates.
    pub fn learns(&self) -> TaskKind {
        self.own().map_or(TaskKind::Other, ModelKind::task)
    }

    /// The settings that suit it: the keys of experiment files and the texts of flags.
    pub fn defaults(&self) -> &'static [(&'static str, &'static str)] {
        match &self.model {
            Model::Own(kind) => kind.defaults(),
            Model::Other(entry, _) => entry.defaults,
            Model::Unknown(_) => &[],
        }
    }

    /// The known models, with their parameters, by the kind of data.
    pub fn known() -> String {
        let with_parameters = |entry: &ModelEntry| {
            let items = entry.parameters.iter();
            let items = items.map(|one| format!("{}={}", one.key, one.kind.default()));
            let items = items.collect::<Vec<_>>().join(",");
            if items.is_empty() { entry.id.to_owned() } else { format!("{}:{items}", entry.id) }
        };
        let others: Vec<_> = OTHERS.all().map(with_parameters).collect();
        match others.is_empty() {
            true => models::known(),
            false => format!("{}; of other crates {}", models::known(), others.join(", ")),
        }
    }
}

/// Why no entry has this name.
fn unknown(name: &str) -> UnknownModel {
    match OTHERS.missing_crate(name) {
        Some(krate) => UnknownModel::Unlinked { name: name.to_owned(), krate: krate.to_owned() },
        None => UnknownModel::Name {
            name: name.to_owned(),
            near: suggestion(name, models::names().chain(OTHERS.all().map(|entry| entry.id))),
            known: ModelSpec::known(),
        },
    }
}

impl FromStr for ModelSpec {
    type Err = UnknownModel;

    fn from_str(text: &str) -> Result<Self, UnknownModel> {
        // A text in a file could control a terminal.
        let is_plain = text.chars().all(|character| character.is_ascii_graphic());
        let name = text.split(':').next().unwrap_or_default();
        if is_plain && crate_of(name).is_some() {
            return Ok(Self::of_crate(text));
        }
        match text.parse::<ModelKind>() {
            Ok(kind) => Ok(kind.into()),
            Err(UnknownModel::Name { name, .. }) => Err(unknown(&name)),
            Err(error) => Err(error),
        }
    }
}

impl From<ModelKind> for ModelSpec {
    fn from(kind: ModelKind) -> Self {
        Self { text: kind.to_string(), model: Model::Own(kind) }
    }
}

impl PartialEq for ModelSpec {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl fmt::Display for ModelSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}
