//! Runs whose exchanges fail, and the checkpoints they leave.

mod checkpoints;
mod elastic;
mod failures;
mod overlap;
mod stops;
#[path = "../../tests/runs/support.rs"]
mod support;
mod wrapped;

use std::sync::Arc;

use super::run_wrapped;
use crate::*;
use support::*;
use wrapped::{Before, Call, Log, Wrapped};
