//! Patches that are interrupted after every operation.

use std::fs;
use std::path::Path;

use super::frame::{self, Kind};
use super::*;
use crate::files::FileError;
use crate::files::disk::faults::Failing;
use crate::files::disk::{Disk, System};

/// Two files: their old bytes, and the new ones, worked out by hand.
fn versions() -> [[Vec<u8>; 2]; 2] {
    let old = [(0..40).collect::<Vec<u8>>(), vec![7; 300]];
    let mut new = old.clone();
    new[0][10..12].copy_from_slice(&[201, 202]);
    new[0][14..16].copy_from_slice(&[203, 204]);
    new[0][38..40].copy_from_slice(&[205, 206]);
    new[1][100..210].fill(9);
    [old, new]
}

fn write(folder: &Path, files: &[Vec<u8>; 2]) {
    for (name, bytes) in ["a", "b"].iter().zip(files) {
        fs::write(folder.join(name), bytes).unwrap();
    }
}

fn read(folder: &Path) -> [Vec<u8>; 2] {
    ["a", "b"].map(|name| fs::read(folder.join(name)).unwrap())
}

fn patch(disk: &impl Disk, folder: &Path) -> Result<(), FileError> {
    let lock = Lock::take(folder)?;
    lock.complete(disk)?;
    patch_locked(disk, &lock)
}

fn patch_locked(disk: &impl Disk, lock: &Lock) -> Result<(), FileError> {
    let mut log = Log::create(disk, lock, [("a", 40), ("b", 300)].into_iter())?;
    let positions = [0u32, 2, 14].map(u32::to_le_bytes);
    let values = [201, 202, 203, 204, 205, 206];
    let new = New::Elements { width: 2, positions: &positions, values: &values };
    log.add(&Patch { file: 0, offset: 10, new })?;
    log.add(&Patch { file: 1, offset: 100, new: New::Bytes(&[9; 110]) })?;
    log.commit()
}

fn names(folder: &Path) -> usize {
    fs::read_dir(folder).unwrap().count()
}

#[test]
fn a_crash_at_any_operation_leaves_the_old_or_the_new_bytes() {
    let [old, new] = versions();
    let (mut olds, mut news) = (0, 0);
    for operations in 0.. {
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        write(at, &old);
        let done = patch(&Failing::after(operations), at).is_ok();
        // What is opened next completes the patch; that may be interrupted, too.
        for again in 0..3 {
            let _ = complete(&Failing::after(again), at);
        }
        complete(&System, at).unwrap();
        let found = read(at);
        assert!(found == old || found == new, "after {operations} operations: a mixture");
        if found == old {
            olds += 1
        } else {
            news += 1
        }
        assert!(!done || found == new);
        // The next patch works, and nothing is left beside the files.
        patch(&System, at).unwrap();
        // The lock stays.
        assert!(read(at) == new && names(at) == 3);
        if done {
            break;
        }
    }
    // Block written, synced, renamed; folder synced, two writes, two syncs, removed, synced.
    assert_eq!((olds, news), (3, 8));
}

#[test]
fn a_damaged_log_is_refused_before_a_file_changes() {
    let [old, new] = versions();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write(at, &old);
    patch(&Failing::after(4), at).unwrap_err();
    let log = fs::read(at.join(NAME)).unwrap();
    for place in 0..log.len() {
        let mut bad = log.clone();
        bad[place] ^= 1;
        fs::write(at.join(NAME), bad).unwrap();
        let error = complete(&System, at).unwrap_err().to_string();
        assert!(error.contains("is damaged") && read(at) == old, "byte {place}: {error}");
        fs::write(at.join(NAME), &log[..place]).unwrap();
        assert!(complete(&System, at).is_err() && read(at) == old, "{place} bytes");
    }
    fs::write(at.join(NAME), &log).unwrap();
    fs::write(at.join("a"), [0; 39]).unwrap();
    assert!(complete(&System, at).unwrap_err().to_string().contains("not the file"));
    write(at, &old);
    complete(&System, at).unwrap();
    assert_eq!(read(at), new);
}

/// A log whose checksums are right: it writes the first byte of `a`, and then has this frame.
fn log_with(kind: Kind, payload: &[&[u8]]) -> Vec<u8> {
    let mut log = frame::MAGIC.to_vec();
    frame::write(&mut log, Kind::Files, |out| {
        for (name, len) in [(b'a', 40u64), (b'b', 300)] {
            out.extend_from_slice(&[&len.to_le_bytes()[..], &[1, 0, name]].concat());
        }
    });
    frame::write(&mut log, Kind::Bytes, |out| {
        out.extend_from_slice(&[&[0; 12][..], &[99]].concat())
    });
    frame::write(&mut log, kind, |out| out.extend_from_slice(&payload.concat()));
    frame::write(&mut log, Kind::End, |out| out.extend_from_slice(&3u64.to_le_bytes()));
    log
}

