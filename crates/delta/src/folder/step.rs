//! Single steps towards the newest version of a folder.

use std::fs::File;
use std::io::{self, BufReader};

use super::{Folder, chain, contents};
use crate::files::FileError;
use crate::{Error, Receiver, State, Tensors, Update};

/// How often a reader looks again after a stream was pruned before it was opened.
const ATTEMPTS: usize = 5;

impl Folder {
    /// The next stream on the shortest way from the weights `state` to the newest; `None` if they
    /// are the newest. `by_links` is false if the folder's links turned out to be of other weights:
    /// then the way begins with a snapshot.
    fn next(&self, state: State, by_links: bool) -> Result<Option<File>, Error> {
        let nothing = || Error::NothingPublished { folder: self.path.clone() };
        let mut gone = None;
        for _ in 0..ATTEMPTS {
            let latest = self.latest()?.ok_or_else(nothing)?;
            if state.hash == latest.hash {
                return Ok(None);
            }
            let own = state.run.is_none_or(|run| Some(run) == latest.run) && by_links;
            let items = contents::list(&self.path)?;
            let way = chain::find(&items, own.then_some(state.version), latest.version);
            let way = way.map_err(|missing| Error::NoChain {
                folder: self.path.clone(),
                state,
                latest,
                link: missing.link,
                snapshot: missing.snapshot,
            })?;
            let Some(first) = way.first() else { return Ok(None) };
            let path = self.path.join(first.name());
            match File::open(&path) {
                Ok(file) => return Ok(Some(file)),
                Err(error) => gone = Some(FileError::at(&path)(error)),
            }
            if !matches!(&gone, Some(FileError::System { source, .. }) if source.kind() == io::ErrorKind::NotFound)
            {
                break;
            }
        }
        Err(gone.expect("every attempt has failed").into())
    }
}

impl<T: Tensors> Receiver<T> {
    /// Stages the next update on the shortest way to the newest version of a folder; `None` if the
    /// weights are the newest. [`Receiver::follow`] stages and commits all of them.
    ///
    /// # Errors
    /// As for [`Receiver::follow`]. The weights are as they were.
    pub fn stage_next(&self, folder: &Folder) -> Result<Option<Update>, Error> {
        let staged = |by_links| {
            let Some(file) = folder.next(self.state(), by_links)? else { return Ok(None) };
            self.stage([BufReader::with_capacity(1 << 20, file)]).map(Some)
        };
        match staged(true) {
            // The links are of another base model: a snapshot may lead to the newest version.
            Err(Error::WrongBase { .. } | Error::OtherRun { .. }) => staged(false),
            other => other,
        }
    }
}
