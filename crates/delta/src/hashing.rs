//! Hashes of all tensors of a source.

use crate::hasher::TensorHasher;
use crate::part::PART;
use crate::workers::{Workers, run};
use crate::{Buffer, Error, Source, StateHash};

/// The hash of each tensor, in order. Their sum is the hash of the state.
///
/// # Errors
/// If a tensor cannot be read.
pub fn hashes(source: &dyn Source, workers: &mut Workers) -> Result<Vec<StateHash>, Error> {
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
    for ((index, _), hash) in jobs.iter().zip(run(&mut workers.all, &jobs, work)?) {
        hashes[*index] += hash;
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
    (0..tensor.elements()).step_by(PART).try_fold(hasher.existence(), |hash, first| {
        Ok(hash + content(source, &hasher, index, first, buffer)?)
    })
}

fn content(
    source: &dyn Source,
    hasher: &TensorHasher,
    index: usize,
    first: usize,
    buffer: &mut Buffer,
) -> Result<StateHash, Error> {
    let tensor = &source.tensors()[index];
    let width = tensor.element().width();
    let end = tensor.elements().min(first + PART);
    let bytes = source.read(index, first * width..end * width, buffer)?;
    Ok(hasher.content(first, bytes))
}
