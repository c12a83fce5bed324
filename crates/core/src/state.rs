//! Saved state for resuming a run: named arrays, numbers and settings. With the feature `state`
//! also their file.

use std::collections::BTreeMap;

use crate::StateError;

#[cfg(feature = "state")]
mod file;

/// Saved state: arrays of floats or bytes, whole numbers and text settings, each by name.
///
/// Names are paths like `worker0/push/residual/fc.weight`; a prefix selects one owner's part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct State {
    arrays: BTreeMap<String, Array>,
    numbers: BTreeMap<String, u64>,
    settings: BTreeMap<String, String>,
}

impl State {
    /// An empty state.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets an array of bytes.
    pub fn set_bytes(&mut self, name: &str, bytes: Vec<u8>) {
        self.arrays.insert(name.to_owned(), Array::Bytes(bytes));
    }

    /// An array of bytes.
    ///
    /// # Errors
    /// [`StateError::Missing`] if there is none of that name.
    pub fn bytes(&self, name: &str) -> Result<&[u8], StateError> {
        match self.arrays.get(name) {
            Some(Array::Bytes(bytes)) => Ok(bytes),
            _ => Err(missing(name)),
        }
    }

    /// Sets an array of floats.
    pub fn set_floats(&mut self, name: &str, values: Vec<f32>) {
        self.arrays.insert(name.to_owned(), Array::Floats(values));
    }

    /// An array of floats.
    ///
    /// # Errors
    /// [`StateError::Missing`] if there is none of that name.
    pub fn floats(&self, name: &str) -> Result<&[f32], StateError> {
        self.arrays.get(name).and_then(Array::floats).ok_or_else(|| missing(name))
    }

    /// An array of `expected` floats.
    ///
    /// # Errors
    /// [`StateError::Missing`], or [`StateError::WrongSize`] for an array of another length.
    pub fn floats_of(&self, name: &str, expected: usize) -> Result<&[f32], StateError> {
        let floats = self.floats(name)?;
        if floats.len() != expected {
            let entry = name.to_owned();
            return Err(StateError::WrongSize { entry, found: floats.len(), expected });
        }
        Ok(floats)
    }

    /// The arrays of floats whose names start with `prefix`, in order, with the rest of their
    /// names.
    pub fn floats_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a [f32])> + use<'a> {
        under(&self.arrays, prefix).filter_map(|(rest, array)| Some((rest, array.floats()?)))
    }

    /// Keeps only the entries whose names `wanted` accepts.
    pub fn retain(&mut self, mut wanted: impl FnMut(&str) -> bool) {
        self.arrays.retain(|name, _| wanted(name));
        self.numbers.retain(|name, _| wanted(name));
        self.settings.retain(|name, _| wanted(name));
    }

    /// Sets a number.
    pub fn set_number(&mut self, name: &str, value: u64) {
        self.numbers.insert(name.to_owned(), value);
    }

    /// A number.
    ///
    /// # Errors
    /// [`StateError::Missing`] if there is none of that name.
    pub fn number(&self, name: &str) -> Result<u64, StateError> {
        self.numbers.get(name).copied().ok_or_else(|| missing(name))
    }

    /// Sets a setting.
    pub fn set_setting(&mut self, key: &str, value: impl Into<String>) {
        self.settings.insert(key.to_owned(), value.into());
    }

    /// A setting.
    ///
    /// # Errors
    /// [`StateError::Missing`] if there is none of that name.
    pub fn setting(&self, key: &str) -> Result<&str, StateError> {
        self.settings.get(key).map(String::as_str).ok_or_else(|| missing(key))
    }

    /// The settings whose names start with `prefix`, in order, with the rest of their names.
    pub fn settings_under<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, &'a str)> + use<'a> {
        under(&self.settings, prefix).map(|(rest, value)| (rest, value.as_str()))
    }

    /// Checks that a setting has the expected value.
    ///
    /// # Errors
    /// [`StateError::Mismatch`] if it has another value, [`StateError::Missing`] if it is absent.
    pub fn expect_setting(&self, key: &str, expected: &str) -> Result<(), StateError> {
        let found = self.setting(key)?;
        if found == expected {
            return Ok(());
        }
        Err(StateError::Mismatch {
            key: key.to_owned(),
            found: found.to_owned(),
            expected: expected.to_owned(),
        })
    }

    /// Adds all of `other`, with `prefix` before every name.
    pub fn merge(&mut self, prefix: &str, other: State) {
        let name = |name: String| format!("{prefix}{name}");
        self.arrays.extend(other.arrays.into_iter().map(|(key, value)| (name(key), value)));
        self.numbers.extend(other.numbers.into_iter().map(|(key, value)| (name(key), value)));
        self.settings.extend(other.settings.into_iter().map(|(key, value)| (name(key), value)));
    }

    /// A copy of the entries whose names start with `prefix`, without the prefix.
    pub fn extract(&self, prefix: &str) -> State {
        fn copy<V: Clone>(map: &BTreeMap<String, V>, prefix: &str) -> BTreeMap<String, V> {
            under(map, prefix).map(|(rest, value)| (rest.to_owned(), value.clone())).collect()
        }
        State {
            arrays: copy(&self.arrays, prefix),
            numbers: copy(&self.numbers, prefix),
            settings: copy(&self.settings, prefix),
        }
    }
}

/// The values of an array.
#[derive(Debug, Clone, PartialEq)]
enum Array {
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
}

impl Array {
    fn floats(&self) -> Option<&[f32]> {
        match self {
            Self::Floats(values) => Some(values),
            Self::Bytes(_) => None,
        }
    }
}

fn under<'a, V>(
    map: &'a BTreeMap<String, V>,
    prefix: &'a str,
) -> impl Iterator<Item = (&'a str, &'a V)> + use<'a, V> {
    map.range(prefix.to_owned()..)
        .map_while(move |(name, value)| name.strip_prefix(prefix).map(|rest| (rest, value)))
}

fn missing(name: &str) -> StateError {
    StateError::Missing(name.to_owned())
}

#[cfg(all(test, feature = "state"))]
mod tests;
