//! Writes deltas and snapshots.

use std::collections::BTreeSet;

use crate::frame::{FrameWriter, Header, Kind, Share, Sink};
use crate::hasher::TensorHasher;
use crate::hashing::hash_of;
use crate::part::{Options, PART};
use crate::pool::Pools;
use crate::record::{self, Reference, SMALL, parts_in_record};
use crate::source::Nothing;
use crate::workers::{Worker, Workers, run};
use crate::{Error, RunId, Source, State, StateHash, Tensor};

/// Bytes of elements that a thread takes from a batch, about.
const BATCH: usize = 64 << 20;

/// What becomes of tensors of the base that are not among the new ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Absent {
    /// It is an error.
    #[default]
    Refuse,
    /// They are unchanged.
    Keep,
    /// They are removed.
    Remove,
}

/// How a delta is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiffOptions {
    /// Positions are coded without the base: more bytes, but deltas can be folded without it.
    pub portable: bool,
    /// What becomes of tensors of the base that are not among the new ones.
    pub absent: Absent,
    /// Which of the streams of an update this is, if several ranks hold shards.
    pub share: Share,
}

impl Default for DiffOptions {
    fn default() -> Self {
        Self { portable: false, absent: Absent::Refuse, share: Share::WHOLE }
    }
}

/// The name of the weights that a stream gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Target {
    /// The run of the trainer.
    pub run: RunId,
    /// The version.
    pub version: u64,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Summary {
    /// The weights that the stream gives, of this share alone.
    pub state: State,
    /// The number of records.
    pub records: u64,
    /// The number of bytes.
    pub len: u64,
}

/// Writes the changes from `base`, which is `state`, to `new`.
///
/// # Errors
/// If tensors cannot be read, are absent against the options, or the sink fails.
pub fn write_delta(
    base: &dyn Source,
    state: &State,
    new: &dyn Source,
    target: Target,
    options: &DiffOptions,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let mut diff = Diff::new(base, state, target, options);
    diff.add(base, new, workers, sink)?;
    diff.finish(base, workers, sink)
}

/// Writes all tensors of `source`. Its state is `state`, with a hash that is not used.
///
/// # Errors
/// If tensors cannot be read, or the sink fails.
pub fn write_snapshot(
    source: &dyn Source,
    target: Target,
    share: Share,
    workers: &mut Workers,
    sink: &mut Sink<'_>,
) -> Result<Summary, Error> {
    let mut diff = Diff::snapshot(source, target, share);
    diff.add(&Nothing, source, workers, sink)?;
    diff.finish(&Nothing, workers, sink)
}

/// A stream that is being written. The base is given to each call and must be the same.
#[derive(Debug)]
pub(crate) struct Diff {
    options: DiffOptions,
    target: Target,
    named: bool,
    frames: FrameWriter,
    hash: StateHash,
    /// Whether each tensor of the base was among the new ones.
    seen: Vec<bool>,
    /// Name and first row of the new ones that the base does not have.
    added: BTreeSet<(String, u64)>,
    pools: Pools,
}

/// Consecutive parts of a tensor that one record holds.
struct Segment {
    new: usize,
    base: Option<usize>,
    hasher: TensorHasher,
    first_part: usize,
    parts: usize,
}

