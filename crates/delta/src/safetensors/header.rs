//! The header of a `.safetensors` file: names, types, shapes and places of its tensors.
//!
//! A file is eight bytes with the length of the header, the header (JSON), and the data, without
//! gaps. <https://github.com/huggingface/safetensors#format>

use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::{Map, Value};

use crate::ElementType;

/// The bytes before the header.
pub(crate) const PREFIX: usize = 8;
/// The longest header that readers of the format accept.
const LONGEST: u64 = 100_000_000;
/// The name that is no tensor's.
const METADATA: &str = "__metadata__";

/// A tensor of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Its type. A type that [`ElementType`] lacks, such as packed elements of four bits, counts as
    /// bytes.
    pub element: ElementType,
    /// Its shape; of a tensor that counts as bytes, the number of bytes.
    pub shape: Vec<u64>,
    /// The place of its data in the file.
    pub place: Range<u64>,
}

impl Entry {
    /// The number of elements.
    pub fn elements(&self) -> u64 {
        (self.place.end - self.place.start) / self.element.width() as u64
    }
}

/// The header of a file. Its bytes are kept as they are, so the file can be written again exactly.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileHeader {
    bytes: Vec<u8>,
    entries: Vec<Entry>,
}

impl FileHeader {
    /// The length of the header and the eight bytes before it, from these eight bytes.
    pub(crate) fn len_of(prefix: [u8; PREFIX]) -> Result<usize, String> {
        let len = u64::from_le_bytes(prefix);
        if len > LONGEST {
            return Err(format!(
                "its header would have {len} bytes, but the longest has {LONGEST}; this is no \
                 .safetensors file, or it is damaged: copy it again"
            ));
        }
        Ok(PREFIX + len as usize)
    }

    /// Parses a header with the eight bytes before it.
    ///
    /// # Errors
    /// What is wrong with it. Tensors must fill the data without gaps and overlaps.
    pub(crate) fn parse(bytes: Vec<u8>) -> Result<Self, String> {
        let prefix = bytes.first_chunk().ok_or("it has no header; copy it again")?;
        let end = Self::len_of(*prefix)?;
        if bytes.len() != end {
            return Err(format!(
                "its header is cut off after {} bytes; copy it again",
                bytes.len()
            ));
        }
        let Parsed(raw) = serde_json::from_slice(&bytes[PREFIX..]).map_err(|error| {
            let error = error.to_string();
            format!("its header is not valid ({}); copy it again", error.escape_debug())
        })?;
        let mut entries = raw
            .into_iter()
            .map(|(name, raw)| raw.entry(name, end))
            .collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(|entry| (entry.place.start, entry.place.end));
        let mut next = end as u64;
        for entry in &entries {
            if entry.place.start != next {
                return Err(format!(
                    "the data of tensor '{}' begins at byte {}, not at {next}; copy the file again",
                    entry.name.escape_debug(),
                    entry.place.start
                ));
            }
            next = entry.place.end;
        }
        Ok(Self { bytes, entries })
    }

    /// The header of a new file with these tensors one after the other; only the lengths of their
    /// places count.
    ///
    /// # Errors
    /// A header that is too long; names that occur twice, or that the format reserves.
    pub(crate) fn build(entries: Vec<Entry>) -> Result<Self, String> {
        let mut text = HeaderText::default();
        for entry in entries {
            text.tensor(&entry, &entry.element.name().into(), &entry.shape.clone().into())?;
        }
        text.finish()
    }

    /// The header after tensors are removed and others are added behind the rest; what the header
    /// says besides stays.
    ///
    /// # Errors
    /// As for [`build`](Self::build).
    pub(crate) fn with(
        &self,
        is_removed: impl Fn(&str) -> bool,
        added: Vec<Entry>,
    ) -> Result<Self, String> {
        let raw: Map<String, Value> =
            serde_json::from_slice(&self.bytes[PREFIX..]).map_err(|error| error.to_string())?;
        let kept = self.entries.iter().filter(|entry| !is_removed(&entry.name)).cloned();
        let mut text = HeaderText::default();
        if let Some(metadata) = raw.get(METADATA) {
            text.push(METADATA, &metadata.to_string());
        }
        for entry in kept {
            let described = &raw[&entry.name];
            text.tensor(&entry, &described["dtype"], &described["shape"])?;
        }
        for entry in added {
            text.tensor(&entry, &entry.element.name().into(), &entry.shape.clone().into())?;
        }
        text.finish()
    }

    /// The header, with the eight bytes before it.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The tensors in the order of their data.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The length of the file.
    pub fn file_len(&self) -> u64 {
        self.entries.last().map_or(self.bytes.len() as u64, |last| last.place.end)
    }
}

