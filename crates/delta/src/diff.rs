//! Writes deltas and snapshots.

use std::collections::BTreeSet;
use std::ops::Range;

use crate::frame::{FrameWriter, Header, Kind, Share, Sink};
use crate::hasher::TensorHasher;
use crate::hashing::hash_of;
use crate::options::{Absent, DiffOptions, Ends, Summary, Target};
use crate::part::{Options, PART};
use crate::pool::{Pool, Pools};
use crate::record::{self, Reference, SMALL};
use crate::segment::{Encoded, Segment, encode, segments};
use crate::source::bytes_of;
use crate::workers::{Worker, Workers, run};
use crate::{Error, Slices, Source, State, StateHash, Tensor, progress};

/// Bytes of elements that a thread takes from a batch, about.
const BATCH: usize = 64 << 20;

/// Writes the changes from `base` to `new`, whose states are in `ends`.
///
/// # Errors
/// If tensors cannot be read, are absent against the options, the sink fails, or the
/// [progress](crate::Progress) is stopped.
pub fn write_delta(
    base: &dyn Source,
    new: &dyn Source,
    ends: &Ends,
    options: &DiffOptions,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let mut diff = Diff::new(base, &ends.base, ends.target, options);
    diff.add(base, new, workers, sink)?;
    diff.finish(base, workers, sink)
}

/// Writes all tensors of `source`, which are the weights `target`.
///
/// # Errors
/// If tensors cannot be read, the sink fails, or the [progress](crate::Progress) is stopped.
pub fn write_snapshot(
    source: &dyn Source,
    target: Target,
    share: Share,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let (mut diff, none) = (Diff::snapshot(source, target, share), Slices::default());
    diff.add(&none, source, workers, sink)?;
    diff.finish(&none, workers, sink)
}

/// A stream that is being written. The base is given to each call and must be the same.
#[derive(Debug)]
pub(crate) struct Diff {
    options: DiffOptions,
    target: Target,
    named: bool,
    frames: FrameWriter,
    hash: StateHash,
    /// Whether each tensor of the base was among the new ones, or is replaced by one.
    seen: Vec<bool>,
    /// Name and first row of the new ones.
    added: BTreeSet<(String, u64)>,
    pools: Pools,
}

impl Diff {
    pub(crate) fn new(
        base: &dyn Source,
        state: &State,
        target: Target,
        options: &DiffOptions,
    ) -> Self {
        let named = options.share.count > 1 || base.tensors().iter().any(Tensor::is_shard);
        let header = Header {
            kind: Kind::Delta,
            named,
            portable: options.portable,
            run: target.run,
            base: state.version,
            target: target.version,
            base_hash: state.hash,
            share: options.share,
        };
        Self::with_header(&header, options, base.tensors().len())
    }

    pub(crate) fn snapshot(source: &dyn Source, target: Target, share: Share) -> Self {
        let options = DiffOptions { share, ..DiffOptions::default() };
        let header = Header {
            kind: Kind::Snapshot,
            named: share.count > 1 || source.tensors().iter().any(Tensor::is_shard),
            portable: false,
            run: target.run,
            base: target.version,
            target: target.version,
            base_hash: StateHash::default(),
            share,
        };
        Self::with_header(&header, &options, 0)
    }

    fn with_header(header: &Header, options: &DiffOptions, tensors: usize) -> Self {
        Self {
            options: *options,
            target: Target { run: header.run, version: header.target },
            named: header.named,
            frames: FrameWriter::new(header),
            hash: header.base_hash,
            seen: vec![false; tensors],
            added: BTreeSet::new(),
            pools: Pools::default(),
        }
    }

