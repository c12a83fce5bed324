//! Files that appear whole or not at all.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::disk::{Disk, System, folder_of};
use super::error::FileError;

/// The most links that are followed; more count as a circle.
const MAX_LINKS: usize = 40;

/// A file under a temporary name in its folder. [`finish`](Self::finish) syncs it and gives it its
/// name; dropped before, it is removed. If the path is a link, the link stays and its target is
/// replaced. Temporary files that killed processes left for the same path are removed.
#[derive(Debug)]
pub struct NewFile {
    path: PathBuf,
    temporary: PathBuf,
    file: File,
    finished: bool,
}

impl NewFile {
    /// Begins a file.
    ///
    /// # Errors
    /// Errors of the file system; a path that names a folder, a device, a pipe or a socket.
    pub fn create(path: &Path) -> Result<Self, FileError> {
        let path = target(path)?;
        remove_abandoned(&path);
        let mut options = File::options();
        options.read(true).write(true).create(true).truncate(true);
        loop {
            let temporary = temporary_name(&path);
            let file = options.open(&temporary).map_err(FileError::at(&path))?;
            // If the file system has no locks, temporary files of killed processes stay.
            let _ = file.lock();
            // Before it was locked, another process may have removed it as abandoned.
            if fs::exists(&temporary).map_err(FileError::at(&path))? {
                return Ok(Self { path, temporary, file, finished: false });
            }
        }
    }

    /// The file under its temporary name, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The path that the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Syncs the file, gives it another name than the path's, in the same folder, and syncs the
    /// folder.
    pub(crate) fn finish_as(mut self, name: &str) -> Result<(), FileError> {
        self.path.set_file_name(name);
        self.finish()
    }

    /// Syncs the file, gives it its name and syncs the folder.
    ///
    /// # Errors
    /// Errors of the file system; the path then has its old content.
    pub fn finish(mut self) -> Result<(), FileError> {
        self.file.sync_all().map_err(FileError::at(&self.path))?;
        System.rename(&self.temporary, &self.path).map_err(FileError::at(&self.path))?;
        self.finished = true;
        let folder = folder_of(&self.path);
        System.sync_folder(folder).map_err(FileError::at(folder))
    }
}

impl Write for NewFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes).map_err(|error| FileError::at(&self.path)(error).into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: it only takes space.
            let _ = fs::remove_file(&self.temporary);
        }
    }
}

/// A name beside `path` that nobody else uses.
pub(crate) fn temporary_name(path: &Path) -> PathBuf {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}.{number}.tmp", std::process::id()));
    temporary.into()
}

/// Removes temporary files for `path` that no process has open. Best effort: they only take space.
fn remove_abandoned(path: &Path) {
    let Some(name) = path.file_name().and_then(|name| name.to_str()) else { return };
    let Ok(entries) = fs::read_dir(folder_of(path)) else { return };
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    for entry in entries.flatten() {
        let found = entry.file_name();
        let middle = found.to_str().and_then(|found| found.strip_prefix(name));
        let middle = middle.and_then(|rest| rest.strip_prefix('.')?.strip_suffix(".tmp"));
        if !middle.is_some_and(|numbers| numbers.split('.').all(is_number)) {
            continue;
        }
        // The lock is held until the file is gone: a process that has just made it waits, and makes
        // another.
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            let _ = fs::remove_file(entry.path());
        }
    }
}

/// The regular file, present or not, that `path` names directly or through links.
fn target(path: &Path) -> Result<PathBuf, FileError> {
    let mut found = path.to_owned();
    for _ in 0..MAX_LINKS {
        let kind = match fs::symlink_metadata(&found) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(found),
            Err(error) => return Err(FileError::at(path)(error)),
        };
        if kind.is_symlink() {
            let next = fs::read_link(&found).map_err(FileError::at(path))?;
            found = folder_of(&found).join(next);
        } else if kind.is_file() {
            return Ok(found);
        } else {
            let what = if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
            return Err(FileError::content(path, format!("it is {what}; name a regular file")));
        }
    }
    Err(FileError::content(path, "its links form a circle; name the file itself"))
}

/// Opens a regular file for reading.
///
/// # Errors
/// Errors of the file system; a path that names a folder, a device, a pipe or a socket.
pub(crate) fn open_regular(path: &Path) -> Result<File, FileError> {
    // Opening a pipe would wait for its writer.
    let kind = fs::metadata(path).map_err(FileError::at(path))?.file_type();
    if !kind.is_file() {
        let what = if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
        return Err(FileError::content(path, format!("it is {what}; name a regular file")));
    }
    File::open(path).map_err(FileError::at(path))
}

/// As [`open_regular`]; `None` if there is no file.
///
/// # Errors
/// As for [`open_regular`].
pub(crate) fn open_if_there(path: &Path) -> Result<Option<File>, FileError> {
    match open_regular(path) {
        Err(FileError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
            Ok(None)
        }
        opened => opened.map(Some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_finished_files_appear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        let names = || fs::read_dir(folder.path()).unwrap().count();
        for (content, finished) in [("one", true), ("two", false), ("three", true)] {
            let before = fs::read(&path).ok();
            let mut file = NewFile::create(&path).unwrap();
            file.write_all(content.as_bytes()).unwrap();
            assert_eq!(fs::read(&path).ok(), before);
            if finished {
                file.finish().unwrap();
                assert_eq!(fs::read(&path).unwrap(), content.as_bytes());
            } else {
                drop(file);
                assert_eq!(fs::read(&path).ok(), before);
            }
            assert_eq!(names(), 1);
        }
    }

    #[test]
    fn an_error_of_writing_names_the_file_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x");
        fs::write(&path, "").unwrap();
        let mut file = NewFile::create(&path).unwrap();
        // As a disk that is full: nothing can be written.
        file.file = File::open(&path).unwrap();
        let error = file.write_all(b"one").unwrap_err();
        let kind = error.kind();
        let once = format!("'{}': ", path.display());
        let said = |error: String| error.starts_with(&once) && error.matches(&once).count() == 1;
        assert!(said(error.to_string()), "{error}");
        let error = crate::Error::from(error);
        assert!(said(error.to_string()), "{error}");
        let crate::Error::Io(error) = error else { panic!("{error}") };
        let error = FileError::at(Path::new("elsewhere"))(error);
        assert!(said(error.to_string()), "{error}");
        assert!(matches!(error, FileError::System { source, .. } if source.kind() == kind));
    }

    #[test]
    fn temporary_files_of_killed_processes_go_and_those_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        for name in ["x.7.1.tmp", "x.7.tmp", "y.7.1.tmp", "x.a.tmp"] {
            fs::write(at(name), "").unwrap();
        }
        let used = File::create(at("x.8.1.tmp")).unwrap();
        used.lock().unwrap();
        NewFile::create(&at("x")).unwrap().finish().unwrap();
        let names = ["x", "x.8.1.tmp", "x.a.tmp", "y.7.1.tmp"].map(at);
        let mut found: Vec<_> =
            fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
        found.sort();
        assert_eq!(found, names);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_and_folders_and_devices_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let [link, file] = ["link", "file"].map(|name| folder.path().join(name));
        std::os::unix::fs::symlink("file", &link).unwrap();
        let mut new = NewFile::create(&link).unwrap();
        new.write_all(b"new").unwrap();
        new.finish().unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(file).unwrap(), b"new");
        for path in [folder.path(), Path::new("/dev/null")] {
            assert!(NewFile::create(path).unwrap_err().to_string().contains("regular file"));
            assert!(open_regular(path).unwrap_err().to_string().contains("regular file"));
        }
    }
}
