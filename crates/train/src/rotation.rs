//! Checkpoint rotation: `run.state` is the newest checkpoint, `run.state.1` the one before,
//! `run.state.2` the one before that, and so on.
//!
//! A new checkpoint is written completely, under another name and synced to disk, before any other
//! is changed. Then each is renamed to the next place, and the new one to the first. An
//! interruption at any moment, a full disk included, leaves every good checkpoint where
//! [`newest_good`] finds it. The caller says which states are complete checkpoints.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use gradwire::{State, StateError, files};

/// The path of the checkpoint `before` places before the newest, which is at `path` itself.
pub(crate) fn earlier(path: &Path, before: usize) -> PathBuf {
    if before == 0 {
        return path.to_owned();
    }
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{before}"));
    name.into()
}

/// The path at which a checkpoint is written before it is renamed to `path`.
fn beside(path: &Path) -> PathBuf {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    new.into()
}

/// Writes `state` to `path`, through links to their target, and keeps the latest `keep − 1`
/// checkpoints before it.
pub(crate) fn write(path: &Path, keep: usize, state: &State) -> Result<(), StateError> {
    let path = &target(path)?;
    let new = beside(path);
    state.write_atomic(&new)?;
    let moved = rotate(path, keep).and_then(|()| fs::rename(&new, path)).and_then(|()| sync(path));
    moved.map_err(|source| StateError::File { path: path.clone(), source })
}

/// The file that a path names, if it is or can be a regular one.
fn target(path: &Path) -> Result<PathBuf, StateError> {
    files::target(path).map_err(|source| StateError::File { path: path.to_owned(), source })
}

/// Renames every checkpoint before the first free place to the next place, and removes those beyond
/// the last.
fn rotate(path: &Path, keep: usize) -> io::Result<()> {
    let free = (0..keep).find(|&before| !earlier(path, before).exists());
    for before in (1..=free.unwrap_or(keep.max(1) - 1)).rev() {
        fs::rename(earlier(path, before - 1), earlier(path, before))?;
    }
    // From a run that kept more.
    for before in keep.max(1)..usize::MAX {
        let beyond = earlier(path, before);
        if !beyond.exists() {
            return Ok(());
        }
        fs::remove_file(beyond)?;
    }
    Ok(())
}

