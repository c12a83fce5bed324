//! Data-parallel training through compressed exchanges.
//!
//! [`run()`] takes a [`RunConfig`] and returns a [`RunRecord`], with workers as threads;
//! [`run_rank()`] runs one rank as a separate process. Each worker has a replica of the model and a
//! shard of the data; an [`Observer`] watches the run and can stop it. Models, data sets and
//! optimizers are in [`gradwire_models`].

mod checkpoint;
mod clip;
mod config;
mod coordination;
mod diagnosis;
mod elastic;
mod error;
mod events;
mod facts;
mod failure;
mod gradients;
mod launch;
mod local;
mod memory;
mod micro_batches;
mod numerics;
mod observer;
mod options;
mod outer;
mod overlap;
mod permits;
mod provenance;
mod record;
mod recorder;
mod resolution;
mod rotation;
mod rounds;
mod run_rank;
mod session;
pub mod settings;
mod states;
mod svrg;
mod validation;
mod worker;

pub use checkpoint::can_resume;
pub use config::RunConfig;
pub use diagnosis::{Diagnosis, Histogram, Layer, LayerDiagnosis};
pub use elastic::check;
pub use error::TrainError;
pub use facts::CompressorFacts;
pub use gradwire_exchange::CompressionSchedule;
pub use gradwire_models::tasks::Metric;
pub use launch::run;
pub use memory::check_memory;
pub use numerics::{changed_parts, marked, marks};
pub use observer::Observer;
pub use options::{RunOptions, Save};
pub use provenance::{VERSION, instruction_set, processor};
pub use record::{Evaluation, RunRecord, SentCounts, StepRecord, TrafficEstimate, WorkersChanged};
pub use rotation::is_place_of_checkpoint;
pub use run_rank::{deadline, run_elastic_rank, run_rank};
pub use settings::{Payload, Straggler, TrainingSettings};

// Tests of the public interface are also compiled inside this crate.
#[cfg(test)]
extern crate self as gradwire_train;
