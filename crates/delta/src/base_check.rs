//! Whether streams fit the weights that they are to change.

use crate::frame::{Header, Kind};
use crate::{Error, State, StateHash};

/// Checks that the streams with these headers make up one update; returns their common header with
/// the sum of the base hashes.
pub(crate) fn joined(headers: &[&Header]) -> Result<Header, Error> {
    let first = headers.first().ok_or(Error::MixedShares("there are none"))?;
    for header in headers {
        if header.run != first.run {
            return Err(Error::MixedShares("they are of different runs"));
        }
        let versions = |header: &Header| (header.kind, header.base, header.target);
        if versions(header) != versions(first) {
            return Err(Error::MixedShares("they lead between different versions"));
        }
        if header.share.count != first.share.count || header.named != first.named {
            return Err(Error::MixedShares("they are shares of different numbers of ranks"));
        }
        if header.portable != first.portable {
            return Err(Error::MixedShares("some of them are portable, and others are not"));
        }
    }
    let mut indexes: Vec<u64> = headers.iter().map(|header| header.share.index).collect();
    indexes.sort_unstable();
    if indexes.windows(2).any(|pair| pair[0] == pair[1]) {
        return Err(Error::MixedShares("one of them is there twice"));
    }
    let base_hash = headers.iter().map(|header| header.base_hash).sum();
    Ok(Header { base_hash, ..(*first).clone() })
}

/// Refuses fewer streams than the update has.
pub(crate) fn check_count(header: &Header, found: usize) -> Result<(), Error> {
    let (expected, found) = (header.share.count, found as u64);
    if expected > found { Err(Error::MissingShares { expected, found }) } else { Ok(()) }
}

/// Whether the streams can be applied to `state`; otherwise the whole streams must be read, to see
/// whether `state` is their target.
pub(crate) fn fits(header: &Header, state: &State) -> bool {
    match header.kind {
        Kind::Snapshot => true,
        Kind::Delta => {
            header.base_hash == state.hash && state.run.is_none_or(|run| run == header.run)
        }
    }
}

/// Why a delta does not fit `state`; `None` if `state` is its target already. `found` is the number
/// of streams.
pub(crate) fn mismatch(
    header: &Header,
    target: StateHash,
    found: usize,
    state: &State,
) -> Option<Error> {
    let (base, goal, state) = (header.base, header.target, *state);
    if state.run.is_some_and(|run| run != header.run) {
        return Some(Error::OtherRun { delta: header.run, state });
    }
    if state.hash == target {
        return None;
    }
    if let Err(error) = check_count(header, found) {
        return Some(error);
    }
    // A base model is version 0 of any run.
    Some(match state.version {
        version if version < base => Error::MissingLink { base, target: goal, state },
        version if version > base => Error::Outdated { base, target: goal, state },
        _ => Error::WrongBase { expected: header.base_hash, state },
    })
}