/// A file that is not a checkpoint, at a place where [`write`] would put, rename or remove one.
pub(crate) fn other_file(path: &Path) -> Result<Option<PathBuf>, StateError> {
    let path = &target(path)?;
    let failed = |path: &Path| {
        let path = path.to_owned();
        move |source| StateError::File { path, source }
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    for entry in fs::read_dir(folder(path)).map_err(failed(path))? {
        let found = entry.map_err(failed(path))?.path();
        let is_place =
            found.file_name().is_some_and(|found| is_place(&found.to_string_lossy(), &name));
        if is_place && !(found.is_file() && State::begins(&found).map_err(failed(&found))?) {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// Whether writing, renaming or removing a checkpoint at `path` touches `file`.
///
/// # Errors
/// The errors of the file system; `InvalidInput` if one of them is a folder, a device, a pipe or a
/// socket.
pub fn is_place_of_checkpoint(file: &Path, path: &Path) -> io::Result<bool> {
    let [file, path] = [file, path].map(|path| std::path::absolute(files::target(path)?));
    let (file, path) = (file?, path?);
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(file.parent() == path.parent() && is_place(&name(&file), &name(&path)))
}

/// Whether the checkpoint named `checkpoint` uses this file name.
fn is_place(file: &str, checkpoint: &str) -> bool {
    let Some(rest) = file.strip_prefix(checkpoint) else { return false };
    let number = rest.strip_prefix('.').unwrap_or_default();
    let before = number.parse::<usize>().unwrap_or(0);
    rest.is_empty() || rest == ".new" || before > 0 && before.to_string() == number
}

/// Syncs the folder of `path`, if the system can, so renames in it survive a crash of the machine.
fn sync(path: &Path) -> io::Result<()> {
    match File::open(folder(path)) {
        Ok(folder) if cfg!(unix) => folder.sync_all(),
        _ => Ok(()),
    }
}

/// The folder that holds the file.
fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The newest checkpoint at `path` that can be read and passes `check`. If a newer one fails, calls
/// `skipped` with the path and the fault of the newest.
///
/// # Errors
/// The fault of the newest, if none can be used.
pub(crate) fn newest_good(
    path: &Path,
    check: impl Fn(&State) -> Result<(), StateError>,
    mut skipped: impl FnMut(&Path, &StateError),
) -> Result<(PathBuf, State), StateError> {
    let path = &target(path)?;
    let mut first = None;
    for candidate in candidates(path) {
        match State::read(&candidate).and_then(|state| check(&state).map(|()| state)) {
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

/// The places of checkpoints, the newest first. An interrupted rotation leaves one place empty: if
/// it is the first, the new checkpoint is already complete.
fn candidates(path: &Path) -> impl Iterator<Item = PathBuf> + use<'_> {
    let last = (1..)
        .find(|&before| !earlier(path, before).exists() && !earlier(path, before + 1).exists());
    let new = Some(beside(path)).filter(|new| !path.exists() && new.is_file());
    let there = move |&before: &usize| before == 0 || earlier(path, before).exists();
    new.into_iter()
        .chain((0..last.unwrap_or(1)).filter(there).map(move |before| earlier(path, before)))
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
    fn the_latest_checkpoints_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        for step in 1..=5 {
            write(&path, 3, &state(step)).unwrap();
        }
        assert_eq!(steps(&path), [5, 4, 3]);
        // No loop may count to this number.
        write(&path, usize::MAX, &state(6)).unwrap();
        assert_eq!(steps(&path), [6, 5, 4, 3]);
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
            let hears = |path: &Path, error: &StateError| skipped.push(format!("{path:?} {error}"));
            let result = newest_good(path, |_| Ok(()), hears);
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
        // An incomplete checkpoint is skipped like a damaged one.
        write(&path, 3, &state(4)).unwrap();
        let whole = |state: &State| match state.number("step")? {
            4 => Err(StateError::Damaged("a part is missing".to_owned())),
            _ => Ok(()),
        };
        let mut skipped = Vec::new();
        let result = newest_good(&path, whole, |_, error| skipped.push(error.to_string()));
        assert_eq!(result.unwrap().1.number("step").unwrap(), 2);
        assert!(skipped.concat().contains("a part is missing"), "{skipped:?}");
        let error = found(&folder.path().join("other.state")).0.unwrap_err().to_string();
        assert!(error.contains("other.state"), "{error}");
    }

    #[test]
    fn a_stop_between_any_two_renames_leaves_a_good_one_to_be_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        let found = || newest_good(&path, |_| Ok(()), |_, _| {}).unwrap().1.number("step").unwrap();
        for keep in 1..=4 {
            let _ = fs::remove_file(beside(&path));
            (0..5).for_each(|before| drop(fs::remove_file(earlier(&path, before))));
            for step in 1..keep as u64 {
                write(&path, keep, &state(step)).unwrap();
            }
            // The newest is damaged; a run resumed from the one before is stopped while it writes
            // the next.
            fs::write(&path, b"damaged").unwrap();
            state(9).write_atomic(beside(&path)).unwrap();
            for before in (1..keep).rev() {
                if earlier(&path, before - 1).exists() {
                    fs::rename(earlier(&path, before - 1), earlier(&path, before)).unwrap();
                }
                if before > 1 {
                    assert_eq!(found(), keep as u64 - 2, "{keep} kept, stopped at {before}");
                }
            }
            if keep > 1 {
                assert_eq!(found(), 9);
            }
            fs::rename(beside(&path), &path).unwrap();
            assert_eq!(found(), 9);
        }
    }

    #[test]
    fn files_that_are_no_checkpoints_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        assert_eq!(other_file(&path).unwrap(), None);
        write(&path, 2, &state(1)).unwrap();
        write(&path, 2, &state(2)).unwrap();
        // A damaged checkpoint counts as a checkpoint, and files with other names are not in the
        // way.
        let whole = fs::read(&path).unwrap();
        fs::write(&path, &whole[..100]).unwrap();
        for name in ["run.state.txt", "run.state.0", "run.state.07", "run.state.", "other.state.1"]
        {
            fs::write(folder.path().join(name), b"text").unwrap();
        }
        assert_eq!(other_file(&path).unwrap(), None);
        for name in ["run.state.7", "run.state.new", "run.state"] {
            let other = folder.path().join(name);
            for text in ["", "a text that is longer than the beginning of a state, but is none"] {
                fs::write(&other, text).unwrap();
                assert_eq!(other_file(&path).unwrap(), Some(other.clone()));
            }
            fs::remove_file(other).unwrap();
        }
        fs::create_dir(folder.path().join("run.state.3")).unwrap();
        assert!(other_file(&path).unwrap().is_some());
    }

    #[test]
    fn places_of_a_checkpoint_are_known_however_they_are_written() {
        let place = |file: &str| {
            is_place_of_checkpoint(Path::new(file), Path::new("there/run.state")).unwrap()
        };
        for file in ["there/run.state", "./there/run.state.1", "there/./run.state.new"] {
            assert!(place(file), "{file}");
        }
        for file in ["run.state", "there/run.state.json", "there/run.state.0", "there/run"] {
            assert!(!place(file), "{file}");
        }
    }

    #[test]
    fn a_failed_write_leaves_the_checkpoint_before() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.state");
        write(&path, 2, &state(1)).unwrap();
        // A folder takes the new checkpoint's place: writing fails, as on a full disk.
        fs::create_dir(folder.path().join("run.state.new")).unwrap();
        let error = write(&path, 2, &state(2)).unwrap_err().to_string();
        assert!(error.contains("run.state"), "{error}");
        assert_eq!(steps(&path), [1]);
    }
}
