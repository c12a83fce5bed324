//! What to do after an error of the file system. It is here because the crates that use files have
//! no other crate in common.

use std::io::{Error, ErrorKind};

/// The remedy for an error of reading or writing a file, after a semicolon. Empty for an error of a
/// program, not of the system: its text states the remedy.
pub fn remedy(error: &Error) -> &'static str {
    if error.get_ref().is_some() {
        return "";
    }
    match error.kind() {
        ErrorKind::NotFound => "; check the path",
        ErrorKind::PermissionDenied => "; check the permissions of the file and of its folder",
        ErrorKind::ReadOnlyFilesystem => "; choose a path on a disk that can be written",
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
            "; make room on the disk, or choose a path on another one"
        }
        ErrorKind::FileTooLarge => "; choose a path on a disk that takes larger files",
        ErrorKind::IsADirectory => "; name a file, not a folder",
        ErrorKind::NotADirectory => "; check the path: a part of it is not a folder",
        ErrorKind::AlreadyExists | ErrorKind::DirectoryNotEmpty => {
            "; choose another path, or remove what is there"
        }
        ErrorKind::InvalidFilename => "; choose another name, or a shorter one",
        ErrorKind::ResourceBusy | ErrorKind::ExecutableFileBusy => {
            "; wait until no other program uses the file"
        }
        ErrorKind::Interrupted => "; repeat it",
        ErrorKind::UnexpectedEof => "; the file is too short, so copy it again",
        ErrorKind::OutOfMemory => "; use a smaller file, or a machine with more memory",
        ErrorKind::StaleNetworkFileHandle
        | ErrorKind::NetworkDown
        | ErrorKind::NetworkUnreachable
        | ErrorKind::HostUnreachable
        | ErrorKind::NotConnected
        | ErrorKind::TimedOut => "; repeat it when the network disk answers again",
        _ if has_too_many_files(error) => "; close other files, or allow more (ulimit -n)",
        _ => "; check the path and the disk",
    }
}

/// Whether the process, or the machine, has as many open files as it may have: `EMFILE`, `ENFILE`.
fn has_too_many_files(error: &Error) -> bool {
    cfg!(unix) && matches!(error.raw_os_error(), Some(23 | 24))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn each_error_of_the_system_has_its_own_remedy() {
        use std::fs::{self, File};
        use std::io::Read;

        let folder = std::env::temp_dir().join(format!("gradwire-remedy-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (file, long) = (folder.join("file"), "x".repeat(5000));
        fs::write(&file, "").unwrap();
        for (error, expected) in [
            (File::open(folder.join("absent")).unwrap_err(), "check the path"),
            (File::open(file.join("below")).unwrap_err(), "is not a folder"),
            (File::create(&folder).unwrap_err(), "not a folder"),
            (fs::create_dir(&file).unwrap_err(), "remove what is there"),
            (fs::remove_dir(&folder).unwrap_err(), "remove what is there"),
            (File::open(folder.join(long)).unwrap_err(), "shorter"),
            (File::open(&file).unwrap().read_exact(&mut [0]).unwrap_err(), "copy it again"),
        ] {
            assert!(remedy(&error).contains(expected), "{error}: {}", remedy(&error));
        }
        fs::remove_dir_all(&folder).unwrap();
    }

    /// By the numbers of Linux.
    #[cfg(target_os = "linux")]
    #[test]
    fn errors_that_tests_cannot_cause() {
        let remedy = |number| remedy(&Error::from_raw_os_error(number));
        let [no_access, read_only, full, quota, too_large] = [13, 30, 28, 122, 27];
        let [io_error, too_many_files, stale, busy, no_memory] = [5, 24, 116, 16, 12];
        for (number, expected) in [
            (no_access, "permissions"),
            (read_only, "can be written"),
            (full, "make room"),
            (quota, "make room"),
            (too_large, "larger files"),
            (io_error, "the path and the disk"),
            (too_many_files, "ulimit -n"),
            (stale, "network"),
            (busy, "other program"),
            (no_memory, "more memory"),
        ] {
            let found = remedy(number);
            assert!(found.starts_with("; ") && found.contains(expected), "{number}: {found}");
        }
    }

    #[test]
    fn an_error_with_a_text_of_its_own_states_the_remedy() {
        let own = |kind| remedy(&Error::new(kind, "it is a pipe; name a file"));
        assert_eq!([ErrorKind::InvalidInput, ErrorKind::NotFound].map(own), [""; 2]);
        assert_eq!(remedy(&ErrorKind::InvalidInput.into()), "; check the path and the disk");
    }
}
