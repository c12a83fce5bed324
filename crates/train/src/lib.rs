//! Data-parallel training of image classifiers and language models through compressed exchanges.
//!
//! - [`data`]: data sets from standard files, or generated.
//! - [`models`]: MLP, LeNet-5, CIFAR's ResNets and LSTMs, with flat parameters and gradients.
//! - [`optim`], [`schedule`]: update rules and learning rates; [`plan`]: compressors over a run.
//! - [`run`]: workers as threads, from a [`RunConfig`](run::RunConfig) to a
//!   [`RunRecord`](run::RunRecord), with checkpoints to resume from.
//!
//! The engine underneath is burn on its `flex` device, one thread a worker; nothing of it shows in
//! this crate's interface.

mod checkpoint;
pub mod data;
mod kept;
pub mod models;
pub mod optim;
mod options;
pub mod run;
pub mod schedule;

pub use gradwire_exchange::plan;
pub use options::OptionsError;
