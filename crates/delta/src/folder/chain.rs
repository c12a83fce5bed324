//! Which streams lead from some weights to the newest version.

use std::collections::BTreeMap;

use super::contents::Item;
use crate::frame::Kind;

/// Why no streams lead to the newest version.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Missing {
    /// The delta from `link − 1` to `link` is not there: all later ones are.
    pub(super) link: u64,
    /// The newest snapshot, if there is one.
    pub(super) snapshot: Option<u64>,
}

/// The streams with the fewest bytes that lead to version `latest`, from the weights of version
/// `from`, if there are some, or from any snapshot.
pub(super) fn find(items: &[Item], from: Option<u64>, latest: u64) -> Result<Vec<&Item>, Missing> {
    // Bytes to reach each version, and the last stream of the way. Items are in order of targets.
    let mut best: BTreeMap<u64, (u64, Option<&Item>)> = BTreeMap::new();
    best.extend(from.map(|version| (version, (0, None))));
    for item in items {
        let before = match item.kind {
            Kind::Snapshot => Some(0),
            Kind::Delta => best.get(&item.base).map(|(bytes, _)| *bytes),
        };
        let Some(before) = before else { continue };
        let bytes = before.saturating_add(item.bytes);
        if best.get(&item.target).is_none_or(|(found, _)| bytes < *found) {
            best.insert(item.target, (bytes, Some(item)));
        }
    }
    let mut way = Vec::new();
    let mut step = best.get(&latest).copied();
    while let Some((_, Some(item))) = step {
        way.push(item);
        if item.kind == Kind::Snapshot {
            break;
        }
        step = best.get(&item.base).copied();
    }
    if step.is_none() {
        return Err(missing(items, latest));
    }
    way.reverse();
    Ok(way)
}

/// Goes back from the newest version as far as deltas lead.
fn missing(items: &[Item], latest: u64) -> Missing {
    let mut link = latest;
    let deltas = items.iter().rev().filter(|item| item.kind == Kind::Delta);
    for item in deltas {
        if item.target == link {
            link = item.base;
        }
    }
    let snapshots = items.iter().filter(|item| item.kind == Kind::Snapshot);
    Missing { link, snapshot: snapshots.map(|item| item.target).max() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::contents::Identity;

    fn delta(base: u64, target: u64, bytes: u64) -> Item {
        Item { kind: Kind::Delta, base, target, bytes, identity: Identity::default() }
    }

    fn snapshot(target: u64) -> Item {
        Item { kind: Kind::Snapshot, base: target, ..delta(0, target, 100) }
    }

    /// The targets on the way, negative for snapshots.
    fn way(items: &[Item], from: Option<u64>, latest: u64) -> Result<Vec<i64>, Missing> {
        let mut items = items.to_vec();
        items.sort_by_key(|item| (item.target, item.base, item.kind == Kind::Snapshot));
        let sign = |item: &&Item| match item.kind {
            Kind::Snapshot => -(item.target as i64),
            Kind::Delta => item.target as i64,
        };
        find(&items, from, latest).map(|way| way.iter().map(sign).collect())
    }

    #[test]
    fn the_way_with_the_fewest_bytes() {
        let links: Vec<Item> = (0..9).map(|base| delta(base, base + 1, 30)).collect();
        let all = [links.clone(), vec![snapshot(5)]].concat();
        // Three links cost 90, the snapshot and two 160; six cost 180.
        assert_eq!(way(&all, Some(4), 7), Ok(vec![5, 6, 7]));
        assert_eq!(way(&all, Some(1), 7), Ok(vec![-5, 6, 7]));
        assert_eq!(way(&all, None, 7), Ok(vec![-5, 6, 7]));
        assert_eq!(way(&all, Some(7), 7), Ok(vec![]));
        // Newer weights than the latest: another trainer has gone back.
        assert_eq!(way(&all, Some(8), 7), Ok(vec![-5, 6, 7]));
        // A folded delta, if it is shorter.
        let folded = [links.clone(), vec![delta(2, 6, 70)]].concat();
        assert_eq!(way(&folded, Some(1), 7), Ok(vec![2, 6, 7]));
        let long = [links, vec![delta(2, 6, 130)]].concat();
        assert_eq!(way(&long, Some(1), 7), Ok(vec![2, 3, 4, 5, 6, 7]));
    }

    #[test]
    fn what_is_missing_is_named() {
        let links: Vec<Item> =
            (0..9).filter(|base| *base != 3).map(|base| delta(base, base + 1, 30)).collect();
        assert_eq!(way(&links, Some(0), 9), Err(Missing { link: 4, snapshot: None }));
        let old = [links.clone(), vec![snapshot(2)]].concat();
        assert_eq!(way(&old, Some(0), 9), Err(Missing { link: 4, snapshot: Some(2) }));
        let new = [links, vec![snapshot(4)]].concat();
        assert_eq!(way(&new, Some(0), 9), Ok(vec![-4, 5, 6, 7, 8, 9]));
        assert_eq!(way(&[], Some(0), 2), Err(Missing { link: 2, snapshot: None }));
    }
}
