//! Hashes of all tensors of a source.

use std::ops::Range;

use crate::hasher::TensorHasher;
use crate::part::PART;
use crate::source::bytes_of;
use crate::workers::{Workers, run};
use crate::{Buffer, Error, Source, StateHash, Tensor, progress};

/// Bytes that a thread hashes between two reports of the progress, about.
const BATCH: usize = 64 << 20;

/// The hash of each tensor, in order. Their sum is the hash of the state.
///
/// # Errors
/// If a tensor cannot be read; if the [progress](crate::Progress) is stopped.
pub fn hashes(source: &dyn Source, workers: &mut Workers) -> Result<Vec<StateHash>, Error> {
    progress::expect(bytes_of(source));
    let tensors = source.tensors();
    let hashers: Vec<TensorHasher> = tensors.iter().map(TensorHasher::new).collect();
    let parts = |index: usize| (0..tensors[index].elements()).step_by(PART);
    let jobs: Vec<(usize, usize)> = (0..tensors.len())
        .flat_map(|index| parts(index).map(move |first| (index, first)))
        .collect();
    let work = |worker: &mut crate::workers::Worker, &(index, first): &(usize, usize)| {
        content(source, &hashers[index], index, first, &mut worker.base)
    };
    let mut hashes: Vec<StateHash> = hashers.iter().map(TensorHasher::existence).collect();
    let mut rest = &jobs[..];
    while !rest.is_empty() {
        let most = BATCH * workers.threads();
        let mut bytes = 0;
        let is_last = |&(index, first): &(usize, usize)| {
            bytes += part_of(&tensors[index], first).len();
            bytes >= most
        };
        let len = rest.iter().position(is_last).map_or(rest.len(), |last| last + 1);
        let batch;
        (batch, rest) = rest.split_at(len);
        for ((index, _), hash) in batch.iter().zip(run(&mut workers.all, batch, work)?) {
            hashes[*index] += hash;
        }
        progress::advance(bytes as u64)?;
    }
    Ok(hashes)
}

/// The hash of one tensor.
pub(crate) fn hash_of(
    source: &dyn Source,
    index: usize,
    buffer: &mut Buffer,
) -> Result<StateHash, Error> {
    let tensor = &source.tensors()[index];
    let hasher = TensorHasher::new(tensor);
    progress::expect(tensor.byte_len() as u64);
    (0..tensor.elements()).step_by(PART).try_fold(hasher.existence(), |hash, first| {
        let content = content(source, &hasher, index, first, buffer)?;
        progress::advance(part_of(tensor, first).len() as u64)?;
        Ok(hash + content)
    })
}

fn content(
    source: &dyn Source,
    hasher: &TensorHasher,
    index: usize,
    first: usize,
    buffer: &mut Buffer,
) -> Result<StateHash, Error> {
    let bytes = source.read(index, part_of(&source.tensors()[index], first), buffer)?;
    Ok(hasher.content(first, bytes))
}

/// The bytes of the part that begins with the element `first`.
fn part_of(tensor: &Tensor, first: usize) -> Range<usize> {
    let width = tensor.element().width();
    first * width..tensor.elements().min(first + PART) * width
}
