//! Patches that are interrupted after every operation.

use std::fs;
use std::path::Path;

use super::log::{Changes, Log};
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
    let mut log = Log::create(disk, folder, [("a", 40), ("b", 300)].into_iter())?;
    log.changes(&Changes {
        file: 0,
        offset: 10,
        width: 2,
        positions: &[0, 2, 14],
        values: &[201, 202, 203, 204, 205, 206],
    })?;
    log.bytes(1, 100, &[9; 110])?;
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
        assert!(read(at) == new && names(at) == 2);
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

#[test]
fn only_one_process_patches_a_folder() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path(), &versions()[0]);
    let first = Log::create(&System, folder.path(), [("a", 40)].into_iter()).unwrap();
    let error = patch(&System, folder.path()).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(first);
    patch(&System, folder.path()).unwrap();
}
