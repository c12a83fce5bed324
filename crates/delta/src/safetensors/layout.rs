//! What the files of a checkpoint hold besides weights: their names, headers and index.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Deserialize;
use serde_json::Value;

use super::header::{Entry, FileHeader};
use crate::files::names::is_plain;

/// The ending of an index.
pub(super) const INDEX: &str = ".safetensors.index.json";
/// The ending of a file with weights.
pub(super) const WEIGHTS: &str = ".safetensors";
/// The most files of a checkpoint.
const MOST_SHARDS: usize = 1 << 16;

/// The files of a checkpoint without the weights: enough to write them again exactly. Files of a
/// folder that hold no weights, such as `config.json`, are not part of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Whether the files are in a folder of their own.
    pub(crate) in_folder: bool,
    /// The index of a folder: `model.safetensors.index.json`, as it is.
    pub(crate) index: Option<Index>,
    /// The files with weights. A single file that is in no folder of its own has any name.
    pub(crate) shards: Vec<Shard>,
}

/// The file that says which tensor is in which file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

/// A file with weights.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Shard {
    pub(crate) name: String,
    pub(crate) header: FileHeader,
}

/// The index as its file has it.
#[derive(Deserialize)]
struct WeightMap {
    weight_map: BTreeMap<String, String>,
}

impl Index {
    /// The names of the files that the index mentions, sorted.
    pub(crate) fn shards(&self) -> Result<Vec<String>, String> {
        let mut names: Vec<_> = self.map()?.into_values().collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err("its weight_map names no file; copy it again".to_owned());
        }
        names.iter().try_for_each(|name| check_name(name, WEIGHTS))?;
        Ok(names)
    }

    fn map(&self) -> Result<BTreeMap<String, String>, String> {
        let parsed: Result<WeightMap, _> = serde_json::from_slice(&self.bytes);
        parsed.map(|index| index.weight_map).map_err(|error| {
            let error = error.to_string();
            format!("it is no index of weights ({}); copy it again", error.escape_debug())
        })
    }

    /// The index after tensors are removed, and others are added to a file.
    fn with(
        &self,
        removed: &HashSet<String>,
        names: &[String],
        file: &str,
    ) -> Result<Self, String> {
        let mut index: Value =
            serde_json::from_slice(&self.bytes).map_err(|error| error.to_string())?;
        let map = index["weight_map"].as_object_mut().ok_or("the index has no weight_map")?;
        map.retain(|name, _| !removed.contains(name));
        map.extend(names.iter().map(|name| (name.clone(), file.into())));
        // It would be wrong now, and readers do not need it.
        if let Some(metadata) = index["metadata"].as_object_mut() {
            metadata.remove("total_size");
        }
        let bytes = format!("{index:#}\n").into_bytes();
        Ok(Self { name: self.name.clone(), bytes })
    }

    /// Checks that each tensor is in the file that the index names.
    fn check(&self, shards: &[Shard]) -> Result<(), String> {
        let entries = |shard: &'_ Shard| {
            let names = shard.header.entries().iter().map(|entry| entry.name.clone());
            names.map(|name| (name, shard.name.clone())).collect::<Vec<_>>()
        };
        let held: HashMap<String, String> = shards.iter().flat_map(entries).collect();
        for (tensor, shard) in self.map()? {
            if held.get(&tensor) != Some(&shard) {
                let [tensor, shard] = [&tensor, &shard].map(|text| text.escape_debug());
                return Err(format!(
                    "it says that tensor '{tensor}' is in '{shard}', but it is not; copy the \
                     folder again"
                ));
            }
        }
        Ok(())
    }
}

