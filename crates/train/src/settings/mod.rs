//! The settings of training. Each is declared once: documentation, type, default, flag and check.
//!
//! [`TrainingSettings`] is the common part of experiments, runs and records. The same declaration
//! yields the keys of experiment files and of result files, and the table [`SETTINGS`]. The command
//! line takes its flags from this table; checkpoints take the names and values that a resumed run
//! must repeat. To add a setting, add it to the declaration, and a check of its values to
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
