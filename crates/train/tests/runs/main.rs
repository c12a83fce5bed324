//! Whole runs on small data.

mod digests;
mod exchanges;
mod learning;
mod observation;
mod others;
mod overlap;
mod processes;
mod ratings;
mod segmentation;
mod support;
mod svrg;
mod text;
mod updates;

use std::sync::Arc;

use gradwire_models::data::{Content, Dataset};
use gradwire_train::*;
use support::*;

fn losses(record: &RunRecord) -> Vec<f64> {
    record.trace.iter().map(|step| step.loss).collect()
}
