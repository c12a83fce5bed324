//! The receiving end.

use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::frame::{FrameReader, Kind};
use crate::hashing::hashes;
use crate::part::apply;
use crate::stage::{StageOptions, stage};
use crate::workers::{Workers, run};
use crate::{Error, RunId, State, StateHash, Tensors, Update};

/// Holds tensors, and brings them from version to version.
///
/// [`stage`](Receiver::stage) decodes and proves an update while others read the tensors;
/// [`commit`](Receiver::commit) writes it.
#[derive(Debug)]
pub struct Receiver<T> {
    tensors: T,
    hashes: Vec<StateHash>,
    /// Behind a lock, because staging may find another name of the same weights.
    state: Mutex<State>,
    /// The weights after a commit that has begun and not ended.
    unfinished: Option<State>,
    /// The snapshot that was committed last.
    snapshot: Option<State>,
    max_bytes: Option<u64>,
    workers: Mutex<Workers>,
}

impl<T: Tensors> Receiver<T> {
    /// Hashes the tensors of a base model, with `threads` threads.
    ///
    /// # Errors
    /// If the tensors cannot be read.
    pub fn new(tensors: T, threads: usize) -> Result<Self, Error> {
        let mut workers = Workers::new(threads);
        let hashes = hashes(&tensors, &mut workers)?;
        let state = Mutex::new(State::base(hashes.iter().copied().sum()));
        let workers = Mutex::new(workers);
        let (unfinished, snapshot, max_bytes) = (None, None, None);
        Ok(Self { tensors, hashes, state, unfinished, snapshot, max_bytes, workers })
    }

    /// Says that the tensors are a version of a run, as their file or folder states. The hash is
    /// always that of the tensors.
    pub fn with_version(self, run: RunId, version: u64) -> Self {
        self.set_state(State { run: Some(run), version, ..self.state() });
        self
    }

    /// Sets run and version of the weights, once their hash has been compared.
    pub(crate) fn set_state(&self, state: State) {
        debug_assert_eq!(self.state().hash, state.hash);
        *lock(&self.state) = state;
    }

    /// Limits the bytes of new tensors in an update, and of parts of tensors that change
    /// throughout; by default to 1 GiB, or to 1024 times the bytes of the stream if that is more.
    pub fn with_max_bytes(mut self, max_bytes: u64) -> Self {
        self.max_bytes = Some(max_bytes);
        self
    }

    /// The weights that are here.
    pub fn state(&self) -> State {
        *lock(&self.state)
    }

    /// The weights of the snapshot that was committed last.
    pub(crate) fn snapshot(&self) -> Option<State> {
        self.snapshot
    }

    /// The tensors.
    pub fn tensors(&self) -> &T {
        &self.tensors
    }

    /// The tensors, without the receiver.
    pub fn into_tensors(self) -> T {
        self.tensors
    }

    /// Decodes and proves an update: one stream, or all shares of it in any order. Changes nothing.
    ///
    /// # Errors
    /// If the streams are damaged, truncated, or lead from other weights.
    pub fn stage<R: Read>(&self, inputs: impl IntoIterator<Item = R>) -> Result<Update, Error> {
        let mut update = Update::default();
        self.stage_into(inputs, &mut update)?;
        Ok(update)
    }

    /// As [`Receiver::stage`], with the memory of an earlier update.
    ///
    /// # Errors
    /// As for [`Receiver::stage`].
    pub fn stage_into<R: Read>(
        &self,
        inputs: impl IntoIterator<Item = R>,
        update: &mut Update,
    ) -> Result<(), Error> {
        update.clear();
        let inputs = inputs.into_iter().map(FrameReader::new).collect::<Result<Vec<_>, _>>()?;
        self.stage_frames(inputs, update)
    }

    /// As [`Receiver::stage_into`], for streams whose headers have been read.
    ///
    /// # Errors
    /// As for [`Receiver::stage`].
    pub fn stage_frames<R: Read>(
        &self,
        inputs: Vec<FrameReader<R>>,
        update: &mut Update,
    ) -> Result<(), Error> {
        update.clear();
        let is_delta = |input: &FrameReader<R>| input.header().kind == Kind::Delta;
        if let Some(target) = self.unfinished.filter(|_| inputs.iter().any(is_delta)) {
            return Err(Error::Interrupted { target });
        }
        let growable = self.tensors.is_growable();
        let options = StageOptions { max_bytes: self.max_bytes, growable };
        stage(&self.tensors, &self.state(), inputs, &options, &mut self.workers(), update)
    }

