//! Saved state for resuming a run: named arrays, numbers and settings, and their file.
//!
//! The file is in the safetensors format, so other tools can show the arrays. Numbers, settings and
//! a checksum over everything are in its metadata. The format limits the metadata to 100 MB; a
//! longer text is an array of bytes.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View, serialize};

use crate::{StateError, files};

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

    /// The file's bytes; equal states give equal bytes.
    ///
    /// # Errors
    /// [`StateError::TooLarge`] if names, numbers and settings exceed the 100 MB that the format
    /// allows.
    pub fn to_bytes(&self) -> Result<Vec<u8>, StateError> {
        let entries = self.entries();
        let notes = format!("{}checksum\t{:08x}\n", entries, self.checksum(&entries));
        let metadata = HashMap::from([(METADATA_KEY.to_owned(), notes)]);
        let arrays = self.arrays.iter().map(|(name, array)| (name, ArrayView::new(array)));
        serialize(arrays, Some(metadata)).map_err(|error| match error {
            SafeTensorError::HeaderTooLarge => StateError::TooLarge,
            error => damaged(error),
        })
    }

    /// Reads a file's bytes.
    ///
    /// # Errors
    /// [`StateError::Damaged`] if they are not a state, or any bit has changed since writing.
    pub fn from_bytes(bytes: &[u8]) -> Result<State, StateError> {
        let (_, metadata) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let notes = metadata
            .metadata()
            .as_ref()
            .and_then(|metadata| metadata.get(METADATA_KEY))
            .ok_or_else(|| damaged("it has no gradwire metadata"))?;
        let (entries, checksum) =
            notes.rsplit_once("checksum\t").ok_or_else(|| damaged("it has no checksum"))?;
        let mut state = State::new();
        state.read_entries(entries)?;
        for (name, view) in SafeTensors::deserialize(bytes).map_err(damaged)?.tensors() {
            let array = Array::of(&view).ok_or_else(|| {
                damaged(format_args!("array '{name}' has neither 32-bit floats nor bytes"))
            })?;
            state.arrays.insert(name, array);
        }
        if checksum.trim_end() != format!("{:08x}", state.checksum(entries)) {
            return Err(damaged("its checksum does not match its content"));
        }
        Ok(state)
    }

    /// Writes the file as [`files::write_atomic`] does: the path has either the previous file or
    /// all of the new one.
    ///
    /// # Errors
    /// The errors of the file system and of [`to_bytes`](Self::to_bytes).
    pub fn write_atomic(&self, path: impl AsRef<Path>) -> Result<(), StateError> {
        let path = path.as_ref();
        let bytes = self.to_bytes()?;
        files::write_atomic(path, &bytes)
            .map_err(|source| StateError::File { path: path.to_owned(), source })
    }

    /// Reads the file at `path`.
    ///
    /// # Errors
    /// [`StateError::File`] if it cannot be read, and the errors of
    /// [`from_bytes`](Self::from_bytes).
    pub fn read(path: impl AsRef<Path>) -> Result<State, StateError> {
        let path = path.as_ref();
        let bytes = files::read(path)
            .map_err(|source| StateError::File { path: path.to_owned(), source })?;
        State::from_bytes(&bytes)
    }

    /// Whether the file at `path` begins as a state does. The rest may be damaged.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn begins(path: impl AsRef<Path>) -> io::Result<bool> {
        let start = format!("{{\"__metadata__\":{{\"{METADATA_KEY}\":\"state");
        // The start follows the length of the header.
        let mut bytes = vec![0; 8 + start.len()];
        match File::open(path)?.read_exact(&mut bytes) {
            Ok(()) => Ok(bytes[8..] == *start.as_bytes()),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Numbers and settings, each in a line: kind, name and value, separated by tabs.
    fn entries(&self) -> String {
        let mut lines = format!("{FORMAT}{VERSION}\n");
        for (name, value) in &self.numbers {
            lines += &format!("number\t{}\t{value}\n", escape(name));
        }
        for (name, value) in &self.settings {
            lines += &format!("setting\t{}\t{}\n", escape(name), escape(value));
        }
        lines
    }

    fn read_entries(&mut self, entries: &str) -> Result<(), StateError> {
        let (version, lines) = entries
            .strip_prefix(FORMAT)
            .and_then(|rest| rest.split_once('\n'))
            .ok_or_else(|| damaged("its metadata does not begin with a version"))?;
        if version != VERSION {
            let why = format!("it has version {version}, but this program reads version {VERSION}");
            return Err(damaged(why));
        }
        for line in lines.lines() {
            self.read_entry(line)
                .ok_or_else(|| damaged(format_args!("metadata line '{line}' is malformed")))?;
        }
        Ok(())
    }

    fn read_entry(&mut self, line: &str) -> Option<()> {
        match line.split('\t').collect::<Vec<_>>()[..] {
            ["number", name, value] => {
                self.numbers.insert(unescape(name)?, value.parse().ok()?);
            }
            ["setting", name, value] => {
                self.settings.insert(unescape(name)?, unescape(value)?);
            }
            _ => return None,
        }
        Some(())
    }

    /// CRC-32 of the entries and, in order, of every array's name, length and values.
    fn checksum(&self, entries: &str) -> u32 {
        let mut crc = crc32fast::Hasher::new();
        let mut add = |bytes: &[u8]| {
            crc.update(&(bytes.len() as u64).to_le_bytes());
            crc.update(bytes);
        };
        add(entries.as_bytes());
        for (name, array) in &self.arrays {
            add(name.as_bytes());
            add(&array.to_bytes());
        }
        crc.finalize()
    }
}

