//! Settings as keys of a file's table, among other keys.

use std::fmt;

use gradwire::suggestion;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};

use super::training::{SETTINGS, Setting, TrainingSettings};

/// Reads a key of a table; refuses a key that is not in `known`, and lists the known ones.
///
/// A derived `Deserialize` with `flatten` ignores unknown keys, and its errors do not give the line
/// of a value in the file.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// All keys of the table.
    pub known: &'static [&'static str],
}

impl<'de> DeserializeSeed<'de> for Key {
    type Value = &'static str;

    fn deserialize<D: Deserializer<'de>>(self, from: D) -> Result<Self::Value, D::Error> {
        from.deserialize_identifier(self)
    }
}

impl Visitor<'_> for Key {
    type Value = &'static str;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the name of a setting")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
        let found = self.known.iter().find(|known| **known == text);
        found.copied().ok_or_else(|| {
            let (near, known) =
                (suggestion(text, self.known.iter().copied()), self.known.join(", "));
            E::custom(format!("unknown key '{text}'{near}; the keys are {known}"))
        })
    }
}

impl TrainingSettings {
    /// Reads the value of the key `name` from a file's table if `name` is a setting; otherwise the
    /// caller reads it.
    ///
    /// # Errors
    /// If the value is not one of this setting.
    pub fn read<'de, A: MapAccess<'de>>(
        &mut self,
        name: &str,
        map: &mut A,
    ) -> Result<bool, A::Error> {
        self.read_value(name, map)
    }

    /// Writes the settings into a table, for `#[serde(flatten)]`.
    ///
    /// # Errors
    /// The errors of the format.
    pub fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.write_values(&mut map)?;
        map.end()
    }
}

/// Reads the settings in the table of a record, and ignores its other keys. The table must have
/// every setting that files always contain, so defaults do not matter.
impl<'de> Deserialize<'de> for TrainingSettings {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_map(Recorded)
    }
}

struct Recorded;

impl<'de> Visitor<'de> for Recorded {
    type Value = TrainingSettings;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut settings = TrainingSettings::default();
        let mut left_out: Vec<&Setting> = SETTINGS.iter().collect();
        while let Some(name) = map.next_key::<String>()? {
            if settings.read_value(&name, &mut map)? {
                left_out.retain(|setting| setting.name != name);
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        for setting in left_out {
            let error = || A::Error::missing_field(setting.name);
            setting.leave_out(&mut settings).ok_or_else(error)?;
        }
        Ok(settings)
    }
}
