//! Files that are either whole or absent.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// The largest number of links that are followed; more are treated as a circle.
const MAX_LINKS: usize = 40;

/// Writes `bytes` to `path`: first to a temporary file in the same folder, which is synced and then renamed, so that
/// the path has the old content or all of the new. Removes temporary files that killed processes left for the same
/// path.
///
/// If `path` is a link, its target is replaced; the link stays.
///
/// # Errors
/// Those of the file system; `InvalidInput` where `path` is a folder, a device, a pipe or a socket.
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
/// Those of the file system; `InvalidInput` where it is a folder, a device, a pipe or a socket, or links form a circle.
pub fn target(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let mut path = path.as_ref().to_owned();
    for _ in 0..MAX_LINKS {
        let kind = match fs::symlink_metadata(&path) {
            Ok(metadata) => metadata.file_type(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(path),
            Err(error) => return Err(error),
        };
        if kind.is_file() {
            return Ok(path);
        }
        if !kind.is_symlink() {
            let what = if kind.is_dir() { "a folder" } else { "a device, a pipe or a socket" };
            return Err(refused(format!("it is {what}; name a regular file")));
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

/// A new temporary file in the folder of `path`, with a name of its own. It stays locked as long as this process has it open.
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
        // Where the file system has no locks, temporary files of killed processes stay.
        let _ = file.lock();
        // Before it was locked, another process may have taken it for abandoned.
        if fs::exists(&temporary)? {
            return Ok((temporary.into(), file));
        }
    }
}

/// Removes temporary files for `name` that no process holds open any more. Best effort: they only take space.
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
        // The lock is held until the file is gone: whoever has just made it waits, and makes another.
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
        // To a file, to one that does not exist yet, and to another link.
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
