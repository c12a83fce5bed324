//! Runs whose exchanges fail, and the checkpoints they leave.

mod checkpoints;
mod failures;
mod overlap;
mod stops;
#[path = "../../tests/runs/support.rs"]
mod support;

use super::run_wrapped;
use crate::*;
use support::{StopAfter, config, digits, train};
