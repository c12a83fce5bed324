//! Following a folder.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use super::{Folder, chain, contents};
use crate::files::FileError;
use crate::{Error, Receiver, State, Tensors, Update};

/// How often a reader looks again after a stream was pruned before it was opened.
const ATTEMPTS: usize = 5;

/// What a folder has for some weights.
enum Next {
    /// They are the newest, and this is their name.
    Newest(State),
    /// The next stream on the way to the newest.
    Stream(Stream),
}

/// A stream on the way to the newest weights.
struct Stream {
    path: PathBuf,
    file: File,
    latest: State,
}

impl Stream {
    /// Refuses a stream that gives weights from which no way leads to the newest ones.
    fn check(&self, found: State) -> Result<(), Error> {
        let latest = self.latest;
        if found.run == latest.run && (found.version != latest.version || found == latest) {
            return Ok(());
        }
        Err(Error::OtherStream { path: self.path.clone(), found, latest: latest.into() })
    }
}

impl Folder {
    /// Finds the way with the fewest bytes to the newest weights, by links or by a snapshot and
    /// links, and opens its first stream. `by_links` is false if the links turned out to be of
    /// other weights: then the way begins with a snapshot.
    fn next(&self, state: State, by_links: bool) -> Result<Next, Error> {
        let mut attempt = 1;
        loop {
            let nothing = || Error::NothingPublished { folder: self.path.clone() };
            let latest = self.latest()?.ok_or_else(nothing)?;
            if state.hash == latest.hash {
                return Ok(Next::Newest(latest));
            }
            let own = state.run.is_none_or(|run| Some(run) == latest.run);
            // The version of the newest with other bits: only a snapshot helps.
            let by_links = by_links && own && state.version != latest.version;
            let items = contents::list(&self.path)?;
            let way = chain::find(&items, by_links.then_some(state.version), latest.version);
            let way = way
                .map_err(|missing| self.no_chain(state, latest, missing.link, missing.snapshot))?;
            let path = self.path.join(way[0].name());
            match File::open(&path) {
                Ok(file) => return Ok(Next::Stream(Stream { path, file, latest })),
                Err(error) if error.kind() == io::ErrorKind::NotFound && attempt < ATTEMPTS => {
                    attempt += 1;
                }
                Err(error) => return Err(FileError::at(&path)(error).into()),
            }
        }
    }

    fn no_chain(&self, state: State, latest: State, link: u64, snapshot: Option<u64>) -> Error {
        Error::NoChain { folder: self.path.clone(), state, latest: latest.into(), link, snapshot }
    }
}

impl<T: Tensors> Receiver<T> {
    /// Stages the next update on the way to the newest version of a folder: by the links from the
    /// weights' version, or by a snapshot and links, whichever has fewer bytes. A snapshot also
    /// helps weights of another run or of another base, and weights whose links were pruned.
    /// Returns `false` if the weights are the newest.
    ///
    /// # Errors
    /// [`Error::NothingPublished`]; [`Error::NoChain`] with the missing link;
    /// [`Error::OtherStream`]; streams that are damaged. The weights are as they were.
    pub fn stage_next(&self, folder: &Folder, update: &mut Update) -> Result<bool, Error> {
        match self.stage_step(folder, true, update) {
            // The links are of another base model: a snapshot may lead to the newest version.
            Err(Error::WrongBase { .. } | Error::OtherRun { .. } | Error::OtherStream { .. }) => {}
            other => return other,
        }
        let staged = self.stage_step(folder, false, update)?;
        if staged && [Some(self.state()), self.snapshot()].contains(&Some(update.target())) {
            // The weights come from this snapshot, and the links after it are of others.
            update.clear();
            let state = self.state();
            let latest = folder.latest()?.unwrap_or(state);
            let snapshot = self.snapshot().map_or(state.version, |snapshot| snapshot.version);
            return Err(folder.no_chain(state, latest, state.version + 1, Some(snapshot)));
        }
        Ok(staged)
    }

    fn stage_step(
        &self,
        folder: &Folder,
        by_links: bool,
        update: &mut Update,
    ) -> Result<bool, Error> {
        match folder.next(self.state(), by_links)? {
            Next::Newest(latest) => {
                self.set_state(latest);
                Ok(false)
            }
            Next::Stream(stream) => {
                self.stage_into([BufReader::with_capacity(1 << 20, &stream.file)], update)?;
                stream.check(update.target()).inspect_err(|_| update.clear())?;
                Ok(true)
            }
        }
    }

    /// Brings the weights to the newest version of a folder, stage by stage
    /// ([`stage_next`](Self::stage_next)). A trainer that crashed between writing and publishing an
    /// update follows its own folder, and then starts with
    /// [`Sender::resume`](crate::Sender::resume).
    ///
    /// # Errors
    /// As for [`stage_next`](Self::stage_next). The weights are then those of the last stream that
    /// was applied.
    pub fn follow(&mut self, folder: &Folder) -> Result<State, Error> {
        let mut update = Update::default();
        while self.stage_next(folder, &mut update)? {
            self.commit(&mut update)?;
        }
        Ok(self.state())
    }
}
