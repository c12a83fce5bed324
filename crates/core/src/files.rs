//! Files: written whole or not at all, and read only if they end and fit into memory.

use std::fs::{self, File, FileType};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub use gradwire_bits::io_error::remedy;

use crate::memory;

/// The most links that are followed; more count as a circle.
const MAX_LINKS: usize = 40;

/// Writes `bytes` to `path`: first to a temporary file in the same folder, which is synced and then
/// renamed. So the path has either the old content or all of the new. Removes temporary files that
/// killed processes left for the same path.
///
/// If `path` is a link, its target is replaced; the link stays.
///
/// # Errors
/// The errors of the file system; `InvalidInput` if `path` is a folder, a device, a pipe or a
/// socket.
pub fn write_atomic(path: impl AsRef<Path>, bytes: &[u8]) -> io::Result<()> {
    let path = target(path)?;
    let (temporary, mut file) = create_beside(&path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&temporary, &path));
    if written.is_err() {
        // Best effort: the error to report is the first one.
        let _ = fs::remove_file(&temporary);
    }
    written
}

/// Reads all of a regular file, named directly or through links.
///
/// # Errors
/// The errors of the file system; `InvalidInput` for a folder, a device, a pipe or a socket, which
/// may have no end; `OutOfMemory` for a file larger than the available memory. [`remedy`] says what
/// to do.
pub fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = open(path.as_ref())?;
    let size = file.metadata()?.len();
    let lacking = |left: u64| {
        let reason = format!(
            "it has {size} bytes, but only {left} bytes of memory are free; use a smaller file, or \
             a machine with more memory"
        );
        io::Error::new(io::ErrorKind::OutOfMemory, reason)
    };
    if let Some(left) = memory::available().filter(|left| size > *left) {
        return Err(lacking(left));
    }
    let mut bytes = Vec::new();
    let reserved = usize::try_from(size).is_ok_and(|size| bytes.try_reserve_exact(size).is_ok());
    if !reserved {
        return Err(lacking(0));
    }
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Reads a regular file of UTF-8 text with at most `most` bytes.
///
/// # Errors
/// As for [`read`]; `InvalidData` for a larger file, and, with the line, for one that is not UTF-8
/// text.
pub fn read_text(path: impl AsRef<Path>, most: u64) -> io::Result<String> {
    let path = path.as_ref();
    let size = open(path)?.metadata()?.len();
    let invalid = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    if size > most {
        return Err(invalid(format!(
            "it has {size} bytes, but files of this kind have at most {most}; name another file"
        )));
    }
    String::from_utf8(read(path)?).map_err(|error| {
        let before = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        invalid(format!("line {line} is not UTF-8 text; convert the file, for example with iconv"))
    })
}

/// Opens a regular file to read it. Opening a pipe would wait for its other end.
fn open(path: &Path) -> io::Result<File> {
    check_regular(fs::metadata(path)?.file_type())?;
    let file = File::open(path)?;
    check_regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Refuses anything but a regular file.
fn check_regular(kind: FileType) -> io::Result<()> {
    let what = match kind {
        kind if kind.is_file() => return Ok(()),
        kind if kind.is_dir() => "a folder",
        _ => "a device, a pipe or a socket",
    };
    Err(refused(format!("it is {what}; name a regular file")))
}

/// Checks that [`write_atomic`] can write to `path`, without changing it.
///
/// # Errors
/// As for [`write_atomic`].
pub fn check_writable(path: impl AsRef<Path>) -> io::Result<()> {
    // Locked until it is gone.
    let (temporary, _file) = create_beside(&target(path)?)?;
    fs::remove_file(temporary)
}

/// The regular file, present or not, that `path` names directly or through links.
///
/// # Errors
/// The errors of the file system; `InvalidInput` if it is a folder, a device, a pipe or a socket,
/// or if links form a circle.
pub fn target(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let mut path = path.as_ref().to_owned();
    for _ in 0..MAX_LINKS {
        let kind = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
        };
        if !kind.is_symlink() {
            return check_regular(kind).map(|()| path);
        }
        path = folder_of(&path).join(fs::read_link(&path)?);
    }
    Err(refused("its links form a circle; name the file itself".to_owned()))
}

