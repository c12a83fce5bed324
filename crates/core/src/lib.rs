//! Compressors for the data that workers of distributed training exchange: gradients, weight
//! updates and model deltas.
//!
//! A [`Compressor`] turns a tensor into a message and a message back into a tensor; it does no I/O
//! and keeps no state. An [`Encoder`] holds the state of one sender (residuals, by tensor name); a
//! [`Decoder`] holds only working memory. Both are made from a [`Spec`], the typed form of one
//! string such as `3lc:s=1.75`.
//!
//! ```
//! use gradwire::{Decoder, Encoder, Floats, Spec, State, Tensor};
//!
//! let spec: Spec = "3lc:s=1.5".parse()?;
//! let tensor = Tensor::new("fc.weight", &[2, 3]);
//! let gradient = [0.5, -0.25, 0.0, 1.0, -1.0, 0.125];
//!
//! // Seed and rank. Keep the encoder for the whole run: it holds the residuals.
//! let mut encoder = Encoder::new(&spec, 0, 0);
//! let mut decoder = Decoder::new(&spec, 0);
//!
//! let (step, mut message, mut sum) = (0, Vec::new(), [0.0; 6]);
//! encoder.encode(&tensor, step, Floats::F32(&gradient), &mut message)?;
//! decoder.decode_add(&tensor, step, 0, &message, 1.0, &mut sum)?;
//! assert_eq!(sum, [0.0, 0.0, 0.0, 1.5, -1.5, 0.0]);
//!
//! // The residuals go into a checkpoint, under a prefix for each encoder, and come back.
//! let mut state = State::new();
//! encoder.save("rank0/", &mut state);
//! let bytes = state.to_bytes()?;
//! let mut resumed = Encoder::new(&spec, 0, 0);
//! resumed.restore("rank0/", &State::from_bytes(&bytes)?)?;
//! assert_eq!(resumed.residual("fc.weight"), encoder.residual("fc.weight"));
//! # Ok::<(), gradwire::Error>(())
//! ```
//!
//! [`Decoder::decode_add`] only adds up messages. Some specs need another step or other calls:
//!
//! | spec | further step |
//! |---|---|
//! | `demo`, `chunk-topk:mean=senders` | replace `decode_add` by [`Decoder::accumulate`] for each message, then [`Decoder::finish`]: each number is averaged over the ranks that sent it |
//! | `signsgd`, `signum`, `demo` | `compressor_of(name).aggregate(mean)` turns the mean of all ranks' messages into the gradient, by vote |
//! | `ef=ef21` | messages are changes ([`Spec::sends_changes`]): add each step's mean to a sum, which is the gradient |
//! | `every=N` | encode the change of the parameters over [N steps](Spec::every) |
//! | `powersgd`, `thc` and others with [several rounds](MultiRound) | a rank alone sends a whole message; together they take several rounds |
//!
//! `Reducer` in the crate `gradwire-exchange` does all of this except `every=N`, which is for
//! training loops. It works over a `Transport`: between threads, between processes with
//! `gradwire-mpi`, or over your own implementation.

mod accumulator;
mod args;
mod compressor;
pub mod compressors;
mod context;
mod decoder;
pub mod device;
mod encoder;
mod entry;
mod error;
pub mod files;
mod floats;
pub mod frame;
mod input;
#[cfg(feature = "testing")]
pub mod laws;
pub mod memories;
pub mod memory;
pub mod multi_round;
pub mod numeric;
pub mod parameters;
mod parts;
mod passes;
mod printable;
pub mod registry;
mod rng;
mod source;
mod spec;
mod specs;
mod state;
mod statistics;
mod suggestion;
mod table;
mod tensor;
mod threads;
pub mod tools;
mod traffic;
mod wire;
mod workspace;

pub use accumulator::Accumulator;
pub use args::{DecodeArgs, EncodeArgs};
pub use compressor::{Aggregation, Compressor};
pub use compressors::SingleRank;
pub use context::{Context, Coverage};
pub use decoder::{DecodeJob, Decoder};
pub use encoder::{EncodeJob, Encoder, Kept};
pub use entry::{Entry, Family, Guarantee, Properties};
pub use error::{Error, StateError};
pub use floats::{Dtype, Floats};
pub use gradwire_bits::{DecodeError, try_resize};
pub use input::Input;
pub use memories::Memory;
pub use multi_round::{MultiRound, ReduceOp, Round};
pub use parts::{BLOCK, MIN_DIVIDED, SCRATCH};
pub use passes::Passes;
pub use printable::{Printable, is_obeyed, printable, printable_lines};
pub use rng::Rng;
pub use source::{NonFinite, Residual, Source, Velocity};
pub use spec::{Spec, SpecError, read_values};
pub use state::State;
pub use statistics::Statistics;
pub use suggestion::suggestion;
pub use table::{Named, Table};
pub use tensor::Tensor;
pub use threads::{Threads, Unit};
pub use traffic::{MemoryTraffic, Moved};
pub use workspace::{Helpers, Workspace};

#[cfg(any(doc, doctest))]
#[doc = include_str!("../guide.md")]
pub mod guide {}

#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
