//! The streams of a folder, by the names of their files.

use std::fs::{self, Metadata};
use std::io::BufReader;
use std::path::Path;

use crate::files::{FileError, open_if_there};
use crate::frame::{FrameReader, Header, Kind};
use crate::{Error, State};

/// A published stream, as the name of its file describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Item {
    pub(super) kind: Kind,
    /// The version that a delta changes; of a snapshot the version that it gives.
    pub(super) base: u64,
    /// The version that it gives.
    pub(super) target: u64,
    /// The length of its file.
    pub(super) bytes: u64,
    pub(super) identity: Identity,
}

/// Tells a file from one that takes its place with the same name and length, and from itself after
/// it was written again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Identity {
    /// The number of the file, and the time at which its content or its description last changed.
    /// No program can set this time, as copies do with that of the last write.
    #[cfg(unix)]
    change: (u64, i64, i64),
    #[cfg(not(unix))]
    written: Option<std::time::SystemTime>,
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            Self { change: (metadata.ino(), metadata.ctime(), metadata.ctime_nsec()) }
        }
        #[cfg(not(unix))]
        Self { written: metadata.modified().ok() }
    }
}

impl Item {
    /// The stream with this header, which is not in the folder yet.
    pub(super) fn of(header: &Header, bytes: u64) -> Self {
        let identity = Identity::default();
        Self { kind: header.kind, base: header.base, target: header.target, bytes, identity }
    }

    /// The name of its file: names are sorted as versions are.
    pub(super) fn name(&self) -> String {
        match self.kind {
            Kind::Snapshot => format!("snapshot-{:010}.gwd", self.target),
            Kind::Delta => format!("delta-{:010}-{:010}.gwd", self.base, self.target),
        }
    }

    /// The stream that a file of this name has; `None` for other files.
    fn from_name(name: &str, bytes: u64, identity: Identity) -> Option<Self> {
        let stem = name.strip_suffix(".gwd")?;
        let (kind, base, target) = if let Some(version) = stem.strip_prefix("snapshot-") {
            let target = version.parse().ok()?;
            (Kind::Snapshot, target, target)
        } else {
            let (base, target) = stem.strip_prefix("delta-")?.split_once('-')?;
            (Kind::Delta, base.parse().ok()?, target.parse().ok()?)
        };
        let item = Self { kind, base, target, bytes, identity };
        (item.name() == name && (item.kind == Kind::Snapshot || item.base < item.target))
            .then_some(item)
    }
}

/// The streams of a folder, in order of their targets.
pub(super) fn list(folder: &Path) -> Result<Vec<Item>, FileError> {
    let mut items = Vec::new();
    for entry in fs::read_dir(folder).map_err(FileError::at(folder))? {
        let entry = entry.map_err(FileError::at(folder))?;
        // One that was removed since is not there. Of a link the file counts.
        let Ok(metadata) = fs::metadata(entry.path()) else { continue };
        let name = entry.file_name();
        let item = |name| Item::from_name(name, metadata.len(), Identity::of(&metadata));
        items.extend(name.to_str().and_then(item));
    }
    items.sort_by_key(|item| (item.target, item.base, item.kind == Kind::Snapshot));
    Ok(items)
}

/// Whether a delta of the folder starts at these weights.
pub(super) fn has_delta_from(folder: &Path, state: State) -> Result<bool, Error> {
    for item in list(folder)? {
        if item.kind != Kind::Delta || item.base != state.version {
            continue;
        }
        let path = folder.join(item.name());
        // Another process may have removed it meanwhile.
        let Some(file) = open_if_there(&path)? else { continue };
        let frames = FrameReader::new(BufReader::new(file));
        let frames = frames.map_err(|error| Error::Input { path, source: Box::new(error) })?;
        let header = frames.header();
        if (Some(header.run), header.base_hash) == (state.run, state.hash) {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (name, kind, base, target) in [
            ("delta-0000000007-0000000008.gwd", Kind::Delta, 7, 8),
            ("delta-0000000000-12345678901.gwd", Kind::Delta, 0, 12_345_678_901),
            ("snapshot-0000000050.gwd", Kind::Snapshot, 50, 50),
        ] {
            let item = Item { kind, base, target, bytes: 3, identity: Identity::default() };
            assert_eq!(item.name(), name);
            assert_eq!(Item::from_name(name, 3, Identity::default()), Some(item));
        }
        for other in [
            "latest",
            "delta-7-8.gwd",
            "delta-0000000008-0000000008.gwd",
            "snapshot-0000000050.gwd.1.1.tmp",
            "snapshot-+000000050.gwd",
        ] {
            assert_eq!(Item::from_name(other, 3, Identity::default()), None, "{other}");
        }
    }
}