impl Layout {
    /// Whether the files are the same but for the weights. The name of a file that is in no folder
    /// of its own does not count.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        if self.in_folder || other.in_folder {
            return self == other;
        }
        self.shards.iter().map(|shard| &shard.header).eq(other.shards.iter().map(|s| &s.header))
    }

    /// The names of the files with weights.
    pub fn names(&self) -> Vec<String> {
        self.shards.iter().map(|shard| shard.name.clone()).collect()
    }

    /// One file with these tensors, in their order.
    ///
    /// # Errors
    /// As for [`FileHeader::build`].
    pub(crate) fn file(tensors: Vec<Entry>) -> Result<Self, String> {
        let header = FileHeader::build(tensors)?;
        let shards = vec![Shard { name: "model.safetensors".to_owned(), header }];
        Ok(Self { in_folder: false, index: None, shards })
    }

    /// The layout after tensors are removed, and others are added to the last file.
    ///
    /// # Errors
    /// As for [`FileHeader::build`].
    pub(crate) fn with(
        &self,
        removed: &HashSet<String>,
        added: Vec<Entry>,
    ) -> Result<Self, String> {
        let names: Vec<String> = added.iter().map(|entry| entry.name.clone()).collect();
        let (mut added, last) = (Some(added), self.shards.len() - 1);
        let mut shards = Vec::new();
        for (at, shard) in self.shards.iter().enumerate() {
            let added = if at == last { added.take().unwrap_or_default() } else { Vec::new() };
            let header = shard.header.with(|name| removed.contains(name), added)?;
            shards.push(Shard { name: shard.name.clone(), header });
        }
        let file = &self.shards[last].name;
        let index = self.index.as_ref().map(|index| index.with(removed, &names, file));
        Ok(Self { in_folder: self.in_folder, index: index.transpose()?, shards })
    }

    /// Checks that the files agree with each other.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut places: HashMap<&str, &str> = HashMap::new();
        for shard in &self.shards {
            for entry in shard.header.entries() {
                if let Some(other) = places.insert(&entry.name, &shard.name) {
                    let name = entry.name.escape_debug();
                    let [other, shard] = [other, &shard.name].map(str::escape_debug);
                    return Err(format!(
                        "tensor '{name}' is in '{other}' and in '{shard}'; remove one of these \
                         files"
                    ));
                }
            }
        }
        self.index.as_ref().map_or(Ok(()), |index| index.check(&self.shards))
    }

    /// Appends the layout as bytes; [`read`](Self::read) is the inverse.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.push(u8::from(self.in_folder));
        out.push(u8::from(self.index.is_some()));
        if let Some(index) = &self.index {
            block(out, index.name.as_bytes());
            block(out, &index.bytes);
        }
        block(out, &(self.shards.len() as u32).to_le_bytes());
        for shard in &self.shards {
            block(out, shard.name.as_bytes());
            block(out, shard.header.bytes());
        }
    }

    /// Reads a layout from bytes.
    ///
    /// # Errors
    /// What is wrong with them; in particular names that would leave a folder.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, String> {
        let damaged = || "the description of its files is damaged; copy it again".to_owned();
        let flag = |byte: u8| if byte < 2 { Ok(byte == 1) } else { Err(damaged()) };
        let (&[in_folder, indexed], mut rest) = bytes.split_first_chunk().ok_or_else(damaged)?;
        let in_folder = flag(in_folder)?;
        // The name of a single file is not used: the file that it is written to has any name.
        let ending = if in_folder { WEIGHTS } else { "" };
        let index = match flag(indexed)? {
            true if !in_folder => return Err(damaged()),
            true => Some(Index {
                name: name_of(taken(&mut rest).ok_or_else(damaged)?, INDEX)?,
                bytes: taken(&mut rest).ok_or_else(damaged)?.to_vec(),
            }),
            false => None,
        };
        let count = taken(&mut rest).and_then(|bytes| bytes.try_into().ok());
        let count = u32::from_le_bytes(count.ok_or_else(damaged)?) as usize;
        if count == 0 || count > MOST_SHARDS || count > 1 && !in_folder {
            return Err(damaged());
        }
        let mut shards = Vec::new();
        for _ in 0..count {
            let name = name_of(taken(&mut rest).ok_or_else(damaged)?, ending)?;
            let header = FileHeader::parse(taken(&mut rest).ok_or_else(damaged)?.to_vec())?;
            shards.push(Shard { name, header });
        }
        let mut names: Vec<&str> = shards.iter().map(|shard| shard.name.as_str()).collect();
        names.extend(index.as_ref().map(|index| index.name.as_str()));
        names.sort_unstable();
        if !rest.is_empty() || names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(damaged());
        }
        if let Some(index) = &index {
            index.shards()?;
        }
        let layout = Self { in_folder, index, shards };
        layout.check()?;
        Ok(layout)
    }
}

/// Appends bytes with their length before them.
fn block(out: &mut Vec<u8>, bytes: &[u8]) {
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(bytes);
}

/// Takes bytes with their length before them.
fn taken<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (len, after) = rest.split_first_chunk()?;
    let (bytes, after) = after.split_at_checked(u32::from_le_bytes(*len) as usize)?;
    *rest = after;
    Some(bytes)
}

/// A name of a file, from bytes that anybody may have made.
fn name_of(bytes: &[u8], ending: &str) -> Result<String, String> {
    let name = str::from_utf8(bytes).map_err(|_| {
        let shown = String::from_utf8_lossy(bytes).escape_debug().to_string();
        format!("it names the file '{shown}', which is not UTF-8; do not use it")
    })?;
    check_name(name, ending)?;
    Ok(name.to_owned())
}

