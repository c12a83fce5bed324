//! Experiments on training with compressed exchanges: run them, keep their results, and show them
//! as tables, charts and reports.
//!
//! An [`Experiment`](experiment::Experiment) is a list of runs; a [`runner`] executes them. Each
//! result is one line of JSON, and all output is computed from these lines: a [`summary`] with its
//! [tables](summary::tables), [`figures`], a [`report`]. [`reproduce`] has the studies of papers'
//! tables and figures. [`mod@bench`] measures the speed of compressors alone. [`advice`] shows what
//! `gradwire-advice` predicts.

pub mod accounting;
pub mod advice;
pub mod bench;
pub mod changes;
pub mod check;
pub mod comparison;
pub mod diagnosis;
pub mod engine;
mod error;
pub mod experiment;
pub mod figures;
pub mod files;
mod format;
mod interval;
pub mod plot;
mod progress;
mod provenance;
mod records;
pub mod report;
pub mod reproduce;
pub mod results;
pub mod rows;
pub mod runner;
pub mod scaling;
pub mod step_time;
pub mod summary;
#[cfg(test)]
mod synthetic;
pub mod table;
pub mod unfinished;
pub mod verdict;
pub mod wrap;

pub use error::TestbedError;
pub use records::{DivergedRun, Records};
