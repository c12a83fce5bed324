//! The settings of training, each declared once: its documentation, type, default, flag, and how it
//! is checked.
//!
//! [`TrainingSettings`] is what experiments, runs and records have in common. From the same
//! declaration come the keys of experiment files and of result files, and the table [`SETTINGS`],
//! from which the command line takes its flags and checkpoints the names and values that a resumed
//! run must repeat. To add a setting, add it to the declaration, and a check of its values to
//! [`TrainingSettings::check`].

mod keys;
mod payload;
mod straggler;
mod training;
mod value;

pub use keys::Key;
pub use payload::Payload;
pub use straggler::Straggler;
pub(crate) use training::MOST_WORKERS;
pub use training::{SETTINGS, Setting, TrainingSettings};

#[cfg(test)]
mod tests;