/// An encoded part.
struct Encoded {
    worker: usize,
    start: usize,
    end: usize,
    change: StateHash,
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
        let most = BATCH * workers.threads();
        let (mut batch, mut bytes) = (Vec::new(), 0);
        for index in 0..new.tensors().len() {
            let tensor = &new.tensors()[index];
            let same = self.register(base, tensor, workers)?;
            if let Some(base_index) = same
                && tensor.elements() < SMALL
            {
                self.add_small(base, new, (base_index, index), workers, sink)?;
                continue;
            }
            for segment in segments(tensor, index, same) {
                bytes += segment.parts * PART * tensor.element().width();
                batch.push(segment);
                if bytes >= most {
                    self.write(base, new, &batch, workers, sink)?;
                    batch.clear();
                    bytes = 0;
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
        if tensor.is_shard() && !self.named {
            let reason = "it is a shard, but neither the base has shards nor the update shares";
            return Err(Error::InvalidTensor { name: tensor.name().to_owned(), reason });
        }
        let twice = || Error::Twice { name: tensor.name().to_owned() };
        match base.tensors().binary_search_by(|other| other.key().cmp(&tensor.key())) {
            Ok(index) if self.seen[index] => Err(twice()),
            Ok(index) => {
                self.seen[index] = true;
                let old = &base.tensors()[index];
                if old.has_layout_of(tensor) && old.rows() == tensor.rows() {
                    return Ok(Some(index));
                }
                self.hash -= hash_of(base, index, &mut workers.all[0].base)?;
                self.hash += TensorHasher::new(tensor).existence();
                Ok(None)
            }
            Err(_) => {
                if !self.added.insert((tensor.name().to_owned(), tensor.rows().start)) {
                    return Err(twice());
                }
                self.hash += TensorHasher::new(tensor).existence();
                Ok(None)
            }
        }
    }

    fn add_small(
        &mut self,
        base: &dyn Source,
        new: &dyn Source,
        (base_index, new_index): (usize, usize),
        workers: &mut Workers,
        sink: &mut Sink<'_>,
    ) -> Result<(), Error> {
        let tensor = &base.tensors()[base_index];
        let worker = &mut workers.all[0];
        let old = base.read(base_index, 0..tensor.byte_len(), &mut worker.base)?;
        let new = new.read(new_index, 0..tensor.byte_len(), &mut worker.new)?;
        if old == new {
            return Ok(());
        }
        let change = TensorHasher::new(tensor).difference(0, old, new);
        self.hash += change;
        if let Some(full) = self.pools.add(tensor, base_index, old, new, change) {
            self.write_pool(base, &full, worker, sink)?;
        }
        Ok(())
    }

    fn write_pool(
        &mut self,
        base: &dyn Source,
        pool: &crate::pool::Pool,
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

/// The records that a tensor needs.
fn segments(tensor: &Tensor, new: usize, base: Option<usize>) -> impl Iterator<Item = Segment> {
    let hasher = TensorHasher::new(tensor);
    let (parts, most) = (tensor.elements().div_ceil(PART), parts_in_record(tensor.element()));
    // An empty tensor has one record without parts.
    (0..parts.max(1)).step_by(most).map(move |first_part| Segment {
        new,
        base,
        hasher,
        first_part,
        parts: most.min(parts - first_part),
    })
}

/// Encodes one part to the end of the worker's output.
fn encode(
    base: &dyn Source,
    new: &dyn Source,
    segment: &Segment,
    part: usize,
    options: Options,
    worker: &mut Worker,
) -> Result<Encoded, Error> {
    let tensor = &new.tensors()[segment.new];
    let (element, first) = (tensor.element(), part * PART);
    let width = element.width();
    let bytes = first * width..tensor.elements().min(first + PART) * width;
    let Worker { coder, base: base_buffer, new: new_buffer, out } = worker;
    let start = out.len();
    let new = new.read(segment.new, bytes.clone(), new_buffer)?;
    let Some(base_index) = segment.base else {
        coder.encode(element, None, new, options, out);
        let change = segment.hasher.content(first, new);
        return Ok(Encoded { worker: 0, start, end: out.len(), change });
    };
    let old = base.read(base_index, bytes, base_buffer)?;
    // Memory of the base itself: it is known that nothing changed.
    if std::ptr::eq(old, new) {
        return Ok(Encoded { worker: 0, start, end: start, change: StateHash::default() });
    }
    let change = segment.hasher.difference(first, old, new);
    if old != new {
        coder.encode(element, Some(old), new, options, out);
    }
    Ok(Encoded { worker: 0, start, end: out.len(), change })
}