/// The text of a header, and the bytes of data that it describes.
#[derive(Debug, Default)]
struct HeaderText {
    text: String,
    names: HashSet<String>,
    data: u64,
}

impl HeaderText {
    fn push(&mut self, name: &str, value: &str) {
        self.text.push(if self.text.is_empty() { '{' } else { ',' });
        self.text += &Value::from(name).to_string();
        self.text.push(':');
        self.text += value;
    }

    /// Adds a tensor behind the others.
    fn tensor(&mut self, entry: &Entry, dtype: &Value, shape: &Value) -> Result<(), String> {
        if entry.name == METADATA || !self.names.insert(entry.name.clone()) {
            let name = entry.name.escape_debug();
            return Err(format!(
                "a .safetensors file cannot hold a tensor of the name '{name}', which is reserved \
                 or occurs twice; rename the tensor"
            ));
        }
        let start = self.data;
        self.data += entry.place.end - entry.place.start;
        let end = self.data;
        let value =
            format!(r#"{{"dtype":{dtype},"shape":{shape},"data_offsets":[{start},{end}]}}"#);
        self.push(&entry.name, &value);
        Ok(())
    }

    fn finish(mut self) -> Result<FileHeader, String> {
        if self.text.is_empty() {
            self.text.push('{');
        }
        self.text.push('}');
        // The data begins at a multiple of eight bytes.
        let spaces = self.text.len().next_multiple_of(8) - self.text.len();
        self.text += &" ".repeat(spaces);
        if self.text.len() as u64 > LONGEST {
            return Err(format!(
                "the names and shapes take {} bytes, but a .safetensors file has room for \
                 {LONGEST}; use shorter names",
                self.text.len()
            ));
        }
        let len = (self.text.len() as u64).to_le_bytes();
        FileHeader::parse([&len, self.text.as_bytes()].concat())
    }
}

/// A tensor as the header describes it.
#[derive(Debug, Deserialize)]
struct RawEntry {
    dtype: String,
    shape: Vec<u64>,
    data_offsets: (u64, u64),
}

impl RawEntry {
    /// The tensor, in a file whose data begins at `data`.
    fn entry(self, name: String, data: usize) -> Result<Entry, String> {
        let shown = name.escape_debug().to_string();
        let refused = |what: &str| format!("tensor '{shown}' {what}; copy the file again");
        let (begin, end) = self.data_offsets;
        let bytes = end.checked_sub(begin).ok_or_else(|| refused("ends before it begins"))?;
        let start = begin.checked_add(data as u64);
        let end = end.checked_add(data as u64).filter(|&end| i64::try_from(end).is_ok());
        let (Some(start), Some(end)) = (start, end) else {
            return Err(refused("lies outside the file"));
        };
        let (element, shape) = match ElementType::from_name(&self.dtype) {
            Some(element) => (element, self.shape),
            None => (ElementType::U8, vec![bytes]),
        };
        let width = element.width() as u64;
        let size = shape.iter().try_fold(width, |size, &side| size.checked_mul(side));
        if size != Some(bytes) {
            return Err(refused(&format!("of shape {shape:?} does not fit its {bytes} bytes")));
        }
        Ok(Entry { name, element, shape, place: start..end })
    }
}

/// The tensors of a header, in the order of the text.
struct Parsed(Vec<(String, RawEntry)>);

impl<'de> Deserialize<'de> for Parsed {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(Entries)
    }
}

/// Collects the tensors. A map would keep the last of two with one name.
struct Entries;

