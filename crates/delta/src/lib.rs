//! Lossless deltas between two versions of a model's weights.
//!
//! A trainer that ships new weights after every step changes few of them, and mostly by one unit in
//! the last place. Both ends hold the old weights, the *base*. So the positions of the changes are
//! coded within classes of the base's exponent: an optimizer's step hardly depends on a weight's
//! size, so small weights, whose last place is worth less, change far more often than large ones.
//!
//! Weights are opaque integers of 1, 2, 4 or 8 bytes ([`ElementType`]): NaN, −0 and every other
//! pattern of bits arrive as they were.
//!
//! A [`Sender`] keeps the weights that receivers hold and writes the changes to new ones. A
//! [`Receiver`] stages them, which proves base and result and changes nothing, and then commits:
//!
//! ```
//! use gradwire_delta::{
//!     Buffer, DiffOptions, ElementType, Mirror, Receiver, RunId, Sender, Slices, Tensor,
//! };
//!
//! let weight = Tensor::new("fc.weight", ElementType::Bf16, [2, 2])?;
//! let base = Mirror::new([(weight.clone(), Buffer::from(&[0x80, 0x3f].repeat(4)[..]))])?;
//! let mut sender = Sender::new(base.clone(), RunId::random(), DiffOptions::default(), 1)?;
//! let mut receiver = Receiver::new(base, 1)?;
//!
//! let new = [0x80, 0x3f, 0x81, 0x3f, 0x80, 0x3f, 0x80, 0x3f];
//! let mut stream = Vec::new();
//! sender.diff(&Slices::new([(weight, &new[..])])?, &mut |frame| {
//!     stream.extend_from_slice(frame);
//!     Ok(())
//! })?;
//! let mut update = receiver.stage([&stream[..]])?;
//! let state = receiver.commit(&mut update)?;
//! assert_eq!(receiver.tensors().get("fc.weight"), Some(&new[..]));
//! // It has arrived.
//! assert_eq!(sender.commit()?, state);
//! # Ok::<(), gradwire_delta::Error>(())
//! ```
//!
//! | for | see |
//! |---|---|
//! | several updates as one; the shards of several ranks as one update | [`fold`](fn@fold); [`join`](fn@join) |
//! | a shared folder between a trainer and receivers | [`folder`] |
//! | checkpoints that stay on disk, also patched in place | [`on_disk`], [`safetensors`] |
//! | what a stream holds | [`FrameReader`], [`Survey`] |
//! | progress, and stops | [`Progress`] |
//! | the code of up to 2^20 elements alone | [`part`] |
//!
//! `docs/format.md` of the repository specifies the bytes.

mod base_check;
mod buffer;
mod decode;
mod diff;
mod element;
mod ending;
mod error;
pub mod files;
mod fold;
pub mod folder;
mod frame;
mod hash;
mod hasher;
mod hashing;
mod in_memory;
mod join;
mod mirror;
pub mod on_disk;
mod options;
pub mod part;
mod patched;
mod pieces;
mod plan;
mod pool;
mod progress;
mod receiver;
mod record;
mod redo;
pub mod safetensors;
mod segment;
mod sender;
mod source;
mod stage;
mod state;
pub mod survey;
mod tensor;
mod update;
mod visit;
mod workers;

pub use buffer::Buffer;
pub use diff::{write_delta, write_snapshot};
pub use element::ElementType;
pub use error::Error;
pub use fold::fold;
pub use frame::{End, FrameReader, Header, Kind, Share, Sink, check_ending};
pub use hash::StateHash;
pub use hasher::TensorHasher;
pub use hashing::hashes;
pub use in_memory::{InMemory, Memory, Mirror, Slices, SlicesMut};
pub use join::join;
pub use options::{Absent, DiffOptions, Ends, Summary, Target};
pub use patched::{Changes, NewElements, Patched};
pub use progress::Progress;
pub use receiver::Receiver;
pub use sender::Sender;
pub use source::{Source, Tensors};
pub use stage::{StageOptions, stage};
pub use state::{RunId, State};
pub use survey::Survey;
pub use tensor::Tensor;
pub use update::{Patch, Update};
pub use workers::Workers;
