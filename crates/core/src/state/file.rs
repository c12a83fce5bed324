//! The file of a state.
//!
//! It is in the safetensors format, so other tools can show the arrays. Numbers, settings and a
//! checksum over everything are in its metadata. The format limits the metadata to 100 MB; a longer
//! text is an array of bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use safetensors::SafeTensorError;
use safetensors::tensor::{Dtype, SafeTensors, TensorView, View, serialize};

use super::{Array, State};
use crate::{StateError, files};

const METADATA_KEY: &str = "gradwire";
/// The metadata begins with this, followed by the version.
const FORMAT: &str = "state\t";
/// The version of this format.
const VERSION: &str = "2";

impl State {
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
