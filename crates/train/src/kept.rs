//! The last few checkpoints of a run: `run.state`, and before it `run.state.1`, `run.state.2` and so on.
//!
//! A new one is written whole, under another name and synced to disk, before any other is touched; then each moves on
//! by one place and the new one takes the first. Whatever stops that in the middle, the disk being full included,
//! leaves every good one where [`newest_good`] finds it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gradwire::{State, StateError};

/// The checkpoint so many before the newest, which is at `path` itself.
pub(crate) fn earlier(path: &Path, before: usize) -> PathBuf {
    if before == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{before}"));
    name.into()
}

/// Writes `state` to `path`; of those that were there the latest `keep − 1` stay.
pub(crate) fn write(path: &Path, keep: usize, state: &State) -> Result<(), StateError> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    state.write_atomic(&new)?;
    let moved = move_on(path, keep).and_then(|()| fs::rename(&new, path)).and_then(|()| sync(path));
    moved.map_err(|source| StateError::File { path: path.to_owned(), source })
}

/// Moves every checkpoint to the next place, and drops what is beyond the last.
fn move_on(path: &Path, keep: usize) -> io::Result<()> {
    for before in (1..keep).rev() {
        let from = earlier(path, before - 1);
        if from.exists() {
            fs::rename(from, earlier(path, before))?;
        }
    }
    // Of a run that kept more.
    for before in keep.max(1).. {
        let beyond = earlier(path, before);
        if !beyond.exists() {
            return Ok(());
        }
        fs::remove_file(beyond)?;
    }
    Ok(())
}

/// Makes renames in the folder of `path` last through a crash of the machine, where the system can.
fn sync(path: &Path) -> io::Result<()> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    match File::open(folder.unwrap_or(Path::new("."))) {
        Ok(folder) if cfg!(unix) => folder.sync_all(),
        _ => Ok(()),
    }
}

/// The newest checkpoint at `path` that can be read. `skipped` hears of each that cannot, with the reason.
///
/// # Errors
/// Why the first could not be read, where none can.
pub(crate) fn newest_good(
    path: &Path,
    mut skipped: impl FnMut(&Path, &StateError),
) -> Result<(PathBuf, State), StateError> {
    let mut first = None;
    for before in 0.. {
        let candidate = earlier(path, before);
        if before > 0 && !candidate.exists() {
            break;
        }
        match State::read(&candidate) {
            Ok(state) => {
                if let Some(error) = &first {
                    skipped(path, error);
                }
                return Ok((candidate, state));
            }
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(first.unwrap_or_else(|| StateError::Missing("checkpoint".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(step: u64) -> State {
        let mut state = State::new();
        state.set_number("step", step);
        state.set_floats("w", vec![step as f32; 100]);
        state
    }

    fn steps(path: &Path) -> Vec<u64> {
        let all = (0..).map(|before| earlier(path, before)).take_while(|path| path.exists());
        all.map(|path| State::read(path).unwrap().number("step").unwrap()).collect()
    }

    #[test]
    fn the_last_few_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        for step in 1..=5 {
            write(&path, 3, &state(step)).unwrap();
        }
        assert_eq!(steps(&path), [5, 4, 3]);
        write(&path, 1, &state(6)).unwrap();
        assert_eq!(steps(&path), [6]);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn the_newest_good_one_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        for step in 1..=3 {
            write(&path, 3, &state(step)).unwrap();
        }
        let found = |path: &Path| {
            let mut skipped = Vec::new();
            let result = newest_good(path, |path, error| skipped.push(format!("{path:?} {error}")));
            (result.map(|(_, state)| state.number("step").unwrap()), skipped)
        };
        assert_eq!(found(&path).0.unwrap(), 3);
        let whole = fs::read(&path).unwrap();
        for cut in [0, 10, whole.len() / 2, whole.len() - 1] {
            fs::write(&path, &whole[..cut]).unwrap();
            let (step, skipped) = found(&path);
            assert_eq!(step.unwrap(), 2);
            assert!(
                skipped[0].contains("run.state") && skipped[0].contains("damaged"),
                "{skipped:?}"
            );
        }
        let mut flipped = whole.clone();
        *flipped.last_mut().unwrap() ^= 1;
        fs::write(&path, flipped).unwrap();
        assert_eq!(found(&path).0.unwrap(), 2);
        // A crash between two renames.
        fs::remove_file(&path).unwrap();
        assert_eq!(found(&path).0.unwrap(), 2);
        let error = found(&folder.path().join("other.state")).0.unwrap_err().to_string();
        assert!(error.contains("other.state"), "{error}");
    }

    #[test]
    fn what_cannot_be_written_leaves_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        write(&path, 2, &state(1)).unwrap();
        // The new one's place is taken by a folder, as a full disk would refuse it.
        fs::create_dir(folder.path().join("run.state.new")).unwrap();
        let error = write(&path, 2, &state(2)).unwrap_err().to_string();
        assert!(error.contains("run.state"), "{error}");
        assert_eq!(steps(&path), [1]);
    }
}
