//! Publishing a stream.

use std::fs::{self, File};
use std::io::{self, BufReader, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::contents::{self, Item};
use super::keep::Keep;
use super::lock::Lock;
use super::{pointer, prune};
use crate::files::{FileError, NewFile};
use crate::frame::{FrameReader, Header, Kind};
use crate::{Error, Share, State};

/// The name under which a stream is written.
const INCOMING: &str = "incoming.gwd";

/// A stream that is being written to a folder. Readers see it once [`finish`](Self::finish)
/// succeeds; dropped before, it is removed. As long as it lives no other process publishes to the
/// folder, if the file system has locks.
#[derive(Debug)]
pub struct Publication {
    folder: PathBuf,
    file: NewFile,
    lock: Lock,
}

impl Publication {
    /// Makes the folder if it is missing. Waits for `patience` if another process publishes.
    pub(super) fn begin(folder: &Path, patience: Duration) -> Result<Self, Error> {
        fs::create_dir_all(folder).map_err(FileError::at(folder))?;
        let lock = Lock::take(folder, patience)?;
        let file = NewFile::create(&folder.join(INCOMING))?;
        Ok(Self { folder: folder.to_owned(), file, lock })
    }

    /// Checks the stream and makes it visible: syncs it, gives it its name, and then replaces the
    /// file `latest` if the stream is a delta from the newest weights, or the first stream of the
    /// folder. Returns the newest weights of the folder.
    ///
    /// Deltas that were [folded](crate::fold()) may be published, too: from weights at which a
    /// delta of the folder starts, to others at which one starts or to the newest ones. Receivers
    /// that are behind then read one stream.
    ///
    /// # Errors
    /// A stream that is damaged or not complete, bytes after its end, or a delta whose target
    /// version is not after its base version. [`Error::OtherPublisher`] if a delta neither starts
    /// at the newest weights of the folder nor joins deltas that are there, or a snapshot does not
    /// hold the newest weights: another trainer has published there. The folder then is as it was.
    pub fn finish(self) -> Result<State, Error> {
        self.finish_keeping(None)
    }

    /// As [`finish`](Self::finish), and removes streams that nobody needs, as [`Folder::prune`]
    /// does. They go after the checks, so a stream that is refused removes nothing, and before the
    /// stream is visible, so nothing fails once it is.
    ///
    /// [`Folder::prune`]: super::Folder::prune
    ///
    /// # Errors
    /// As for [`finish`](Self::finish).
    pub fn finish_and_prune(self, keep: Keep) -> Result<State, Error> {
        self.finish_keeping(Some(keep))
    }

    fn finish_keeping(self, keep: Option<Keep>) -> Result<State, Error> {
        let Self { folder, file, lock } = self;
        let bytes = file.file().metadata().map_err(FileError::at(&folder))?.len();
        let (header, target) = checked(file.file(), bytes)?;
        let latest = pointer::read(&folder)?;
        let base = State { run: Some(header.run), version: header.base, hash: header.base_hash };
        let expected = match header.kind {
            Kind::Delta => base,
            Kind::Snapshot => target,
        };
        if let Some(latest) = latest.filter(|&latest| latest != expected) {
            let is_shortcut = header.kind == Kind::Delta
                && header.target - header.base > 1
                && contents::has_delta_from(&folder, base)?
                && (target == latest || contents::has_delta_from(&folder, target)?);
            if !is_shortcut {
                return Err(Error::OtherPublisher { folder, latest, expected });
            }
        }
        if let Some(keep) = keep {
            prune::prune(&lock, &folder, keep)?;
        }
        file.finish_as(&Item::of(&header, bytes).name())?;
        match latest {
            Some(latest) if latest != base || header.kind == Kind::Snapshot => Ok(latest),
            _ => {
                pointer::write(&folder, &target)?;
                Ok(target)
            }
        }
    }
}

impl Write for Publication {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

/// Reads a file of this length to its end; returns the header, and the state of the new weights.
fn checked(mut file: &File, bytes: u64) -> Result<(Header, State), Error> {
    file.rewind()?;
    let mut frames = FrameReader::new(BufReader::new(file))?;
    let header = frames.header().clone();
    if header.share != Share::WHOLE {
        return Err(Error::OneShare { count: header.share.count });
    }
    if header.kind == Kind::Delta && header.base >= header.target {
        return Err(Error::Damaged("its target version is not after its base version"));
    }
    let mut payload = Vec::new();
    while frames.records(&mut payload)? {}
    if frames.bytes_read() != bytes {
        return Err(Error::Damaged("bytes follow its end"));
    }
    let hash = frames.end().expect("the records have been read").target_hash;
    let target = State { run: Some(header.run), version: header.target, hash };
    Ok((header, target))
}
