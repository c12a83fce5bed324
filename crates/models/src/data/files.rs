//! Reading the files of a data set, with a checksum of their content.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Read};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use gradwire::files;
use sha2::{Digest, Sha256};

use super::DataError;

/// Digests of the files read so far, by their names within the data set.
#[derive(Default)]
pub(super) struct Checksums {
    by_name: BTreeMap<String, String>,
}

impl Checksums {
    /// Reads all of `dir/name` and records its digest.
    pub(super) fn read(&mut self, dir: &Path, name: &str) -> Result<Vec<u8>, DataError> {
        let path = dir.join(name);
        let bytes = files::read(&path).map_err(|e| DataError::read(&path, e))?;
        self.by_name.insert(name.to_owned(), sha256(&bytes));
        Ok(bytes)
    }

    /// The digest of the list of digests, in `sha256sum`'s format and sorted by name: the same as
    /// `sha256sum FILES | sha256sum`.
    pub(super) fn total(&self) -> String {
        let mut listing = String::new();
        for (name, digest) in &self.by_name {
            let _ = writeln!(listing, "{digest}  {name}");
        }
        sha256(listing.as_bytes())
    }
}

/// The SHA-256 of `bytes` in hexadecimal.
pub(super) fn sha256(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The SHA-256 of a reader's content, which may be larger than the memory.
pub(super) fn sha256_of(reader: &mut impl Read) -> io::Result<String> {
    let (mut digest, mut block) = (Sha256::new(), [0; 1 << 16]);
    loop {
        match reader.read(&mut block)? {
            0 => return Ok(hex(&digest.finalize())),
            count => digest.update(&block[..count]),
        }
    }
}

/// `bytes` in lower-case hexadecimal.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// The content of a file with these bytes, unpacked if its name ends as a gzipped file's.
pub(super) fn content<'a>(path: &Path, bytes: &'a [u8]) -> Box<dyn Read + 'a> {
    match path.extension().and_then(|e| e.to_str()) {
        Some(e) if e.eq_ignore_ascii_case("gz") || e.eq_ignore_ascii_case("tgz") => {
            Box::new(MultiGzDecoder::new(bytes))
        }
        _ => Box::new(bytes),
    }
}

/// Converts an error of reading [`content`].
pub(super) fn unreadable(path: &Path, error: &io::Error) -> DataError {
    let reason = match error.kind() {
        io::ErrorKind::UnexpectedEof => "it ends too early".to_owned(),
        _ => format!("it cannot be unpacked ({error})"),
    };
    DataError::damaged(path, reason)
}

/// Names in a folder, sorted, without names that are not UTF-8.
pub(super) fn names(dir: &Path) -> Result<Vec<String>, DataError> {
    let entries = fs::read_dir(dir).map_err(|e| DataError::read(dir, e))?;
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|e| DataError::read(dir, e))?;
        names.extend(entry.file_name().into_string().ok());
    }
    names.sort_unstable();
    Ok(names)
}
