//! The forms of settings' values: texts on the command line and in checkpoints, values in files.

use std::fmt::Display;
use std::str::FromStr;

use gradwire_exchange::{Exchange, Rule};
use gradwire_models::optim::OptimizerKind;
use gradwire_models::schedule::LearningRate;
use gradwire_models::{ModelSpec, Split};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::payload::Payload;
use super::straggler::Straggler;

/// A type that settings have.
pub(super) trait Value: Sized {
    /// Whether its flag may be repeated.
    const REPEATS: bool = false;
    /// Whether its flag's values are `on` and `off`.
    const SWITCH: bool = false;
    /// The separator between the texts of a list.
    const SEPARATOR: &'static str = ", ";

    /// The value that flags with these texts mean: one text, or one for each time the flag is
    /// repeated.
    fn of_texts(texts: &[&str]) -> Result<Self, String>;

    /// The value as checkpoints and messages have it.
    fn text(&self) -> String;

    /// Whether files leave it out.
    fn is_missing(&self) -> bool {
        false
    }

    /// The value that files leave out; `None` if they never leave a value out.
    fn missing() -> Option<Self> {
        None
    }

    /// Reads it from a file.
    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error>;

    /// Writes it to a file.
    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error>;
}

/// A value that serde reads.
pub(super) struct FromFile<T>(pub(super) T);

impl<'de, T: Value> Deserialize<'de> for FromFile<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::read(from).map(Self)
    }
}

/// A value that serde writes.
pub(super) struct ToFile<'a, T>(pub(super) &'a T);

impl<T: Value> Serialize for ToFile<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.0.write(to)
    }
}

/// The last of a flag's texts.
fn parse<T: FromStr<Err: Display>>(texts: &[&str]) -> Result<T, String> {
    let text = texts.last().ok_or("a value is missing")?;
    text.parse().map_err(|error: T::Err| error.to_string())
}

/// Reads a value from the text it prints to.
fn read_text<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}

/// Writes a value as the text it prints to.
fn write_text<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Values whose printed texts are also the flags' texts, with the functions that read and write
/// them in files.
macro_rules! values {
    ($read:path, $write:path; $($type:ty $({ $constant:item })?),+) => {$(
        impl Value for $type {
            $($constant)?

            fn of_texts(texts: &[&str]) -> Result<Self, String> {
                parse(texts)
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $read(from)
            }

            fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                $write(self, to)
            }
        }
    )+};
}

values!(read_text, write_text; ModelSpec, Exchange, Payload, Split, OptimizerKind, LearningRate, Straggler, Rule);
values!(Deserialize::deserialize, Serialize::serialize; String { const SEPARATOR: &'static str = " "; });

/// Numbers, with what to give as the text of a flag.
macro_rules! numbers {
    ($form:literal; $($type:ty),+) => {$(
        impl Value for $type {
            fn of_texts(texts: &[&str]) -> Result<Self, String> {
                let text = texts.last().ok_or("a value is missing")?;
                text.trim().parse().map_err(|_| format!("give {}", $form))
            }

            fn text(&self) -> String {
                self.to_string()
            }

            fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                Self::deserialize(from)
            }

            fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                self.serialize(to)
            }
        }
    )+};
}

numbers!("a whole number from 0, such as 4"; usize, u64);
numbers!("a number, such as 0.5 or 20"; f32, f64);

impl Value for bool {
    const SWITCH: bool = true;

    fn of_texts(texts: &[&str]) -> Result<Self, String> {
        match texts.last() {
            Some(&"on") => Ok(true),
            Some(&"off") => Ok(false),
            _ => Err("give on or off".to_owned()),
        }
    }

    fn text(&self) -> String {
        self.to_string()
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::deserialize(from)
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.serialize(to)
    }
}

impl<T: Value> Value for Option<T> {
    const SWITCH: bool = T::SWITCH;

    /// `off` means none, unless it is the value of a switch.
    fn of_texts(texts: &[&str]) -> Result<Self, String> {
        if !T::SWITCH && texts.last() == Some(&"off") {
            return Ok(None);
        }
        T::of_texts(texts).map(Some)
    }

    fn text(&self) -> String {
        self.as_ref().map_or_else(|| "off".to_owned(), T::text)
    }

    fn is_missing(&self) -> bool {
        self.is_none()
    }

    fn missing() -> Option<Self> {
        Some(None)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Option::<FromFile<T>>::deserialize(from)?.map(|value| value.0))
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        self.as_ref().map(ToFile).serialize(to)
    }
}

impl<T: Value> Value for Vec<T> {
    const REPEATS: bool = true;

    fn of_texts(texts: &[&str]) -> Result<Self, String> {
        texts.iter().map(|text| T::of_texts(&[text])).collect()
    }

    fn text(&self) -> String {
        self.iter().map(T::text).collect::<Vec<_>>().join(T::SEPARATOR)
    }

    fn read<'de, D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(Vec::<FromFile<T>>::deserialize(from)?.into_iter().map(|value| value.0).collect())
    }

    fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.iter().map(ToFile))
    }
}

/// Parses a constant of this crate, which must be valid.
pub(super) fn known<T: FromStr<Err: Display>>(text: &str) -> T {
    text.parse().unwrap_or_else(|error: T::Err| panic!("'{text}': {error}"))
}
