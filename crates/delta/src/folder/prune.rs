//! Which streams nobody needs any more.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;

use super::contents::{self, Item};
use super::keep::Keep;
use super::lock::Lock;
use super::pointer;
use crate::files::FileError;
use crate::frame::Kind;

/// Removes streams of a folder that nobody needs; returns their number. The folder is locked, so no
/// process publishes between the look and the removal: a folded delta still finds the links that it
/// joins, or is refused.
///
/// A receiver has no lock. If it has listed streams that are gone when it opens them, it looks
/// again; one that is open can be read to its end.
pub(super) fn prune(_: &Lock, folder: &Path, keep: Keep) -> Result<usize, FileError> {
    let Some(latest) = pointer::read(folder)? else { return Ok(0) };
    let items = contents::list(folder)?;
    let unneeded = unneeded(&items, latest.version, keep.versions);
    for item in &unneeded {
        let path = folder.join(item.name());
        match fs::remove_file(&path) {
            // Somebody has removed it by hand, or the file system has no locks.
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            removed => removed.map_err(FileError::at(&path))?,
        }
    }
    Ok(unneeded.len())
}

/// The streams that may be removed so that at least the newest `keep` versions stay reachable: what
/// is older than the newest snapshot that is at least `keep` versions old. That snapshot and all
/// streams after it stay, so every snapshot that stays leads to the newest version. Without such a
/// snapshot all streams stay. Snapshots come first: once they are gone, nobody starts from them.
fn unneeded(items: &[Item], latest: u64, keep: u64) -> Vec<&Item> {
    let snapshots = || items.iter().filter(|item| item.kind == Kind::Snapshot);
    let oldest = latest.saturating_sub(keep);
    let Some(first) = snapshots().map(|item| item.target).filter(|at| *at <= oldest).max() else {
        return Vec::new();
    };
    let deltas = items.iter().filter(|item| item.kind == Kind::Delta);
    let mut unneeded: Vec<_> = snapshots().filter(|item| item.target < first).collect();
    unneeded.extend(deltas.filter(|item| item.base < first));
    unneeded
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::chain;

    /// Links from version 0 to `latest`, and a snapshot after every `every` versions.
    fn items(latest: u64, every: u64) -> Vec<Item> {
        let item = |kind, base, target, bytes| {
            let identity = contents::Identity::default();
            Item { kind, base, target, bytes, identity }
        };
        let delta = |base| item(Kind::Delta, base, base + 1, 1);
        let snapshot = |target| item(Kind::Snapshot, target, target, 9);
        let mut items: Vec<Item> = (0..latest).map(delta).collect();
        items.extend((1..=latest / every).map(|count| snapshot(count * every)));
        items.sort_by_key(|item| (item.target, item.base, item.kind == Kind::Snapshot));
        items
    }

    #[test]
    fn by_hand() {
        let all = items(9, 3);
        let names = |keep| {
            unneeded(&all, 9, keep).iter().map(|item| (item.base, item.target)).collect::<Vec<_>>()
        };
        assert_eq!(names(7), []);
        assert_eq!(names(4), [(0, 1), (1, 2), (2, 3)]);
        assert_eq!(names(2), [(3, 3), (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 6)]);
        assert_eq!(names(0).len(), 2 + 9);
    }

    #[test]
    fn whatever_stays_leads_to_the_newest_version() {
        for latest in 0..40 {
            for every in [1, 3, 7, 100] {
                for keep in [0, 1, 5, 13] {
                    let all = items(latest, every);
                    let gone = unneeded(&all, latest, keep);
                    let left: Vec<Item> =
                        all.iter().filter(|item| !gone.contains(item)).cloned().collect();
                    let starts = left.iter().map(|item| item.base);
                    let recent = latest.saturating_sub(keep)..=latest;
                    for start in starts.chain(recent) {
                        let way = chain::find(&left, Some(start), latest);
                        assert!(way.is_ok(), "{latest} {every} {keep}: from {start}");
                    }
                }
            }
        }
    }
}
