//! Archives, read in memory: tar (gzipped or not) and zip.

use std::io::{self, Read};
use std::path::Path;

use super::files::{content, unreadable};
use super::{DataError, zip};

/// The largest size of a file in an archive; a larger entry counts as damage.
const MAX_FILE: u64 = 256 << 20;

/// The largest total size of an archive's unpacked files, so that a small archive cannot fill the memory.
pub(super) const MAX_ALL: u64 = 8 << 30;

/// The end of a tar archive: two blocks of zeros.
const END_MARK: [u8; 1024] = [0; 1024];

/// Endings of the names of archives.
const ENDINGS: [&str; 4] = [".tar.gz", ".tgz", ".tar", ".zip"];

/// Whether a file of this name is an archive.
pub(super) fn is_archive(name: &str) -> bool {
    !name.starts_with('.') && stem(name) != name
}

/// `name` without the ending of an archive.
pub(super) fn stem(name: &str) -> &str {
    ENDINGS.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

/// A folder or regular file of an archive.
pub(super) struct Entry<'a> {
    /// The parts of its path, without `.`.
    pub(super) parts: &'a [&'a str],
    /// Whether it is a folder.
    pub(super) folder: bool,
    archive: &'a Path,
    reader: &'a mut dyn Read,
    /// The number of bytes that may still be unpacked.
    left: &'a mut u64,
}

impl Entry<'_> {
    /// The file's content.
    pub(super) fn bytes(self) -> Result<Vec<u8>, DataError> {
        let mut bytes = Vec::new();
        let read = self.reader.take(MAX_FILE + 1).read_to_end(&mut bytes);
        read.map_err(|e| unreadable(self.archive, &e))?;
        if bytes.len() as u64 > MAX_FILE {
            let reason = format!("it holds more than {} MiB", MAX_FILE >> 20);
            return Err(DataError::damaged(&self.archive.join(self.parts.join("/")), reason));
        }
        match self.left.checked_sub(bytes.len() as u64) {
            Some(left) => *self.left = left,
            None => {
                let reason = format!("its files hold more than {} GiB", MAX_ALL >> 30);
                return Err(DataError::damaged(self.archive, reason));
            }
        }
        Ok(bytes)
    }
}

/// Calls `each` with every folder and regular file of the archive at `path`, whose content is `bytes`, but for hidden ones
/// and those that macOS adds.
pub(super) fn visit(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(Entry<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let hidden = |part: &&str| part.starts_with('.') || *part == "__MACOSX";
    let each = |entry: Entry<'_>| if entry.parts.iter().any(hidden) { Ok(()) } else { each(entry) };
    match path.extension().is_some_and(|extension| extension == "zip") {
        true => visit_zip(path, bytes, each),
        false => visit_tar(path, bytes, each),
    }
}

fn visit_tar(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(Entry<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    // Gzip detects truncation; a bare archive that is cut off between two entries looks complete.
    let bare = path.extension().is_some_and(|extension| extension == "tar");
    if bare && !bytes.ends_with(&END_MARK) {
        return Err(DataError::damaged(path, "it does not end with the mark of an archive's end"));
    }
    let mut left = MAX_ALL;
    let mut archive = tar::Archive::new(content(path, bytes));
    for entry in archive.entries().map_err(|e| unreadable(path, &e))? {
        let mut entry = entry.map_err(|e| unreadable(path, &e))?;
        let kind = entry.header().entry_type();
        if kind.is_dir() || kind.is_file() {
            let inside = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let (parts, folder) = (parts(&inside), kind.is_dir());
            each(Entry {
                parts: &parts,
                folder,
                archive: path,
                reader: &mut entry,
                left: &mut left,
            })?;
        }
    }
    // What follows the last entry holds gzip's checksum.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|e| unreadable(path, &e))?;
    Ok(())
}

fn visit_zip(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(Entry<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let mut left = MAX_ALL;
    for entry in zip::entries(bytes).map_err(|reason| DataError::damaged(path, reason))? {
        let (parts, folder) = (parts(&entry.name), entry.is_folder());
        let reader = &mut entry.reader();
        each(Entry { parts: &parts, folder, archive: path, reader, left: &mut left })?;
    }
    Ok(())
}

fn parts(inside: &str) -> Vec<&str> {
    inside.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}
