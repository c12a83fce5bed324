//! What gradwire's runs train: data sets, models, optimizers, learning rates.
//!
//! - [`data`]: data sets from standard files, or generated; [`Split`]: which worker gets which examples.
//! - [`models`]: MLPs, convolutional networks from LeNet-5 to ResNet-50, U-Net, LSTMs and collaborative filtering,
//!   with flat parameters and gradients.
//! - [`optim`], [`schedule`]: update rules and learning rates.
//!
//! The engine underneath is burn on its `flex` device, in the thread of the caller; nothing of it shows in this
//! crate's interface.

pub mod data;
pub mod models;
pub mod optim;
mod options;
pub mod schedule;
mod split;
mod task_kind;
pub mod tasks;

pub use options::OptionsError;
pub use split::Split;
pub use task_kind::TaskKind;