#[test]
fn a_log_that_no_writer_made_changes_nothing() {
    let [old, _] = versions();
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    write(at, &old);
    let file = |file: u32, offset: u64| [&file.to_le_bytes()[..], &offset.to_le_bytes()].concat();
    let positions = |all: &[u32]| all.iter().flat_map(|at| at.to_le_bytes()).collect::<Vec<u8>>();
    let elements = |offset: u64, width: u8, all: &[u32]| {
        let values = vec![1; all.len() * usize::from(width)];
        log_with(Kind::Changes, &[&file(0, offset), &[width], &positions(all), &values])
    };
    for log in [
        log_with(Kind::Bytes, &[&file(0, 38), &[1; 3]]),
        log_with(Kind::Bytes, &[&file(0, u64::MAX), &[1; 3]]),
        log_with(Kind::Bytes, &[&file(2, 0), &[1]]),
        log_with(Kind::Bytes, &[&[0; 11]]),
        log_with(Kind::Files, &[]),
        elements(0, 2, &[0, 20]),
        elements(u64::MAX - 1, 2, &[0]),
        elements(0, 1, &[u32::MAX]),
        elements(0, 3, &[0, 1]),
        elements(0, 0, &[]),
        elements(0, 2, &[3, 2]),
        elements(0, 2, &[2, 2]),
    ] {
        fs::write(at.join(NAME), log).unwrap();
        let error = complete(&System, at).unwrap_err().to_string();
        assert!(error.contains("is damaged") && read(at) == old, "{error}");
    }
    // The first one is right.
    fs::write(at.join(NAME), elements(0, 2, &[1, 19])).unwrap();
    complete(&System, at).unwrap();
    let mut new = old;
    for (place, byte) in [(0, 99), (2, 1), (3, 1), (38, 1), (39, 1)] {
        new[0][place] = byte;
    }
    assert_eq!(read(at), new);
}

#[test]
fn positions_are_within_a_part() {
    // In a large file without content a few bytes would ask for 4 GiB of memory.
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::create(folder.path().join("a")).unwrap();
    file.set_len(1 << 33).unwrap();
    let mut log = frame::MAGIC.to_vec();
    frame::write(&mut log, Kind::Files, |out| {
        out.extend_from_slice(&[&(1u64 << 33).to_le_bytes()[..], &[1, 0, b'a']].concat());
    });
    frame::write(&mut log, Kind::Changes, |out| {
        out.extend_from_slice(&[&[0; 12][..], &[1], &[0; 4], &[0, 0, 16, 0], &[1, 1]].concat());
    });
    frame::write(&mut log, Kind::End, |out| out.extend_from_slice(&2u64.to_le_bytes()));
    fs::write(folder.path().join(NAME), log).unwrap();
    assert!(complete(&System, folder.path()).unwrap_err().to_string().contains("is damaged"));
}

#[cfg(unix)]
#[test]
fn links_out_of_the_folder_are_not_followed() {
    use std::os::unix::fs::symlink;
    let place = tempfile::tempdir().unwrap();
    let (at, outside) = (place.path().join("x"), place.path().join("outside"));
    fs::create_dir(&at).unwrap();
    let [old, new] = versions();
    write(&at, &old);
    // The log is complete; then somebody replaces a file by a link.
    patch(&Failing::after(4), &at).unwrap_err();
    let log = fs::read(at.join(NAME)).unwrap();
    fs::rename(at.join("a"), &outside).unwrap();
    symlink("../outside", at.join("a")).unwrap();
    let error = complete(&System, &at).unwrap_err().to_string();
    assert!(error.contains("leads out") && read(&at) == old, "{error}");
    // A patch that could not be completed does not begin.
    fs::remove_file(at.join(NAME)).unwrap();
    assert!(patch(&System, &at).unwrap_err().to_string().contains("leads out"));
    assert!(!at.join(NAME).exists());
    // An unfinished log that is a link is removed, not written.
    fs::remove_file(at.join("a")).unwrap();
    symlink("../outside", at.join(UNFINISHED)).unwrap();
    // A link within the folder is a file of the folder.
    fs::copy(&outside, at.join("c")).unwrap();
    symlink("c", at.join("a")).unwrap();
    patch(&System, &at).unwrap();
    assert!(read(&at) == new && fs::read(&outside).unwrap() == old[0]);
    // The lock is not a link.
    fs::remove_file(at.join(LOCK)).unwrap();
    symlink("../new", at.join(LOCK)).unwrap();
    fs::write(at.join(NAME), log).unwrap();
    assert!(complete(&System, &at).unwrap_err().to_string().contains("link"));
    assert!(!place.path().join("new").exists());
}

#[test]
fn only_one_process_patches_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &versions()[0]);
    let first = Lock::take(folder.path()).unwrap();
    // Also after a log has been renamed and removed.
    for _ in 0..2 {
        let error = patch(&System, folder.path()).unwrap_err().to_string();
        assert!(error.contains("another process"), "{error}");
        patch_locked(&System, &first).unwrap();
    }
    drop(first);
    patch(&System, folder.path()).unwrap();
}
