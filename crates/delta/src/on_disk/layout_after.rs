//! The files of a checkpoint after a delta.

use std::collections::{BTreeMap, HashSet};

use crate::safetensors::{Checkpoint, Entry, Layout};
use crate::stage::default_limit;
use crate::survey::{Effect, Name, Survey};
use crate::{Error, Kind, Source, Tensor};

/// The layout that the weights have after a delta: the one that the delta states, or the present
/// one without removed tensors and with new ones in the last file.
///
/// # Errors
/// A snapshot; a layout that lacks tensors or has others; more than `max_bytes` of new tensors, or
/// than a delta of this length may have by default.
pub(super) fn layout_after(
    weights: &Checkpoint,
    survey: &Survey,
    max_bytes: Option<u64>,
) -> Result<Layout, Error> {
    if survey.header.kind == Kind::Snapshot {
        return Err(Error::OtherKind("it is a snapshot, not a delta; unpack it"));
    }
    let added = written(survey, max_bytes)?;
    let mut removed = HashSet::new();
    for record in &survey.records {
        if let Effect::Removed(Name::Number(number)) = &record.effect {
            let tensor = usize::try_from(*number).ok().and_then(|at| weights.tensors().get(at));
            // Without it the base is another one, which decoding will say.
            removed.extend(tensor.map(|tensor| tensor.name().to_owned()));
        } else if let Effect::Removed(Name::Text { name, .. }) = &record.effect {
            removed.insert(name.clone());
        }
    }
    removed.extend(added.keys().cloned());
    let Some(layout) = &survey.layout else {
        if removed.is_empty() {
            return Ok(weights.layout().clone());
        }
        let added = added.into_values().map(entry).collect();
        return weights.layout().with(&removed, added).map_err(Error::Layout);
    };
    let kept = weights.tensors().iter().filter(|tensor| !removed.contains(tensor.name()));
    check(layout, kept.chain(added.values()))?;
    Ok(layout.clone())
}

/// The layout of a snapshot: the one that it states, or one file.
///
/// # Errors
/// A delta; a layout that lacks tensors or has others; more than `max_bytes` of tensors, or than a
/// snapshot of this length may have by default.
pub(super) fn layout_of(survey: &Survey, max_bytes: Option<u64>) -> Result<Layout, Error> {
    if survey.header.kind == Kind::Delta {
        return Err(Error::OtherKind(
            "it is a delta, not a snapshot; apply it with gradwire patch",
        ));
    }
    let tensors = written(survey, max_bytes)?;
    match &survey.layout {
        Some(layout) => check(layout, tensors.values()).map(|()| layout.clone()),
        None => Layout::file(tensors.into_values().map(entry).collect()).map_err(Error::Layout),
    }
}

/// The new tensors of a stream. Their bytes are counted here, before files are made for them.
fn written(survey: &Survey, max_bytes: Option<u64>) -> Result<BTreeMap<String, Tensor>, Error> {
    let limit = max_bytes.unwrap_or(default_limit(survey.end.len));
    let (mut all, mut bytes) = (BTreeMap::new(), 0u64);
    for record in &survey.records {
        let Effect::Written(tensor) = &record.effect else { continue };
        if tensor.is_shard() {
            return Err(Error::OtherKind(
                "it has new tensors in shards of several ranks, which files cannot take; load it \
                 into memory and write whole tensors",
            ));
        }
        if all.insert(tensor.name().to_owned(), tensor.clone()).is_none() {
            bytes = bytes.saturating_add(tensor.byte_len() as u64);
        }
        if bytes > limit {
            return Err(Error::TooLarge { limit });
        }
    }
    Ok(all)
}

fn entry(tensor: Tensor) -> Entry {
    Entry {
        name: tensor.name().to_owned(),
        element: tensor.element(),
        shape: tensor.shape().to_vec(),
        place: 0..tensor.byte_len() as u64,
    }
}

/// Checks that a layout has exactly these tensors.
fn check<'a>(layout: &Layout, tensors: impl Iterator<Item = &'a Tensor>) -> Result<(), Error> {
    let entries = layout.shards.iter().flat_map(|shard| shard.header.entries());
    let mut left: BTreeMap<&str, &Entry> =
        entries.map(|entry| (entry.name.as_str(), entry)).collect();
    let wrong = |name: &str| {
        Error::Layout(format!("tensor {name:?} is not the one of its files; write the delta again"))
    };
    for tensor in tensors {
        let entry = left.remove(tensor.name()).ok_or_else(|| wrong(tensor.name()))?;
        if entry.element != tensor.element() || entry.shape != tensor.shape() {
            return Err(wrong(tensor.name()));
        }
    }
    left.keys().next().map_or(Ok(()), |name| Err(wrong(name)))
}
