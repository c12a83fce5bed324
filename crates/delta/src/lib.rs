//! Lossless deltas between two versions of a model's weights.
//!
//! A trainer that ships new weights after every step changes few of them, and mostly by one unit in
//! the last place. Both ends hold the old weights, the *base*. So the positions of the changes are
//! coded within classes of the base's exponent: an optimizer's step hardly depends on a weight's
//! size, so small weights, whose last place is worth less, change far more often than large ones.
//!
//! Weights are opaque integers of 1, 2, 4 or 8 bytes ([`ElementType`]): NaN, −0 and every other
//! pattern of bits arrive as they were.

mod base_check;
mod buffer;
mod decode;
mod diff;
mod element;
mod error;
pub mod files;
mod fold;
pub mod folder;
mod frame;
mod hash;
mod hasher;
mod hashing;
mod mirror;
pub mod on_disk;
pub mod part;
mod patched;
mod pieces;
mod plan;
mod pool;
mod receiver;
mod record;
mod redo;
pub mod safetensors;
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
pub use diff::{Absent, DiffOptions, Summary, Target, write_delta, write_snapshot};
pub use element::ElementType;
pub use error::Error;
pub use fold::fold;
pub use frame::{End, FrameReader, Header, Kind, Share, Sink, check_ending};
pub use hash::StateHash;
pub use hasher::TensorHasher;
pub use hashing::hashes;
pub use mirror::Mirror;
pub use patched::{Changes, NewElements, Patched};
pub use receiver::Receiver;
pub use sender::Sender;
pub use source::{Slices, SlicesMut, Source, Tensors, order_of};
pub use stage::{StageOptions, stage};
pub use state::{RunId, State};
pub use survey::Survey;
pub use tensor::Tensor;
pub use update::{Patch, Update};
pub use workers::Workers;
