//! Data sets, models, optimizers and learning rates of gradwire's training runs.
//!
//! - [`data`]: data sets from standard files, or generated; [`Split`]: the division of examples
//!   among workers.
//! - [`models`]: MLPs, convolutional networks from LeNet-5 to ResNet-50, U-Net, LSTMs and
//!   collaborative filtering, with flat parameters and gradients.
//! - [`tasks`]: what training needs of a model with its data; [`register`] adds models of another
//!   crate, by name.
//! - [`optim`], [`schedule`]: update rules and learning rates.
//!
//! Models compute in the thread of the caller.

pub mod data;
mod lanes;
mod matmul;
pub mod models;
pub mod optim;
mod options;
mod registry;
pub mod schedule;
mod split;
mod task_kind;
pub mod tasks;

pub use options::OptionsError;
pub use registry::{MakeTask, ModelEntry, ModelSpec, register};
pub use split::Split;
pub use task_kind::TaskKind;