/// Refuses names of files outside the folder, and of other kinds of files, such as the log of a
/// patch.
fn check_name(name: &str, ending: &str) -> Result<(), String> {
    let shown = name.escape_debug();
    if !is_plain(name) {
        return Err(format!(
            "it names the file '{shown}', which would be outside its folder; do not use it"
        ));
    }
    if !name.ends_with(ending) {
        return Err(format!(
            "it names the file '{shown}', but the name must end in '{ending}'; do not use it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(names: &[&str]) -> FileHeader {
        let entry = |name: &&str| super::super::header::Entry {
            name: (*name).to_owned(),
            element: crate::ElementType::U8,
            shape: vec![1],
            place: 0..1,
        };
        FileHeader::build(names.iter().map(entry).collect()).unwrap()
    }

    fn folder(map: &str) -> Layout {
        let bytes = format!(r#"{{"metadata":{{"total_size":3}},"weight_map":{map}}}"#);
        let shard =
            |name: &str, tensors: &[&str]| Shard { name: name.to_owned(), header: header(tensors) };
        Layout {
            in_folder: true,
            index: Some(Index {
                name: "m.safetensors.index.json".to_owned(),
                bytes: bytes.into_bytes(),
            }),
            shards: vec![shard("x.safetensors", &["a", "c"]), shard("y.safetensors", &["b"])],
        }
    }

    #[test]
    fn bytes_lead_back_and_damage_is_refused() {
        let layout = folder(r#"{"a":"x.safetensors","b":"y.safetensors","c":"x.safetensors"}"#);
        let mut bytes = Vec::new();
        layout.write(&mut bytes);
        assert_eq!(Layout::read(&bytes).unwrap(), layout);
        for len in 0..bytes.len() {
            assert!(Layout::read(&bytes[..len]).is_err(), "{len}");
        }
        bytes.push(0);
        assert!(Layout::read(&bytes).unwrap_err().contains("damaged"));
        let mut out = layout.clone();
        out.shards[1].name = "../y".to_owned();
        bytes.clear();
        out.write(&mut bytes);
        assert!(Layout::read(&bytes).unwrap_err().contains("outside its folder"));
    }

    #[test]
    fn a_description_names_weights_and_their_index_only() {
        let layout = folder(r#"{"b":"y.safetensors"}"#);
        let read = |layout: &Layout| {
            let mut bytes = Vec::new();
            layout.write(&mut bytes);
            Layout::read(&bytes)
        };
        assert_eq!(read(&layout).unwrap(), layout);
        for name in ["gradwire.redo", "gradwire.lock", "config.json", "x.safetensors.py"] {
            let mut bad = layout.clone();
            bad.shards[0].name = name.to_owned();
            assert!(read(&bad).unwrap_err().contains("end in '.safetensors'"), "{name}");
            let mut bad = layout.clone();
            bad.index.as_mut().unwrap().name = name.to_owned();
            assert!(read(&bad).unwrap_err().contains("end in '.safetensors.index.json'"), "{name}");
        }
        assert!(read(&folder("{}")).unwrap_err().contains("names no file"));
        assert!(name_of(b"\xff.safetensors", WEIGHTS).unwrap_err().contains("UTF-8"));
        // A single file has any name, but no index.
        let shards = vec![layout.shards[1].clone()];
        let mut single = Layout { in_folder: false, index: layout.index, shards };
        assert!(read(&single).unwrap_err().contains("damaged"));
        single.index = None;
        single.shards[0].name = "weights".to_owned();
        assert_eq!(read(&single).unwrap(), single);
    }

    #[test]
    fn tensors_come_and_go() {
        let layout = folder(r#"{"a":"x.safetensors","b":"y.safetensors","c":"x.safetensors"}"#);
        let entry = layout.shards[1].header.entries()[0].clone();
        let added = ["b", "d"].map(|name| Entry { name: name.to_owned(), ..entry.clone() });
        let removed = HashSet::from(["b".to_owned(), "c".to_owned()]);
        let changed = layout.with(&removed, added.to_vec()).unwrap();
        changed.check().unwrap();
        let names = changed.shards.iter().map(|shard| {
            shard.header.entries().iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>()
        });
        assert_eq!(names.collect::<Vec<_>>(), [vec!["a"], vec!["b", "d"]]);
        let map = changed.index.as_ref().unwrap().map().unwrap();
        let expected = [("a", "x.safetensors"), ("b", "y.safetensors"), ("d", "y.safetensors")];
        assert!(map.iter().map(|(a, b)| (a.as_str(), b.as_str())).eq(expected));
    }

    #[test]
    fn an_index_agrees_with_its_files() {
        assert!(
            folder(r#"{"a":"x.safetensors","b":"x.safetensors","c":"x.safetensors"}"#)
                .check()
                .unwrap_err()
                .contains("'b'")
        );
        assert!(
            folder(r#"{"a":"x.safetensors","d":"y.safetensors"}"#)
                .check()
                .unwrap_err()
                .contains("'d'")
        );
        let index = |map: &str| folder(map).index.unwrap().shards();
        assert_eq!(
            index(r#"{"a":"x.safetensors","b":"y.safetensors","c":"x.safetensors"}"#).unwrap(),
            ["x.safetensors", "y.safetensors"]
        );
        assert!(index(r#"{"a":"../x"}"#).unwrap_err().contains("outside its folder"));
        assert!(index("[]").unwrap_err().contains("no index"));
        assert!(index("{}").unwrap_err().contains("names no file"));
        assert!(index(r#"{"a":"gradwire.redo"}"#).unwrap_err().contains("must end in"));
        let mut twice = folder("{}");
        twice.shards[1].header = header(&["c"]);
        assert!(
            twice.check().unwrap_err().contains("'c' is in 'x.safetensors' and in 'y.safetensors'")
        );
    }
}
