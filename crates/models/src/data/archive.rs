//! Archives, read in memory: tar (gzipped or not) and zip.

use std::io::{self, Read};
use std::mem;
use std::path::Path;

use flate2::read::DeflateDecoder;
use rawzip::{CompressionMethod, ErrorKind, ZipArchive};
use tar::EntryType;

use super::DataError;
use super::files::{content, unreadable};

/// The largest size of a file in an archive; a larger entry counts as damage.
const MAX_FILE: u64 = 256 << 20;

/// The largest total size of an archive's unpacked files, so a small archive cannot fill the
/// memory.
pub(super) const MAX_ALL: u64 = 8 << 30;

/// The largest size of the attributes of a tar entry outside its header, such as a long path.
const MAX_ATTRIBUTES: u64 = 1 << 20;

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

/// Calls `each` with every folder and regular file of the archive at `path`, whose content is
/// `bytes`. Leaves out hidden files and the files that macOS adds.
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
    // Gzip detects truncation; a bare archive cut off between two entries looks complete.
    let bare = path.extension().is_some_and(|extension| extension == "tar");
    if bare && !bytes.ends_with(&END_MARK) {
        return Err(DataError::damaged(path, "it does not end with an end-of-archive mark"));
    }
    let (mut left, mut extension) = (MAX_ALL, Extension::default());
    let mut archive = tar::Archive::new(content(path, bytes));
    // Raw, because `tar` reads long paths of any size into memory.
    for entry in archive.entries().map_err(|e| unreadable(path, &e))?.raw(true) {
        let mut entry = entry.map_err(|e| unreadable(path, &e))?;
        let kind = entry.header().entry_type();
        if extension.read(path, &mut entry)? {
            continue;
        }
        let inside = mem::take(&mut extension).path_of(path, &entry)?;
        if kind.is_dir() || kind.is_file() {
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
    // Gzip's checksum follows the last entry.
    io::copy(&mut archive.into_inner(), &mut io::sink()).map_err(|e| unreadable(path, &e))?;
    Ok(())
}

/// The attributes of a tar entry that precede it because they do not fit into its header.
#[derive(Default)]
struct Extension {
    path: Option<Vec<u8>>,
    size: Option<u64>,
}

impl Extension {
    /// Whether `entry` describes the one after it; reads its attributes if it does.
    fn read<R: Read>(
        &mut self,
        archive: &Path,
        entry: &mut tar::Entry<'_, R>,
    ) -> Result<bool, DataError> {
        match entry.header().entry_type() {
            EntryType::GNULongName => {
                let mut path = limited(archive, entry)?;
                path.pop_if(|last| *last == 0);
                self.path = Some(path);
            }
            EntryType::XHeader => self.read_pax(&limited(archive, entry)?),
            kind => return Ok(matches!(kind, EntryType::GNULongLink | EntryType::XGlobalHeader)),
        }
        Ok(true)
    }

    /// Reads the attributes in an extended header of POSIX.
    fn read_pax(&mut self, attributes: &[u8]) {
        for attribute in tar::PaxExtensions::new(attributes).flatten() {
            match attribute.key_bytes() {
                b"path" => self.path = Some(attribute.value_bytes().to_owned()),
                b"size" => self.size = attribute.value().ok().and_then(|size| size.parse().ok()),
                _ => {}
            }
        }
    }

    /// The path of `entry`, which these attributes describe.
    ///
    /// # Errors
    /// If the header does not give the start of the next entry.
    fn path_of<R: Read>(
        self,
        archive: &Path,
        entry: &tar::Entry<'_, R>,
    ) -> Result<String, DataError> {
        let path = self.path.unwrap_or_else(|| entry.path_bytes().into_owned());
        let path = String::from_utf8_lossy(&path).into_owned();
        let reason = match self.size.is_some_and(|size| size != entry.size()) {
            true => "its header does not have its size, as for files of 8 GiB or more",
            false if entry.header().entry_type().is_gnu_sparse() => {
                "it is stored as a sparse file; create the archive without --sparse"
            }
            false => return Ok(path),
        };
        Err(DataError::damaged(&archive.join(path), reason))
    }
}

/// The content of an entry that describes the next one.
fn limited(archive: &Path, entry: &mut impl Read) -> Result<Vec<u8>, DataError> {
    let mut content = Vec::new();
    let read = entry.take(MAX_ATTRIBUTES + 1).read_to_end(&mut content);
    read.map_err(|e| unreadable(archive, &e))?;
    if content.len() as u64 > MAX_ATTRIBUTES {
        let most = MAX_ATTRIBUTES >> 20;
        let reason = format!("the path or the attributes of a file take more than {most} MiB");
        return Err(DataError::damaged(archive, reason));
    }
    Ok(content)
}

fn visit_zip(
    path: &Path,
    bytes: &[u8],
    mut each: impl FnMut(Entry<'_>) -> Result<(), DataError>,
) -> Result<(), DataError> {
    let damaged = |error: rawzip::Error| DataError::damaged(path, fault_of_zip(&error));
    let archive = ZipArchive::from_slice(bytes).map_err(damaged)?;
    let (mut left, mut count) = (MAX_ALL, 0);
    for entry in archive.entries() {
        let entry = entry.map_err(damaged)?;
        count += 1;
        if entry.flags().is_encrypted() {
            return Err(DataError::damaged(path, "it is encrypted"));
        }
        let file = archive.get_entry(entry.wayfinder()).map_err(damaged)?;
        let content: Box<dyn Read> = match entry.compression_method() {
            CompressionMethod::STORE => Box::new(file.data()),
            CompressionMethod::DEFLATE => Box::new(DeflateDecoder::new(file.data())),
            _ => {
                let reason = "its compression is not supported; pack it with deflate";
                return Err(DataError::damaged(path, reason));
            }
        };
        let inside = entry.file_path();
        let inside = String::from_utf8_lossy(inside.as_ref());
        let (parts, folder) = (parts(&inside), entry.is_dir());
        // Fails at the end if the checksum or the size is wrong.
        let reader = &mut file.verifying_reader(content);
        each(Entry { parts: &parts, folder, archive: path, reader, left: &mut left })?;
    }
    match count == archive.entries_hint() {
        true => Ok(()),
        false => Err(DataError::damaged(
            path,
            "its directory does not have the number of entries that it states",
        )),
    }
}

/// The reason why a zip archive cannot be read.
fn fault_of_zip(error: &rawzip::Error) -> String {
    let reason = match error.kind() {
        ErrorKind::MissingEndOfCentralDirectory => "it does not end with a directory",
        ErrorKind::Eof => "it ends too early",
        ErrorKind::InvalidSignature { .. } | ErrorKind::InvalidEndOfCentralDirectory => {
            "its directory points outside the file"
        }
        _ => return error.to_string(),
    };
    reason.to_owned()
}

fn parts(inside: &str) -> Vec<&str> {
    inside.split('/').filter(|part| !part.is_empty() && *part != ".").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tar archive of entries: their kind, path in the header, and content.
    fn tar_of(entries: &[(EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(Vec::new());
        for (kind, path, content) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_path(path).unwrap();
            header.set_size(content.len() as u64);
            header.set_cksum();
            archive.append(&header, *content).unwrap();
        }
        archive.into_inner().unwrap()
    }

    /// The paths and contents of the files of an archive.
    fn files(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, DataError> {
        let mut files = Vec::new();
        visit(Path::new("some.tar"), bytes, |entry| {
            files.push((entry.parts.join("/"), entry.bytes()?));
            Ok(())
        })?;
        Ok(files)
    }

    fn refused(entries: &[(EntryType, &str, &[u8])], word: &str) {
        let error = files(&tar_of(entries)).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }

    #[test]
    fn long_paths_are_those_of_the_next_entry() {
        let (file, pax) = (EntryType::Regular, EntryType::XHeader);
        let bytes = tar_of(&[
            (EntryType::XGlobalHeader, "g", b"11 path=no\n"),
            (EntryType::GNULongName, "l", b"long/name\0"),
            (EntryType::GNULongLink, "k", b"target\0"),
            (file, "a", b"1"),
            (file, "b", b"2"),
            (pax, "x", b"10 size=1\n14 path=d/pax\n"),
            (file, "c", b"3"),
            (pax, "x", b"12 path=link\n"),
            (EntryType::Symlink, "s", b""),
            (file, "d", b"4"),
        ]);
        let named = |(path, content): (&str, &[u8])| (path.to_owned(), content.to_vec());
        let expected = [("long/name", &b"1"[..]), ("b", b"2"), ("d/pax", b"3"), ("d", b"4")];
        assert_eq!(files(&bytes).unwrap(), expected.map(named));
    }

    #[test]
    fn paths_of_any_size_are_refused() {
        let long = vec![b'a'; MAX_ATTRIBUTES as usize + 1];
        for kind in [EntryType::GNULongName, EntryType::XHeader] {
            refused(&[(kind, "l", &long), (EntryType::Regular, "a", b"1")], "1 MiB");
        }
        // Nobody reads a link's target.
        let link = (EntryType::GNULongLink, "k", &long[..]);
        assert_eq!(files(&tar_of(&[link, (EntryType::Regular, "a", b"1")])).unwrap().len(), 1);
    }

    #[test]
    fn entries_whose_end_is_not_in_their_header_are_refused() {
        let file = (EntryType::Regular, "a", &b"1"[..]);
        refused(&[(EntryType::XHeader, "x", b"11 size=12\n"), file], "does not have its size");
        refused(&[(EntryType::GNUSparse, "a", b"1")], "--sparse");
    }
}