    /// Writes all tensors of `new` that differ from the base.
    pub(crate) fn add(
        &mut self,
        base: &dyn Source,
        new: &dyn Source,
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        progress::expect(bytes_of(new));
        let most = BATCH * workers.threads();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for index in 0..new.tensors().len() {
            let tensor = &new.tensors()[index];
            let same = self.register(base, tensor, workers)?;
            if let Some(base_index) = same
                && tensor.elements() < SMALL
            {
                let worker = &mut workers.all[0];
                if let Some(full) = self.add_small(base, new, (base_index, index), worker)? {
                    // Threads decide the size of a batch; they must not decide the order of
                    // records.
                    self.write(base, new, &batch, workers, sink)?;
                    (batch, bytes) = (Vec::new(), 0);
                    self.write_pool(base, &full, &mut workers.all[0], sink)?;
                }
                progress::advance(tensor.byte_len() as u64)?;
                continue;
            }
            for segment in segments(tensor, index, same) {
                bytes += segment.parts * PART * tensor.element().width();
                batch.push(segment);
                if bytes >= most {
                    self.write(base, new, &batch, workers, sink)?;
                    (batch, bytes) = (Vec::new(), 0);
                }
            }
        }
        self.write(base, new, &batch, workers, sink)
    }

    /// Adds a description of files.
    pub(crate) fn layout(&mut self, layout: &[u8], sink: &mut Sink<'_>) -> Result<(), Error> {
        Ok(self.frames.record(|frame| record::write_layout(layout, frame), sink)?)
    }

