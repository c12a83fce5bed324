//! Settings as keys of a file's table, among other keys.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::ser::{SerializeMap, Serializer};

use super::training::{SETTINGS, TrainingSettings};

/// Reads a key of a table; refuses a key that is not in `known`, and lists the known ones.
///
/// A derived `Deserialize` with `flatten` could not: it ignores unknown keys, and its errors do not say in which line
/// of the file a value is.
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
        found.copied().ok_or_else(|| E::unknown_field(text, self.known))
    }
}

impl TrainingSettings {
    /// Reads the value of the key `name` from a file's table if it is a setting; else the caller reads it.
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

    /// Reads the settings in a table, and ignores other keys. Returns the names of the settings found.
    pub(crate) fn read_all<'de, D: Deserializer<'de>>(
        &mut self,
        from: D,
    ) -> Result<Vec<&'static str>, D::Error> {
        from.deserialize_map(All(self, PhantomData))
    }

    /// Writes the settings into a table, for `#[serde(flatten)]`.
    ///
    /// # Errors
    /// Those of the format.
    pub fn write<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut map = to.serialize_map(None)?;
        self.write_values(&mut map)?;
        map.end()
    }
}

/// The key of the exchange in records of earlier versions.
const OLD_NAME_OF_EXCHANGE: &str = "strategy";

/// Reads all settings in a table.
struct All<'a, 'de>(&'a mut TrainingSettings, PhantomData<&'de ()>);

impl<'de> Visitor<'de> for All<'_, 'de> {
    type Value = Vec<&'static str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("settings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            let name = if name == OLD_NAME_OF_EXCHANGE { "exchange" } else { &name };
            match SETTINGS.iter().find(|setting| setting.name == name) {
                Some(setting) => {
                    self.0.read_value(setting.name, &mut map)?;
                    found.push(setting.name);
                }
                None => drop(map.next_value::<serde::de::IgnoredAny>()?),
            }
        }
        Ok(found)
    }
}
