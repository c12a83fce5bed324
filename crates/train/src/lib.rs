//! Data-parallel training through compressed exchanges: classification, segmentation, language, recommendation.
//!
//! - [`data`]: data sets from standard files, or generated.
//! - [`models`]: MLPs, convolutional networks from LeNet-5 to ResNet-50, U-Net, LSTMs and collaborative filtering,
//!   with flat parameters and gradients.
//! - [`optim`], [`schedule`]: update rules and learning rates; [`plan`]: compressors over a run.
//! - [`run`]: workers as threads or processes, from a [`RunConfig`](run::RunConfig) to a
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
