//! What figures of a run need to know of its compressor.

use gradwire_exchange::CompressionSchedule;
use serde::{Deserialize, Serialize};

/// Facts about the compressor of a run. A record keeps them, so a program without the compressor
/// can show the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompressorFacts {
    /// Steps of a round with the first compressor.
    pub every: u64,
    /// Whether the gradient of a batch is computed in parts, because a memory needs their squares.
    pub computes_parts: bool,
    /// Bits of each sent value, without its position; `None` if their number varies, or if the run
    /// has several compressors.
    pub value_bits: Option<u32>,
    /// Whether messages contain no positions, because both ends draw them.
    pub draws_positions: bool,
}

impl CompressorFacts {
    /// Of a compressor of which nothing is known.
    const UNKNOWN: Self =
        Self { every: 1, computes_parts: false, value_bits: None, draws_positions: false };

    /// Of all compressors of a run.
    pub(crate) fn of(schedule: &CompressionSchedule) -> Self {
        let first = schedule.first();
        let properties = first.properties();
        Self {
            every: first.every(),
            computes_parts: schedule.specs().any(|spec| spec.compressor().keeps_squares()),
            value_bits: properties.value_bits.filter(|_| schedule.is_of_one()),
            draws_positions: properties.draws_positions,
        }
    }

    /// Of a text from a record that has no facts.
    pub(crate) fn of_text(compressor: &str) -> Self {
        compressor.parse().as_ref().map_or(Self::UNKNOWN, Self::of)
    }
}
