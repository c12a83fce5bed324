//! Data-parallel training through compressed exchanges: classification, segmentation, language, recommendation.
//!
//! - [`run`]: workers as threads or processes, from a [`RunConfig`](run::RunConfig) to a
//!   [`RunRecord`](run::RunRecord), with checkpoints to resume from; what they train is in `gradwire_models`.
//! - [`settings`]: what defines a run beside data, compressor and seed, declared once for files, flags and
//!   checkpoints.
//! - [`plan`]: compressors over a run.

mod checkpoint;
mod kept;
pub mod run;
pub mod settings;

pub use gradwire_exchange::plan;
