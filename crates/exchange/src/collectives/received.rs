//! The messages of all ranks for the same pieces, and their means.
//!
//! Each piece is averaged before the next one, so its sums stay in the cache while the messages of
//! all ranks are added. If threads share the group, the messages of a rank are added side by side,
//! one rank after the other. Both ways add in the order of ranks.

use super::collective::Reduction;
use super::packed;
use crate::codecs::Sender;
use crate::group::Piece;
use crate::{Phase, Result};

/// The packed messages of each rank.
pub(super) struct Received {
    pub(super) from: Vec<Vec<u8>>,
    /// The place of each rank's next message.
    next: Vec<usize>,
}

impl Received {
    pub(super) fn new(ranks: usize) -> Self {
        Self { from: vec![Vec::new(); ranks], next: Vec::new() }
    }

    /// Replaces `means` with the aggregated means of the messages, times a factor. The pieces are
    /// in order. A rank with weight 0 has sent nothing.
    pub(super) fn average<'t>(
        &mut self,
        step: &mut Reduction<'_>,
        phase: Phase,
        factor: f32,
        mut pieces: impl Iterator<Item = Piece<'t>> + Clone,
        means: &mut [f32],
    ) -> Result<()> {
        if !step.codecs.share(step.group) {
            return self.average_each(step, phase, factor, pieces, means);
        }
        means.fill(0.0);
        for (rank, packed) in self.from.iter().enumerate() {
            let sender = Sender::one_of_all(rank, step.weight(rank, factor));
            step.decode_all(phase, sender, packed, pieces.clone(), means)?;
        }
        pieces.try_for_each(|piece| step.aggregate(&piece, means))
    }

    fn average_each<'t>(
        &mut self,
        step: &mut Reduction<'_>,
        phase: Phase,
        factor: f32,
        pieces: impl Iterator<Item = Piece<'t>>,
        means: &mut [f32],
    ) -> Result<()> {
        let Self { from, next } = self;
        next.clear();
        next.resize(from.len(), 0);
        for piece in pieces {
            let operation = step.operation_of(phase, &piece);
            means[piece.range.clone()].fill(0.0);
            for (rank, (packed, next)) in from.iter().zip(&mut *next).enumerate() {
                let sender = Sender::one_of_all(rank, step.weight(rank, factor));
                if sender.weight != 0.0 {
                    let message = packed::next(rank, packed, next, operation)?;
                    step.add(phase, sender, &piece, message, means)?;
                }
            }
            step.aggregate(&piece, means)?;
        }
        let operation = step.operation(phase);
        let mut ends = from.iter().zip(next).enumerate();
        ends.try_for_each(|(rank, (packed, end))| packed::finish(rank, packed, *end, operation))
    }
}