fn refused(reason: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// The folder that holds the file.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// A new temporary file with a unique name in the folder of `path`. It stays locked as long as this
/// process has it open.
fn create_beside(path: &Path) -> io::Result<(PathBuf, File)> {
    let folder = folder_of(path);
    let Some(name) = path.file_name() else {
        return Err(refused("it has no file name; name a regular file".to_owned()));
    };
    remove_abandoned(folder, &name.to_string_lossy());
    loop {
        static FILES: AtomicU64 = AtomicU64::new(0);
        let number = FILES.fetch_add(1, Ordering::Relaxed);
        let mut temporary = path.as_os_str().to_owned();
        temporary.push(format!(".{}.{number}.tmp", std::process::id()));
        let file = File::create(&temporary)?;
        // If the file system has no locks, temporary files of killed processes stay.
        let _ = file.lock();
        // Before it was locked, another process may have removed it as abandoned.
        if fs::exists(&temporary)? {
            return Ok((temporary.into(), file));
        }
    }
}

/// Removes temporary files for `name` that no process has open. Best effort: they only take space.
fn remove_abandoned(folder: &Path, name: &str) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let is_temporary = entry.file_name().to_str().is_some_and(|file| {
            let middle = file.strip_prefix(name).and_then(|rest| rest.strip_suffix(".tmp"));
            let numbers = middle.and_then(|middle| middle.strip_prefix('.'));
            let is_number = |one: &str| !one.is_empty() && one.bytes().all(|b| b.is_ascii_digit());
            numbers.is_some_and(|numbers| numbers.split('.').all(is_number))
        });
        if !is_temporary || !entry.file_type().is_ok_and(|kind| kind.is_file()) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        write_atomic(&path, b"first").unwrap();
        write_atomic(&path, b"second").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"second");
        assert_eq!(names(folder.path()), ["file"]);
        assert!(write_atomic(folder.path().join("absent/file"), b"").is_err());
        assert!(check_writable(folder.path().join("absent/file")).is_err());

        let taken = folder.path().join("taken");
        fs::create_dir(&taken).unwrap();
        let error = write_atomic(&taken, b"third").unwrap_err().to_string();
        assert!(error.contains("a folder"), "{error}");
        assert_eq!(names(folder.path()), ["file", "taken"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_links_and_devices_stay_devices() {
        use std::os::unix::fs::{FileTypeExt, symlink};
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::create_dir(at("elsewhere")).unwrap();
        // To a file, to a file that does not exist yet, and to another link.
        fs::write(at("elsewhere/old"), b"old").unwrap();
        symlink("elsewhere/old", at("a")).unwrap();
        symlink("elsewhere/new", at("b")).unwrap();
        symlink("b", at("c")).unwrap();
        for (link, file) in [("a", "old"), ("b", "new"), ("c", "new")] {
            write_atomic(at(link), link.as_bytes()).unwrap();
            assert_eq!(fs::read(at("elsewhere").join(file)).unwrap(), link.as_bytes());
            assert!(fs::symlink_metadata(at(link)).unwrap().is_symlink());
        }
        symlink("round", at("round")).unwrap();
        assert!(write_atomic(at("round"), b"").unwrap_err().to_string().contains("circle"));
        symlink("/dev/null", at("device")).unwrap();
        for path in [at("device"), "/dev/null".into()] {
            let error = write_atomic(&path, b"").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
            assert!(check_writable(&path).is_err());
        }
        assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert_eq!(names(folder.path()), ["a", "b", "c", "device", "elsewhere", "round"]);
    }

    #[cfg(unix)]
    #[test]
    fn only_regular_files_that_fit_are_read() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        fs::write(at("text"), "größe").unwrap();
        std::os::unix::fs::symlink("text", at("link")).unwrap();
        assert_eq!(read(at("link")).unwrap(), "größe".as_bytes());
        assert_eq!(read_text(at("link"), 7).unwrap(), "größe");
        let refused = read_text(at("text"), 6).unwrap_err();
        assert!(refused.to_string().contains("7 bytes"), "{refused}");
        fs::write(at("text"), b"fine\nfine\nnot \xff fine\n").unwrap();
        let refused = read_text(at("text"), 100).unwrap_err().to_string();
        assert!(refused.contains("line 3 is not UTF-8"), "{refused}");

        for path in ["/dev/zero".into(), folder.path().to_owned()] {
            let refused = read(path).unwrap_err();
            assert!(refused.to_string().contains("name a regular file"), "{refused}");
            assert_eq!(remedy(&refused), "");
        }
        let absent = read(at("absent")).unwrap_err();
        assert!(remedy(&absent).contains("check the path"));
        // It takes no room on the disk.
        File::create(at("large")).unwrap().set_len(1 << 42).unwrap();
        let refused = read(at("large")).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::OutOfMemory, "{refused}");
        assert!(refused.to_string().contains("4398046511104 bytes"), "{refused}");
        assert!(refused.to_string().contains("; use a smaller file"), "{refused}");
    }

    #[test]
    fn threads_may_write_the_same_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..40 {
                        write_atomic(path, &[thread; 5000]).unwrap();
                        check_writable(path).unwrap();
                    }
                });
            }
        });
        let found = fs::read(&path).unwrap();
        assert!(found.len() == 5000 && found.iter().all(|byte| *byte == found[0]));
        assert_eq!(names(folder.path()), ["file"]);
    }

    #[test]
    fn temporary_files_of_killed_processes_go_and_those_in_use_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.ckpt");
        for name in [
            "run.ckpt.77.tmp",
            "run.ckpt.77.3.tmp",
            "run.ckpt.1",
            "other.ckpt.77.tmp",
            "run.ckpt.x.tmp",
        ] {
            fs::write(folder.path().join(name), b"").unwrap();
        }
        let in_use = File::create(folder.path().join("run.ckpt.78.tmp")).unwrap();
        in_use.lock().unwrap();
        check_writable(&path).unwrap();
        let left = ["other.ckpt.77.tmp", "run.ckpt.1", "run.ckpt.78.tmp", "run.ckpt.x.tmp"];
        assert_eq!(names(folder.path()), left);
    }
}
