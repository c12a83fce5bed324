//! Experiments on training with compressed exchanges: run them, keep their results, and show them
//! as tables, charts and reports.
//!
//! Everything here works on [`RunRecord`](gradwire_train::RunRecord)s: a comparison, an experiment
//! file or a paper's table is a list of runs, and its results are one line of JSON for each.

mod error;
pub mod figures;
pub mod files;
mod format;
pub mod page;
pub mod plot;
pub mod report;
pub mod results;
pub mod summary;
#[cfg(test)]
mod synthetic;
pub mod table;

pub use error::TestbedError;
pub use format::bandwidth;