    /// Writes a staged update. If this fails the tensors may be partly new: commit the same update
    /// again, which writes the same elements. Committing once more after success does nothing.
    ///
    /// Tensors that are [growable](Tensors::is_growable) take the buffers of new tensors:
    /// [`Update::added`] is empty afterwards.
    ///
    /// # Errors
    /// If the update was staged for other weights, or the memory of the tensors is not there.
    pub fn commit(&mut self, update: &mut Update) -> Result<State, Error> {
        if update.info.is_none() {
            return Err(Error::NotStaged);
        }
        let (base, target) = (update.base(), update.target());
        let repairs = !update.is_committed()
            && (update.kind() == Kind::Snapshot || self.unfinished == Some(target));
        if let Some(target) = self.unfinished.filter(|_| !repairs) {
            return Err(Error::Interrupted { target });
        }
        if update.is_committed() && self.state() == target {
            return Ok(target);
        }
        if update.is_committed() || self.state() != base {
            return Err(Error::Stale { expected: base, found: self.state() });
        }
        if !update.is_applied() {
            self.unfinished = Some(target);
            self.write(update)?;
            self.unfinished = None;
        }
        *lock(&self.state) = target;
        if update.kind() == Kind::Snapshot {
            self.snapshot = Some(target);
        }
        update.set_committed();
        Ok(target)
    }

    /// Hashes all tensors again and compares.
    ///
    /// # Errors
    /// If a tensor changed other than by [`Receiver::commit`]; the first such tensor is named.
    pub fn verify(&self) -> Result<(), Error> {
        let found = hashes(&self.tensors, &mut self.workers())?;
        match found.iter().zip(&self.hashes).position(|(found, kept)| found != kept) {
            Some(index) => {
                Err(Error::Changed { name: self.tensors.tensors()[index].name().to_owned() })
            }
            None => Ok(()),
        }
    }

    fn workers(&self) -> MutexGuard<'_, Workers> {
        lock(&self.workers)
    }

    fn write(&mut self, update: &mut Update) -> Result<(), Error> {
        self.write_patches(update)?;
        for patch in &update.patches {
            self.hashes[patch.elements.tensor] += patch.change;
        }
        if self.tensors.is_growable() {
            self.replace(update);
            return Ok(());
        }
        for (added, &index) in update.added.iter().zip(&update.removed) {
            self.hashes[index] = added.hash;
        }
        Ok(())
    }

    /// Writes new elements of tensors that are there.
    fn write_patches(&mut self, update: &Update) -> Result<(), Error> {
        let elements: Vec<_> =
            self.tensors.tensors().iter().map(|tensor| tensor.element()).collect();
        let growable = self.tensors.is_growable();
        let mut states = vec![(); self.workers().threads()];
        let mut slices = self.tensors.slices_mut()?;
        if !growable {
            for (added, &index) in update.added.iter().zip(&update.removed) {
                slices[index].copy_from_slice(&added.buffer);
            }
        }
        let mut rests = slices.into_iter().map(|slice| (slice, 0)).enumerate();
        let mut current = None;
        let mut jobs = Vec::with_capacity(update.patches.len());
        for patch in update.patches() {
            while current.as_ref().is_none_or(|(index, _)| *index != patch.tensor) {
                current = rests.next();
            }
            let (index, (slice, start)) = current.take().expect("patches are in order");
            let width = elements[index].width();
            let (_, slice) = slice.split_at_mut((patch.first - start) * width);
            let (part, rest) = slice.split_at_mut(patch.len * width);
            jobs.push((elements[index], patch.content, Mutex::new(part)));
            current = Some((index, (rest, patch.first + patch.len)));
        }
        run(&mut states, &jobs, |(), (element, content, part)| {
            apply(*element, content, &mut part.lock().expect("each part has one job"));
            Ok(())
        })?;
        Ok(())
    }

    /// Removes tensors and adds others.
    fn replace(&mut self, update: &mut Update) {
        if update.removed.is_empty() && update.added.is_empty() {
            return;
        }
        let old = self.tensors.tensors().iter().zip(&self.hashes).enumerate();
        let kept = old.filter(|(index, _)| update.removed.binary_search(index).is_err());
        let new = update.added.iter().map(|added| (&added.tensor, &added.hash));
        let mut hashes: Vec<_> = kept.map(|(_, pair)| pair).chain(new).collect();
        hashes.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        self.hashes = hashes.into_iter().map(|(_, hash)| *hash).collect();
        let added = update.added.drain(..).map(|added| (added.tensor, added.buffer)).collect();
        self.tensors.replace(&update.removed, added);
    }
}

/// Locks a value that a panic of another thread cannot break: working memory, or a copied state.
fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}
