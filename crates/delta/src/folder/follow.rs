//! Following a folder.

use std::fs::File;
use std::io::{BufReader, ErrorKind};
use std::path::PathBuf;

use super::contents::Item;
use super::{Folder, chain};
use crate::ending::check_file;
use crate::files::{FileError, open_if_there};
use crate::{Error, Receiver, State, Tensors, Update, progress};

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
    item: Item,
    path: PathBuf,
    file: File,
    latest: State,
}

impl Stream {
    /// Decodes and proves it for the weights of a receiver, and refuses weights from which no way
    /// leads to the newest ones.
    fn stage<T: Tensors>(
        &mut self,
        receiver: &Receiver<T>,
        update: &mut Update,
    ) -> Result<(), Error> {
        check_file(&mut self.file)?;
        progress::expect(self.item.bytes);
        receiver.stage_into([BufReader::with_capacity(1 << 20, &self.file)], update)?;
        let (found, latest) = (update.target(), self.latest);
        if found.run == latest.run && (found.version != latest.version || found == latest) {
            return Ok(());
        }
        update.clear();
        Err(Error::OtherStream { path: self.path.clone(), found, latest: latest.into() })
    }

    /// An error with the path.
    fn error(&self, error: Error) -> Error {
        match error {
            Error::OtherStream { .. } | Error::Interrupted { .. } | Error::Stopped => error,
            source => Error::Input { path: self.path.clone(), source: Box::new(source) },
        }
    }
}

/// Whether a stream cannot be applied, while another one may lead to the same weights.
fn is_of_stream(error: &Error) -> bool {
    matches!(
        error,
        Error::NotADelta
            | Error::FormatVersion(_)
            | Error::Truncated(_)
            | Error::Damaged(_)
            | Error::DamagedPart(_)
            | Error::DamagedTensor { .. }
            | Error::WrongChange { .. }
            | Error::WrongResult { .. }
            | Error::MissingLink { .. }
            | Error::Outdated { .. }
            | Error::MissingShares { .. }
            | Error::MixedShares(_)
            | Error::InvalidTensor { .. }
            | Error::Twice { .. }
            | Error::Unknown { .. }
            | Error::TooLarge { .. }
            | Error::OtherStream { .. }
    )
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
            let mut items = self.streams()?;
            items.retain(|item| !self.refused.has(item));
            let way = chain::find(&items, by_links.then_some(state.version), latest.version);
            let way = way
                .map_err(|missing| self.no_chain(state, latest, missing.link, missing.snapshot))?;
            let (item, path) = (way[0].clone(), self.path.join(way[0].name()));
            match open_if_there(&path)? {
                Some(file) => return Ok(Next::Stream(Stream { item, path, file, latest })),
                None if attempt == ATTEMPTS => {
                    return Err(FileError::at(&path)(ErrorKind::NotFound.into()).into());
                }
                None => attempt += 1,
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
    /// A stream that is damaged, or does not give the weights that it states, is left out if
    /// others lead to the newest version; [`Folder::refused`] then names it. So a wrong
    /// short cut does not block receivers while the folder has the single updates that it replaces.
    ///
    /// # Errors
    /// [`Error::NothingPublished`]; [`Error::NoChain`] with the missing link;
    /// [`Error::OtherStream`]; streams that are damaged, if no others help. The weights are as they
    /// were.
    pub fn stage_next(&self, folder: &Folder, update: &mut Update) -> Result<bool, Error> {
        let (mut by_links, mut refused) = (true, None);
        loop {
            let mut stream = match folder.next(self.state(), by_links) {
                Ok(Next::Stream(stream)) => stream,
                Ok(Next::Newest(latest)) => {
                    self.set_state(latest);
                    return Ok(false);
                }
                Err(error @ Error::NoChain { .. }) => {
                    // The reason why there is no way may have been mended.
                    if folder.refused.clear() && refused.is_none() {
                        continue;
                    }
                    return Err(refused.unwrap_or(error));
                }
                Err(error) => return Err(error),
            };
            match stream.stage(self, update) {
                Ok(()) => break,
                // The links are of another base model: a snapshot may lead to the newest version.
                Err(Error::WrongBase { .. } | Error::OtherRun { .. }) if by_links => {
                    by_links = false;
                }
                Err(error) if is_of_stream(&error) => {
                    let error = stream.error(error);
                    folder.refused.add(stream.item, error.to_string());
                    refused.get_or_insert(error);
                }
                Err(error) => return Err(stream.error(error)),
            }
        }
        if !by_links && [Some(self.state()), self.snapshot()].contains(&Some(update.target())) {
            // The weights come from this snapshot, and the links after it are of others.
            update.clear();
            let state = self.state();
            let latest = folder.latest()?.unwrap_or(state);
            let snapshot = self.snapshot().map_or(state.version, |snapshot| snapshot.version);
            return Err(folder.no_chain(state, latest, state.version + 1, Some(snapshot)));
        }
        Ok(true)
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
