//! Strings of the form `id:key=value,key=value`, for optimizers and learning rates.

use std::fmt::{self, Display};

use gradwire::suggestion;

/// Why a string of options does not parse.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OptionsError {
    /// An unknown name, or a number out of range. The message lists the allowed values.
    #[error("{0}")]
    Unknown(String),
    /// An item that is not of the form `key=value`.
    #[error("'{id}': '{item}' does not have the form key=value")]
    NotAPair {
        /// The name of the model or the optimizer.
        id: String,
        /// The item.
        item: String,
    },
    /// A key given twice.
    #[error("'{id}': {key} is given twice; give it once")]
    Twice {
        /// The name of the model or the optimizer.
        id: String,
        /// The key.
        key: String,
    },
    /// A key that does not exist.
    #[error("'{id}' has no setting '{key}'{}; it has: {known}", suggestion(.key, known.split(", ")))]
    UnknownKey {
        /// The name of the model or the optimizer.
        id: String,
        /// The key.
        key: String,
        /// The allowed keys, or "none".
        known: String,
    },
    /// A value outside its range.
    #[error("'{id}': {key}={value} is not allowed; give {expected}")]
    BadValue {
        /// The name of the model or the optimizer.
        id: String,
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// The allowed values.
        expected: &'static str,
    },
}

impl OptionsError {
    /// The error for a name that is not the start of one of these forms, such as
    /// `classes[:per=2]`.
    pub(crate) fn unknown(what: &str, name: &str, forms: &[&str]) -> Self {
        let names = forms.iter().map(|form| form.split('[').next().unwrap_or(form));
        let (near, known) = (suggestion(name, names), forms.join(", "));
        Self::Unknown(format!("unknown {what} '{name}'{near}; known ones: {known}"))
    }
}

/// The parsed settings of a string. Take each once, by its key.
pub(crate) struct Options {
    id: String,
    given: Vec<(String, String)>,
    asked: Vec<&'static str>,
}

impl Options {
    /// Splits the string into id, keys and values, without interpreting them.
    pub(crate) fn parse(text: &str) -> Result<Self, OptionsError> {
        let (id, items) = text.trim().split_once(':').unwrap_or((text.trim(), ""));
        let mut given: Vec<(String, String)> = Vec::new();
        for item in items.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (key, value) = item.split_once('=').ok_or_else(|| OptionsError::NotAPair {
                id: id.to_owned(),
                item: item.to_owned(),
            })?;
            let (key, value) = (key.trim().to_owned(), value.trim().to_owned());
            if given.iter().any(|(other, _)| *other == key) {
                return Err(OptionsError::Twice { id: id.to_owned(), key });
            }
            given.push((key, value));
        }
        Ok(Self { id: id.trim().to_owned(), given, asked: Vec::new() })
    }

    /// The part before the colon.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The value of a key, read by `read`, or `default` without the key.
    pub(crate) fn take<T>(
        &mut self,
        key: &'static str,
        default: T,
        expected: &'static str,
        read: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, OptionsError> {
        self.asked.push(key);
        let Some(at) = self.given.iter().position(|(given, _)| given == key) else {
            return Ok(default);
        };
        let (key, value) = self.given.swap_remove(at);
        read(&value).ok_or_else(|| OptionsError::BadValue {
            id: self.id.clone(),
            key,
            value,
            expected,
        })
    }

    /// The value of a key as a number that is `allowed`.
    pub(crate) fn number(
        &mut self,
        key: &'static str,
        default: f64,
        expected: &'static str,
        allowed: impl FnOnce(f64) -> bool,
    ) -> Result<f64, OptionsError> {
        self.take(key, default, expected, |value| value.parse().ok().filter(|&x| allowed(x)))
    }

    /// Fails if a given key was not taken.
    pub(crate) fn finish(self) -> Result<(), OptionsError> {
        match self.given.into_iter().next() {
            None => Ok(()),
            Some((key, _)) => Err(OptionsError::UnknownKey {
                id: self.id,
                key,
                known: if self.asked.is_empty() {
                    "none".to_owned()
                } else {
                    self.asked.join(", ")
                },
            }),
        }
    }
}

/// Writes such a string.
pub(crate) struct Printer<'a, 'b> {
    f: &'a mut fmt::Formatter<'b>,
    separator: char,
}

impl<'a, 'b> Printer<'a, 'b> {
    /// Begins with the id.
    pub(crate) fn new(f: &'a mut fmt::Formatter<'b>, id: &str) -> Result<Self, fmt::Error> {
        f.write_str(id)?;
        Ok(Self { f, separator: ':' })
    }

    /// Adds a setting.
    pub(crate) fn item(&mut self, key: &str, value: impl Display) -> fmt::Result {
        write!(self.f, "{}{key}={value}", std::mem::replace(&mut self.separator, ','))
    }

    /// Adds a setting that is not its default.
    pub(crate) fn unless<T: Display + PartialEq>(
        &mut self,
        key: &str,
        value: T,
        default: T,
    ) -> fmt::Result {
        if value == default { Ok(()) } else { self.item(key, value) }
    }
}
