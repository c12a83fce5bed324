//! What one worker measured in one step.

use std::time::Duration;

use gradwire_exchange::StepReport;
use serde::{Deserialize, Serialize};

use crate::record::Sent;
use gradwire_exchange::schedule::position_bits;

/// What one worker measured in one step. Times in seconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) step: u64,
    pub(crate) learning_rate: f64,
    /// Loss over the worker's batch; `None` where it took no part in the round.
    pub(crate) loss: Option<f64>,
    pub(crate) bytes_up: u64,
    pub(crate) bytes_down: u64,
    pub(crate) sent: Sent,
    pub(crate) compute: f64,
    pub(crate) compress: f64,
    pub(crate) decompress: f64,
    pub(crate) update: f64,
    pub(crate) wire: f64,
    pub(crate) wall: f64,
    pub(crate) background: f64,
    pub(crate) waited: f64,
}

impl Sample {
    /// Counts what an exchange took.
    pub(crate) fn count(&mut self, report: &StepReport) {
        let seconds = |time: Duration| time.as_secs_f64();
        self.bytes_up += report.traffic.bytes_up;
        self.bytes_down += report.traffic.bytes_down;
        self.compress = seconds(report.compress);
        self.decompress = seconds(report.decompress);
        self.update += seconds(report.update);
        self.wire = seconds(report.wire);
        self.background = seconds(report.background);
        self.waited = seconds(report.waited);
    }

    /// Counts the elements of a tensor that were sent, and the bits of their positions by equation 5 of the SBC paper.
    /// Where all were sent, or both ends know which, there are no positions.
    pub(crate) fn account(&mut self, sent: Option<&[u32]>, elements: usize, raw: bool) {
        let Some(sent) = sent else {
            let count = if raw { &mut self.sent.raw } else { &mut self.sent.dense };
            *count += elements as f64;
            return;
        };
        if !sent.is_empty() {
            let count = sent.len() as f64;
            self.sent.sparse += count;
            self.sent.position_bits += count * position_bits(count / elements as f64);
        }
    }
}
