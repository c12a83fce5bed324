//! The sending end.

use std::io;

use crate::diff::{Diff, write_snapshot};
use crate::frame::Sink;
use crate::options::{DiffOptions, Summary, Target};
use crate::patched::Patched;
use crate::workers::Workers;
use crate::{Error, Mirror, Receiver, RunId, Source, State, Update, progress};

/// Keeps the weights that receivers hold, and writes the changes to new ones.
///
/// An update is written by [`diff`](Sender::diff), or by [`begin`](Sender::begin),
/// [`add`](Sender::add) and [`finish`](Sender::finish) for tensors that come one by one. The kept
/// weights advance with [`commit`](Sender::commit), when the update has arrived.
#[derive(Debug)]
pub struct Sender {
    receiver: Receiver<Mirror>,
    run: RunId,
    options: DiffOptions,
    workers: Workers,
    open: Option<Diff>,
    /// The written stream.
    stream: Vec<u8>,
    /// The same, decoded; kept for its memory.
    update: Update,
    is_complete: bool,
    is_proven: bool,
}

impl Sender {
    /// Starts from a base model that the receivers hold: version 0 of `run`.
    ///
    /// # Errors
    /// None for tensors in memory.
    pub fn new(
        base: Mirror,
        run: RunId,
        options: DiffOptions,
        threads: usize,
    ) -> Result<Self, Error> {
        Ok(Self::resume(Receiver::new(base, threads)?.with_version(run, 0), options, threads))
    }

    /// Continues from weights that were received; a new run starts if they belong to none.
    pub fn resume(receiver: Receiver<Mirror>, options: DiffOptions, threads: usize) -> Self {
        let run = receiver.state().run.unwrap_or_else(RunId::random);
        let version = receiver.state().version;
        Self {
            // What this sender wrote itself needs no limit.
            receiver: receiver.with_version(run, version).with_max_bytes(u64::MAX),
            run,
            options,
            workers: Workers::new(threads),
            open: None,
            stream: Vec::new(),
            update: Update::default(),
            is_complete: false,
            is_proven: false,
        }
    }

    /// The weights that the receivers hold.
    pub fn state(&self) -> State {
        self.receiver.state()
    }

    /// The tensors that the receivers hold.
    pub fn tensors(&self) -> &Mirror {
        self.receiver.tensors()
    }

    /// Writes the update to the weights `new`, all at once.
    ///
    /// # Errors
    /// If an update is neither committed nor rolled back, tensors are missing, or the sink fails.
    /// A failed update is rolled back.
    pub fn diff(&mut self, new: &dyn Source, sink: &mut Sink<'_>) -> Result<Summary, Error> {
        self.begin()?;
        self.add(new, sink)?;
        self.finish(sink)
    }

    /// Begins an update.
    ///
    /// # Errors
    /// If another one is neither committed nor rolled back.
    pub fn begin(&mut self) -> Result<(), Error> {
        if self.open.is_some() || self.is_complete {
            return Err(Error::Pending);
        }
        let state = self.state();
        let target = Target { run: self.run, version: state.version + 1 };
        self.open = Some(Diff::new(self.receiver.tensors(), &state, target, &self.options));
        self.stream.clear();
        Ok(())
    }

    /// Writes some tensors of the new weights. The order of tensors decides the order of records.
    ///
    /// # Errors
    /// If no update has begun, a tensor is given twice, or the sink fails. A failed update is
    /// rolled back.
    pub fn add(&mut self, new: &dyn Source, sink: &mut Sink<'_>) -> Result<(), Error> {
        let Self { receiver, workers, open, stream, .. } = self;
        let diff = open.as_mut().ok_or(Error::NothingPending)?;
        let added = diff.add(receiver.tensors(), new, workers, &mut keeping(stream, sink));
        added.inspect_err(|_| self.rollback())
    }

    /// As [`add`](Sender::add), for tensors of which some are known only by their changes. Gives
    /// the same bytes.
    ///
    /// # Errors
    /// As for [`add`](Sender::add), and if the kept weights lack a tensor that has changes, or have
    /// it with another type, shape or rows.
    pub fn add_patched(&mut self, new: &Patched<'_>, sink: &mut Sink<'_>) -> Result<(), Error> {
        let Self { receiver, workers, open, stream, .. } = self;
        let diff = open.as_mut().ok_or(Error::NothingPending)?;
        let base = receiver.tensors();
        let added = new
            .over(base)
            .and_then(|new| diff.add(base, &new, workers, &mut keeping(stream, sink)));
        added.inspect_err(|_| self.rollback())
    }

    /// Ends the update.
    ///
    /// # Errors
    /// If no update has begun, tensors are missing, or the sink fails. A failed update is rolled
    /// back.
    pub fn finish(&mut self, sink: &mut Sink<'_>) -> Result<Summary, Error> {
        let diff = self.open.take().ok_or(Error::NothingPending)?;
        let Self { receiver, workers, stream, .. } = self;
        let summary = diff.finish(receiver.tensors(), workers, &mut keeping(stream, sink));
        match &summary {
            Ok(_) => self.is_complete = true,
            Err(_) => self.rollback(),
        }
        summary
    }

    /// Decodes and proves the written update as a receiver does, so that
    /// [`commit`](Sender::commit) only has to write it.
    ///
    /// # Errors
    /// If there is no complete update, or the [progress](crate::Progress) is stopped.
    pub fn prove(&mut self) -> Result<(), Error> {
        if !self.is_complete {
            return Err(Error::NothingPending);
        }
        if !self.is_proven {
            progress::expect(self.stream.len() as u64);
            self.receiver.stage_into([&self.stream[..]], &mut self.update)?;
            self.is_proven = true;
        }
        Ok(())
    }

    /// Advances the kept weights by the written update, which is [proven](Sender::prove) first.
    ///
    /// # Errors
    /// As for [`prove`](Sender::prove).
    pub fn commit(&mut self) -> Result<State, Error> {
        self.prove()?;
        let state = self.receiver.commit(&mut self.update)?;
        self.rollback();
        Ok(state)
    }

    /// Forgets the update that was begun or written.
    pub fn rollback(&mut self) {
        self.open = None;
        (self.is_complete, self.is_proven) = (false, false);
        self.stream.clear();
    }

    /// Writes all kept weights, for receivers that hold none or others.
    ///
    /// # Errors
    /// If the sink fails.
    pub fn snapshot(&mut self, sink: &mut Sink<'_>) -> Result<Summary, Error> {
        let target = Target { run: self.run, version: self.state().version };
        let Self { receiver, workers, options, .. } = self;
        write_snapshot(receiver.tensors(), target, options.share, workers, sink)
    }
}

/// A sink that also keeps the stream.
fn keeping<'a>(
    stream: &'a mut Vec<u8>,
    sink: &'a mut Sink<'_>,
) -> impl FnMut(&[u8]) -> io::Result<()> + 'a {
    |frame| {
        stream.extend_from_slice(frame);
        sink(frame)
    }
}
