//! Following a folder.

use std::fs::File;
use std::io::{self, BufReader};

use super::{Folder, chain, contents};
use crate::{Error, Receiver, State, Tensors, Update};

/// How often a reader starts again after streams were pruned under its hands.
const ATTEMPTS: usize = 5;

impl Folder {
    /// Leads weights to the newest version: by the links from theirs, or by a snapshot and links if
    /// that is shorter, if links are missing, or if the weights are of another run. `state` says
    /// what the weights are; `apply` stages and commits one stream, and returns what they are then.
    /// Weights that are the newest already stay as they are.
    ///
    /// # Errors
    /// [`Error::NothingPublished`]; [`Error::NoChain`] with the missing link; the errors of
    /// `apply`. The weights are then those of the last stream that was applied.
    pub(crate) fn lead(
        &self,
        mut state: State,
        mut apply: impl FnMut(BufReader<File>) -> Result<State, Error>,
    ) -> Result<State, Error> {
        let mut by_links = true;
        for attempt in 1.. {
            let path = || self.path.clone();
            let latest =
                self.latest()?.ok_or_else(|| Error::NothingPublished { folder: path() })?;
            if state.hash == latest.hash {
                return Ok(latest);
            }
            let own = state.run.is_none_or(|run| Some(run) == latest.run) && by_links;
            let items = contents::list(&self.path)?;
            let way = chain::find(&items, own.then_some(state.version), latest.version);
            let way = way.map_err(|missing| Error::NoChain {
                folder: path(),
                state,
                latest: latest.into(),
                link: missing.link,
                snapshot: missing.snapshot,
            })?;
            match self.walk(&way, state, &mut apply) {
                Ok(reached) if reached.hash == latest.hash => return Ok(latest),
                // A stream was pruned, or the folder has gone on.
                Ok(reached) if attempt < ATTEMPTS => state = reached,
                // The links are of another base model: a snapshot may lead there.
                Err(Error::WrongBase { .. } | Error::OtherRun { .. }) if by_links => {
                    by_links = false
                }
                Ok(reached) => {
                    return Err(Error::NoChain {
                        folder: path(),
                        state: reached,
                        latest: latest.into(),
                        link: reached.version + 1,
                        snapshot: None,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        unreachable!("the last attempt returns")
    }

    /// Applies streams one after the other; ends early if one is no longer there.
    fn walk(
        &self,
        way: &[&contents::Item],
        mut state: State,
        apply: &mut impl FnMut(BufReader<File>) -> Result<State, Error>,
    ) -> Result<State, Error> {
        for item in way {
            let path = self.path.join(item.name());
            match File::open(&path) {
                Ok(file) => state = apply(BufReader::with_capacity(1 << 20, file))?,
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(state),
                Err(error) => return Err(crate::files::FileError::at(&path)(error).into()),
            }
        }
        Ok(state)
    }
}

impl<T: Tensors> Receiver<T> {
    /// Brings the weights to the newest version of a folder: by the links from their version, or by
    /// a snapshot and links, whichever has fewer bytes. A snapshot also helps weights of another
    /// run or of another base, and weights whose links were pruned. A trainer that crashed between
    /// writing and publishing an update follows its own folder, and then starts with
    /// [`Sender::resume`](crate::Sender::resume).
    ///
    /// # Errors
    /// [`Error::NothingPublished`]; [`Error::NoChain`] with the missing link; streams that are
    /// damaged. The weights are then those of the last stream that was applied.
    pub fn follow(&mut self, folder: &Folder) -> Result<State, Error> {
        let mut update = Update::default();
        let reached = folder.lead(self.state(), |stream| {
            self.stage_into([stream], &mut update)?;
            self.commit(&mut update)
        })?;
        self.name(reached);
        Ok(reached)
    }
}
