//! Errors.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use gradwire_bits::DecodeError;
use gradwire_bits::io_error::remedy;

use crate::files::{FileError, shown};
use crate::{RunId, State, StateHash};

/// The reason why a delta cannot be written, read or applied. Nothing has changed at the receiver
/// unless the description says so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed.
    #[error("{0}{remedy}", remedy = remedy(.0))]
    Io(#[from] io::Error),
    /// A file cannot be read or written, or is not what it should be.
    #[error("{0}")]
    File(#[from] FileError),
    /// A stream of a file is refused.
    #[error("'{}': {source}", shown(path))]
    Input {
        /// The file.
        path: PathBuf,
        /// The reason.
        source: Box<Error>,
    },
    /// The description of files that a stream holds is refused.
    #[error("the description of files does not fit: {0}")]
    Layout(String),
    /// A snapshot is given for a delta, or the other way round.
    #[error("{0}")]
    OtherKind(&'static str),
    /// Nothing has been published to a folder.
    #[error(
        "nothing has been published to '{}' yet; check the path, or wait for the trainer",
        shown(folder)
    )]
    NothingPublished {
        /// The folder.
        folder: PathBuf,
    },
    /// Another process publishes to a folder.
    #[error(
        "another process publishes to '{}' ({holder}), and has not ended within {patience:?}; wait \
         for it, or end it; each run needs a folder of its own",
        shown(folder)
    )]
    Busy {
        /// The folder.
        folder: PathBuf,
        /// The process that has the lock.
        holder: String,
        /// How long it was waited for.
        patience: Duration,
    },
    /// A stream does not follow the newest one of a folder.
    #[error(
        "'{}' holds {latest}, but the stream needs {expected} there: another trainer has published \
         to the folder, or this one has not resumed from it; follow the folder and resume, or use \
         another folder; a folded delta must join deltas that are there",
        shown(folder)
    )]
    OtherPublisher {
        /// The folder.
        folder: PathBuf,
        /// The newest weights of the folder.
        latest: State,
        /// The weights that a delta changes, or those of a snapshot.
        expected: State,
    },
    /// A stream of a folder is of another run than the newest weights, or of the same version with
    /// other weights.
    #[error(
        "'{}' gives {found}, but the newest weights of the folder are {latest}: another trainer \
         has published to the folder; publish a snapshot of the newest weights",
        shown(path)
    )]
    OtherStream {
        /// The stream.
        path: PathBuf,
        /// The weights that the stream gives.
        found: State,
        /// The newest weights of the folder.
        latest: Box<State>,
    },
    /// A folder does not have the streams that lead to its newest version.
    #[error(
        "no streams in '{}' lead from {state} to {latest}: the delta from version {} to {link} is \
         missing; a snapshot of version {link} or later would help, {}; publish one",
        shown(folder), link.saturating_sub(1), newest(*snapshot)
    )]
    NoChain {
        /// The folder.
        folder: PathBuf,
        /// The weights here.
        state: State,
        /// The newest weights of the folder.
        latest: Box<State>,
        /// The target of the missing delta; all later ones are there.
        link: u64,
        /// The version of the newest snapshot.
        snapshot: Option<u64>,
    },
    /// The bytes are no delta.
    #[error(
        "this is not a delta or snapshot of gradwire: it does not start with the magic bytes of .gwd"
    )]
    NotADelta,
    /// A newer program wrote the bytes.
    #[error(
        "the delta has version {0} of the format, which this version of gradwire cannot read; update gradwire"
    )]
    FormatVersion(u8),
    /// The bytes end too early.
    #[error(
        "the delta is truncated: it ends {0}; wait until it is written completely, or fetch it again"
    )]
    Truncated(&'static str),
    /// The bytes are damaged, or no writer made them.
    #[error("the delta is damaged: {0}; fetch it again")]
    Damaged(&'static str),
    /// A part of a tensor is damaged.
    #[error("a part of a tensor is damaged: {0}; fetch it again")]
    DamagedPart(DecodeError),
    /// The record of a tensor is damaged.
    #[error("the delta is damaged at tensor {name:?}: {source}; fetch it again")]
    DamagedTensor {
        /// The name of the tensor, or of the first tensor of a pool.
        name: String,
        /// What is wrong.
        source: DecodeError,
    },
    /// The changes of a tensor do not give the weights of the sender.
    #[error(
        "tensor {name:?} would get other weights than the sender's: the delta is damaged, or \
         weights of the base changed since they were hashed; compare with Receiver::verify, and \
         start again from a snapshot"
    )]
    WrongChange {
        /// The name of the tensor, or of the first tensor of a pool.
        name: String,
    },
    /// The whole result differs from the sender's weights.
    #[error(
        "the result would have the hash {found}, but the sender's weights have {expected}: a \
         record is missing, or the base is damaged; start again from a snapshot"
    )]
    WrongResult {
        /// The hash of the sender's weights.
        expected: StateHash,
        /// The hash of the weights that the update would give.
        found: StateHash,
    },
    /// The weights belong to another run.
    #[error(
        "the delta belongs to run {delta}, but the weights are {state}; start again from a \
         snapshot of run {delta}"
    )]
    OtherRun {
        /// The run of the delta.
        delta: RunId,
        /// The weights here.
        state: State,
    },
    /// Earlier deltas have not been applied.
    #[error(
        "the delta leads from version {base} to {target}, but the weights are {state}; apply the \
         deltas between them first, or start again from a snapshot"
    )]
    MissingLink {
        /// The version that the delta changes.
        base: u64,
        /// The version that the delta gives.
        target: u64,
        /// The weights here.
        state: State,
    },
    /// The weights are newer than the base of the delta.
    #[error(
        "the delta leads from version {base} to {target}, but the weights are already {state}; \
         skip it"
    )]
    Outdated {
        /// The version that the delta changes.
        base: u64,
        /// The version that the delta gives.
        target: u64,
        /// The weights here.
        state: State,
    },
    /// The versions agree, but the weights are not those that the delta changes.
    #[error(
        "the delta changes weights with the hash {expected}, but the weights are {state}: another \
         base model, or damaged weights; start again from that base model or from a snapshot"
    )]
    WrongBase {
        /// The hash of the weights that the delta changes.
        expected: StateHash,
        /// The weights here.
        state: State,
    },
    /// Not all shares of an update are there.
    #[error(
        "the update has {expected} shares, one of each rank, but {found} are here; stage all of them together"
    )]
    MissingShares {
        /// The number of shares that the update has.
        expected: u64,
        /// The number of different shares that were given.
        found: u64,
    },
    /// Deltas that are staged together do not belong together.
    #[error(
        "the streams do not belong to one update: {0}; give each share of one update once, or join \
         the shares"
    )]
    MixedShares(&'static str),
    /// A share is given for a whole update.
    #[error(
        "the stream is one of {count} shares of an update, but a whole update is needed; join all \
         shares first"
    )]
    OneShare {
        /// The number of shares that the update has.
        count: u64,
    },
    /// A description of a tensor is impossible.
    #[error("tensor {name:?} is refused: {reason}")]
    InvalidTensor {
        /// The name of the tensor.
        name: String,
        /// What is wrong, and the remedy.
        reason: &'static str,
    },
    /// A tensor was given twice.
    #[error("tensor {name:?} occurs twice; give each tensor, or each range of its rows, once")]
    Twice {
        /// The name of the tensor.
        name: String,
    },
    /// A tensor of the base is not among the new ones.
    #[error(
        "the new weights lack tensor {name:?} of the base (and {more} more); give all tensors, or \
         say that missing ones are unchanged or removed"
    )]
    Absent {
        /// The name of the first missing tensor.
        name: String,
        /// The number of other missing tensors.
        more: usize,
    },
    /// A delta names a tensor that the receiver does not have.
    #[error(
        "the delta changes {name:?}, which the receiver does not hold; start again from a snapshot"
    )]
    Unknown {
        /// The name and rows, or the number, of the tensor.
        name: String,
    },
    /// The receiver cannot add, remove or reshape tensors of the caller.
    #[error(
        "the update adds, removes or reshapes tensor {name:?}, but the receiver's tensors belong \
         to the caller; receive into a Mirror, or load the weights of the new version"
    )]
    FixedTensors {
        /// The name of the tensor.
        name: String,
    },
    /// A delta numbers whole tensors, but the receiver holds shards.
    #[error(
        "the delta was made of whole tensors, but the receiver holds shards; receive into whole \
         tensors, or let each rank send its shards"
    )]
    ShardsHere,
    /// The content is larger than allowed.
    #[error(
        "the update holds more than {limit} bytes of new elements; if you trust it, raise the limit \
         (--max-bytes, in Python max_bytes)"
    )]
    TooLarge {
        /// The limit in bytes.
        limit: u64,
    },
    /// A commit has failed halfway.
    #[error(
        "a commit to {target} was interrupted, so the weights are partly old and partly new; \
         commit the same update again, or stage a snapshot"
    )]
    Interrupted {
        /// The weights after the interrupted commit.
        target: State,
    },
    /// The weights changed after the update was staged.
    #[error("the update was staged for {expected}, but the weights are {found}; stage it again")]
    Stale {
        /// The weights that the update changes.
        expected: State,
        /// The weights here.
        found: State,
    },
    /// Staging failed, or was never done.
    #[error("the update holds nothing that could be committed; stage it first")]
    NotStaged,
    /// An update of the sender is neither committed nor rolled back.
    #[error(
        "the sender has an update that is neither committed nor rolled back; do one of these first"
    )]
    Pending,
    /// The sender has no update to write or to commit.
    #[error(
        "the sender has no complete update: none was begun, or it was rolled back; make one with \
         diff first"
    )]
    NothingPending,
    /// The weights in memory are not those that were hashed.
    #[error(
        "tensor {name:?} has changed since it was hashed; load it again, or start again from a snapshot"
    )]
    Changed {
        /// The name of the first changed tensor.
        name: String,
    },
    /// The bytes given for a tensor do not fit its description.
    #[error(
        "tensor {name:?} has {expected} bytes by its type and shape, but {found} were given; give \
         the bytes of all its elements"
    )]
    Length {
        /// The name of the tensor.
        name: String,
        /// The bytes of the description.
        expected: usize,
        /// The bytes that were given.
        found: usize,
    },
    /// The [progress](crate::Progress) was stopped. Nothing has changed, except that
    /// [`Receiver::follow`](crate::Receiver::follow) has committed the streams before.
    #[error("the operation was stopped before its end; repeat it")]
    Stopped,
    /// There is nothing to fold or to apply.
    #[error("there are no deltas; give at least one")]
    NoLinks,
}

/// The newest snapshot, in words.
fn newest(snapshot: Option<u64>) -> String {
    match snapshot {
        Some(version) => format!("the newest there is of version {version}"),
        None => "there is none".to_owned(),
    }
}

impl From<DecodeError> for Error {
    fn from(error: DecodeError) -> Self {
        match error {
            DecodeError::Truncated => Error::Damaged("a record ends too early"),
            DecodeError::Trailing { .. } => Error::Damaged("bytes follow a record"),
            DecodeError::Corrupt(reason) => Error::Damaged(reason),
            _ => Error::Io(io::ErrorKind::OutOfMemory.into()),
        }
    }
}