    /// Ends the stream.
    pub(crate) fn finish(
        mut self,
        base: &dyn Source,
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<Summary, Error> {
        for pool in self.pools.take() {
            self.write_pool(base, &pool, &mut workers.all[0], sink)?;
        }
        self.handle_absent(base, workers, sink)?;
        let end = self.frames.end(self.hash, sink)?;
        let Target { run, version } = self.target;
        let state = State { run: Some(run), version, hash: self.hash };
        Ok(Summary { state, records: end.records, len: end.len })
    }

    /// Notes a new tensor; returns the number of the base's tensor if it has the same description.
    fn register(
        &mut self,
        base: &dyn Source,
        tensor: &Tensor,
        workers: &mut Workers,
    ) -> Result<Option<usize>, Error> {
        let refuse = |reason| Err(Error::InvalidTensor { name: tensor.name().to_owned(), reason });
        if tensor.is_shard() && !self.named {
            return refuse(
                "it is a shard, but neither the base has shards nor the update shares; give it \
                 whole, or say which share of an update this is",
            );
        }
        if !self.added.insert((tensor.name().to_owned(), tensor.rows().start)) {
            return Err(Error::Twice { name: tensor.name().to_owned() });
        }
        let old = of_name(base.tensors(), tensor.name());
        if let Some(index) = old.clone().find(|&index| base.tensors()[index] == *tensor) {
            self.seen[index] = true;
            return Ok(Some(index));
        }
        for index in old {
            if base.tensors()[index].has_layout_of(tensor) {
                return refuse("the base has other rows of it; start again with a snapshot");
            }
            if !self.seen[index] {
                self.seen[index] = true;
                self.hash -= hash_of(base, index, &mut workers.all[0].base)?;
            }
        }
        self.hash += TensorHasher::new(tensor).existence();
        Ok(None)
    }

    /// Adds a tensor to the open pool of its type; returns a pool that is full without it.
    fn add_small(
        &mut self,
        base: &dyn Source,
        new: &dyn Source,
        (base_index, new_index): (usize, usize),
        worker: &mut Worker,
    ) -> Result<Option<Pool>, Error> {
        let tensor = &base.tensors()[base_index];
        let old = base.read(base_index, 0..tensor.byte_len(), &mut worker.base)?;
        let new = new.read(new_index, 0..tensor.byte_len(), &mut worker.new)?;
        if old == new {
            return Ok(None);
        }
        let hasher = TensorHasher::new(tensor);
        let change = hasher.content(0, new) - hasher.content(0, old);
        self.hash += change;
        Ok(self.pools.add(tensor, base_index, old, new, change))
    }

    fn write_pool(
        &mut self,
        base: &dyn Source,
        pool: &Pool,
        worker: &mut Worker,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        worker.out.clear();
        let options = Options { portable: self.options.portable };
        let Worker { coder, out, .. } = worker;
        coder.encode(pool.element, Some(&pool.base), &pool.new, options, out);
        let tensors: Vec<Reference<'_>> =
            pool.tensors.iter().map(|&index| self.reference(base, index)).collect();
        let write = |frame: &mut Vec<u8>| {
            record::write_pool(pool.element, &tensors, pool.change, out, frame);
        };
        Ok(self.frames.record(write, sink)?)
    }

    /// Encodes the parts of a batch on all threads and writes the records.
    fn write(
        &mut self,
        base: &dyn Source,
        new: &dyn Source,
        batch: &[Segment],
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        let jobs: Vec<(usize, usize)> = batch
            .iter()
            .enumerate()
            .flat_map(|(index, segment)| (0..segment.parts).map(move |part| (index, part)))
            .collect();
        let options = Options { portable: self.options.portable };
        let mut states: Vec<_> = workers.all.iter_mut().enumerate().collect();
        states.iter_mut().for_each(|(_, worker)| worker.out.clear());
        let work = |(index, worker): &mut (usize, &mut Worker),
                    &(segment, part): &(usize, usize)| {
            let segment = &batch[segment];
            encode(base, new, segment, segment.first_part + part, options, worker)
                .map(|encoded| Encoded { worker: *index, ..encoded })
        };
        let mut encoded = run(&mut states, &jobs, work)?.into_iter();
        let bytes = |segment: &Segment| segment.byte_len(&new.tensors()[segment.new]);
        progress::advance(batch.iter().map(bytes).sum())?;
        for segment in batch {
            let parts: Vec<Encoded> = encoded.by_ref().take(segment.parts).collect();
            if segment.base.is_some() && parts.iter().all(|part| part.start == part.end) {
                continue;
            }
            let change = parts.iter().map(|part| part.change).sum();
            self.hash += change;
            let parts: Vec<&[u8]> = parts
                .iter()
                .map(|part| &workers.all[part.worker].out[part.start..part.end])
                .collect();
            let reference = segment.base.map(|index| self.reference(base, index));
            let named = self.named;
            let write = |frame: &mut Vec<u8>| {
                match &reference {
                    Some(reference) => record::write_changed(reference, frame),
                    None => record::write_written(&new.tensors()[segment.new], named, frame),
                }
                record::write_parts(segment.first_part, change, &parts, frame);
            };
            self.frames.record(write, sink)?;
        }
        Ok(())
    }

    fn handle_absent(
        &mut self,
        base: &dyn Source,
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        let absent: Vec<usize> = (0..self.seen.len()).filter(|&index| !self.seen[index]).collect();
        let Some(&first) = absent.first() else { return Ok(()) };
        match self.options.absent {
            Absent::Keep => Ok(()),
            Absent::Refuse => {
                let name = base.tensors()[first].name().to_owned();
                Err(Error::Absent { name, more: absent.len() - 1 })
            }
            Absent::Remove => absent.into_iter().try_for_each(|index| {
                self.hash -= hash_of(base, index, &mut workers.all[0].base)?;
                let reference = self.reference(base, index);
                Ok(self.frames.record(|frame| record::write_removed(&reference, frame), sink)?)
            }),
        }
    }

    fn reference<'a>(&self, base: &'a dyn Source, index: usize) -> Reference<'a> {
        let tensor = &base.tensors()[index];
        match self.named {
            true => Reference::Named(tensor.name(), tensor.rows()),
            false => Reference::Index(index as u64),
        }
    }
}

/// The numbers of the tensor, or of the shards, of this name.
fn of_name(tensors: &[Tensor], name: &str) -> Range<usize> {
    let start = tensors.partition_point(|tensor| tensor.name() < name);
    let len = tensors[start..].partition_point(|tensor| tensor.name() == name);
    start..start + len
}