impl<'de> Visitor<'de> for Entries {
    type Value = Parsed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a tensor for each name")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Parsed, M::Error> {
        let (mut entries, mut names) = (Vec::new(), HashSet::new());
        while let Some(name) = map.next_key::<String>()? {
            if !names.insert(name.clone()) {
                let twice = format!("the name '{name}' occurs twice");
                return Err(serde::de::Error::custom(twice));
            }
            if name == METADATA {
                map.next_value::<BTreeMap<String, String>>()?;
            } else {
                entries.push((name, map.next_value()?));
            }
        }
        Ok(Parsed(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<FileHeader, String> {
        FileHeader::parse([&(json.len() as u64).to_le_bytes(), json.as_bytes()].concat())
    }

    #[test]
    fn a_header_by_hand() {
        let json = r#"{"b":{"dtype":"F4","shape":[2,2],"data_offsets":[4,6]},
            "__metadata__":{"format":"pt"},
            "a":{"dtype":"BF16","shape":[2,1],"data_offsets":[0,4]},
            "none":{"dtype":"F32","shape":[0],"data_offsets":[6,6]}}"#;
        let header = parse(json).unwrap();
        let data = json.len() as u64 + 8;
        let entry = |name: &str, element, shape: &[u64], place: Range<u64>| Entry {
            name: name.to_owned(),
            element,
            shape: shape.to_vec(),
            place: data + place.start..data + place.end,
        };
        let expected = [
            entry("a", ElementType::Bf16, &[2, 1], 0..4),
            entry("b", ElementType::U8, &[2], 4..6),
            entry("none", ElementType::F32, &[0], 6..6),
        ];
        assert_eq!(header.entries(), expected);
        assert_eq!(header.file_len(), data + 6);
        assert_eq!(parse("{}  ").unwrap().file_len(), 12);
    }

    #[test]
    fn what_lies_outside_or_overlaps_or_has_gaps_is_refused() {
        let two = |a: &str, b: &str| {
            format!(
                r#"{{"a":{{"dtype":"U8","shape":[4],"data_offsets":{a}}},"b":{{"dtype":"U8","shape":[4],"data_offsets":{b}}}}}"#
            )
        };
        assert!(parse(&two("[0,4]", "[4,8]")).is_ok());
        let large = u64::MAX;
        for (json, says) in [
            (two("[0,4]", "[3,7]"), "'b' begins at byte"),
            (two("[0,4]", "[5,9]"), "'b' begins at byte"),
            (two("[1,5]", "[5,9]"), "'a' begins at byte"),
            (two("[0,4]", "[8,4]"), "ends before"),
            (two("[0,4]", "[4,9]"), "does not fit its 5 bytes"),
            (two("[0,4]", &format!("[{},{large}]", large - 4)), "outside the file"),
            (two("[0,4]", "[4,8]").replace("\"b\"", "\"a\""), "occurs twice"),
            (two("[0,4]", "[4,8]").replace("[4]", "[4294967296,4294967296,4]"), "does not fit"),
            (two("[0,4]", "[-4,8]"), "not valid"),
            ("[]".to_owned(), "not valid"),
            (r#"{"a\u001b":{"dtype":"U8"}}"#.to_owned(), "not valid"),
        ] {
            let error = parse(&json).unwrap_err();
            assert!(error.contains(says), "{json}: {error}");
        }
        assert!(FileHeader::parse(vec![0; 7]).unwrap_err().contains("no header"));
        assert!(FileHeader::parse(vec![0xff; 9]).unwrap_err().contains("longest"));
        assert!(
            FileHeader::parse(vec![9, 0, 0, 0, 0, 0, 0, 0, b'{']).unwrap_err().contains("cut off")
        );
    }

    #[test]
    fn the_library_of_the_format_reads_what_is_built() {
        let entry = |name: &str, element, shape: &[u64], bytes: u64| Entry {
            name: name.to_owned(),
            element,
            shape: shape.to_vec(),
            place: 0..bytes,
        };
        let header = FileHeader::build(vec![
            entry("z\"\n", ElementType::Bf16, &[3, 2], 12),
            entry("none", ElementType::F8E4m3, &[0, 7], 0),
            entry("a", ElementType::I64, &[], 8),
        ])
        .unwrap();
        let mut file = header.bytes().to_vec();
        assert_eq!(file.len() % 8, 0);
        file.extend(0..20);
        let read = safetensors::SafeTensors::deserialize(&file).unwrap();
        assert_eq!(read.len(), 3);
        let z = read.tensor("z\"\n").unwrap();
        assert_eq!((z.dtype(), z.shape()), (safetensors::Dtype::BF16, &[3, 2][..]));
        assert_eq!(z.data(), (0..12).collect::<Vec<u8>>());
        assert_eq!(read.tensor("a").unwrap().data(), (12..20).collect::<Vec<u8>>());
        // Without `z` and with another tensor; metadata and types stay as they were.
        let json = r#"{"z":{"dtype":"U8","shape":[1],"data_offsets":[3,4]},"__metadata__":{"x":"y"},
            "q":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}"#;
        let changed = parse(json).unwrap();
        let changed =
            changed.with(|name| name == "z", vec![entry("n", ElementType::F32, &[1], 4)]).unwrap();
        let text = std::str::from_utf8(&changed.bytes()[8..]).unwrap();
        assert_eq!(
            text.trim_end(),
            r#"{"__metadata__":{"x":"y"},"q":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]},"n":{"dtype":"F32","shape":[1],"data_offsets":[3,7]}}"#
        );
        let twice = vec![entry("a", ElementType::U8, &[1], 1); 2];
        assert!(FileHeader::build(twice).unwrap_err().contains("occurs twice"));
    }
}
