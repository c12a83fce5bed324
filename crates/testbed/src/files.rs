//! Files that are either whole or absent.

use std::io::Write;
use std::path::Path;

use tempfile::NamedTempFile;

use crate::TestbedError;

/// Writes `bytes` under `path`: first under another name in the same folder, which is then renamed,
/// so that nobody ever sees half a file under the final name. Missing folders are made.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), TestbedError> {
    let write = || {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        std::fs::create_dir_all(folder)?;
        let mut file = NamedTempFile::new_in(folder)?;
        file.write_all(bytes)?;
        file.as_file().sync_all()?;
        allow_reading(file.as_file())?;
        file.persist(path)?;
        Ok(())
    };
    write().map_err(TestbedError::write(path))
}

/// Temporary files are private to their owner; results are for everyone the folder is for.
#[cfg(unix)]
fn allow_reading(file: &std::fs::File) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt;
    file.set_permissions(std::fs::Permissions::from_mode(0o644))
}

#[cfg(not(unix))]
fn allow_reading(_: &std::fs::File) -> std::io::Result<()> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("deep/er/file");
        write_atomic(&path, b"first").unwrap();
        write_atomic(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");

        // A folder cannot be replaced by a file.
        let taken = folder.path().join("taken");
        std::fs::create_dir(&taken).unwrap();
        std::fs::write(taken.join("inside"), b"x").unwrap();
        let error = write_atomic(&taken, b"third").unwrap_err().to_string();
        assert!(error.contains("taken"), "{error}");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