const METADATA_KEY: &str = "gradwire";
/// The metadata begins with this, followed by the version.
const FORMAT: &str = "state\t";
/// The version of this format.
const VERSION: &str = "2";

/// The values of an array.
#[derive(Debug, Clone, PartialEq)]
enum Array {
    Floats(Vec<f32>),
    Bytes(Vec<u8>),
}

impl Array {
    /// The array in a file; `None` if it has another type.
    fn of(view: &TensorView<'_>) -> Option<Self> {
        match view.dtype() {
            Dtype::F32 => {
                let chunks = view.data().as_chunks::<4>().0;
                Some(Self::Floats(chunks.iter().map(|b| f32::from_le_bytes(*b)).collect()))
            }
            Dtype::U8 => Some(Self::Bytes(view.data().to_vec())),
            _ => None,
        }
    }

    fn floats(&self) -> Option<&[f32]> {
        match self {
            Self::Floats(values) => Some(values),
            Self::Bytes(_) => None,
        }
    }

    /// The values as they are in the file.
    fn to_bytes(&self) -> Cow<'_, [u8]> {
        match self {
            Self::Floats(values) => {
                let mut bytes = vec![0; 4 * values.len()];
                for (bytes, value) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
                bytes.into()
            }
            Self::Bytes(bytes) => bytes.into(),
        }
    }
}

/// An array as safetensors sees it.
struct ArrayView<'a> {
    array: &'a Array,
    shape: [usize; 1],
}

impl<'a> ArrayView<'a> {
    fn new(array: &'a Array) -> Self {
        let shape = match array {
            Array::Floats(values) => [values.len()],
            Array::Bytes(bytes) => [bytes.len()],
        };
        Self { array, shape }
    }
}

impl View for ArrayView<'_> {
    fn dtype(&self) -> Dtype {
        match self.array {
            Array::Floats(_) => Dtype::F32,
            Array::Bytes(_) => Dtype::U8,
        }
    }

    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn data(&self) -> Cow<'_, [u8]> {
        self.array.to_bytes()
    }

    fn data_len(&self) -> usize {
        match self.array {
            Array::Floats(values) => 4 * values.len(),
            Array::Bytes(bytes) => bytes.len(),
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

fn damaged(why: impl ToString) -> StateError {
    StateError::Damaged(why.to_string())
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\t', "\\t").replace('\n', "\\n").replace('\r', "\\r")
}

fn unescape(text: &str) -> Option<String> {
    let (mut plain, mut rest) = (String::new(), text.chars());
    while let Some(character) = rest.next() {
        plain.push(match character {
            '\\' => match rest.next()? {
                '\\' => '\\',
                't' => '\t',
                'n' => '\n',
                'r' => '\r',
                _ => return None,
            },
            other => other,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests;
