//! SGC's long-term momentum.

use super::{Encoding, Memory, Step};
use crate::{Coverage, NonFinite, Residual};

/// Gradients are summed, `u ← u + ε·g`, and `α·u_before + u` is compressed; `u` becomes 0 for sent
/// elements.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct LongTerm {
    /// Weight ε of the gradient, positive.
    pub epsilon: f32,
    /// Momentum α, in \[0, 1).
    pub alpha: f32,
}

/// `α·u_before`, which is subtracted from the sum after the encoding.
#[derive(Debug, Default)]
struct Added(Vec<f32>);

impl Memory for LongTerm {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, kept, scratch, .. } = step;
        let (_, sum) = feedback.expect("long-term momentum is error feedback");
        let Added(added) = encoding.buffers();
        added.clear();
        added.extend(sum.iter().map(|u| self.alpha * u));
        let weights = Residual { beta: 1.0 + self.alpha, gamma: self.epsilon };
        let source = encoding.source(input.gradient, Some((weights, &mut *sum)), scratch)?;
        let sent = encoding.encode(&mut source.with_kept(kept))?;
        let Added(added) = encoding.buffers();
        sum.iter_mut().zip(&*added).for_each(|(u, added)| *u -= added);
        encoding.clear_sent(sent, sum);
        Ok(sent)
    }

    fn replaces_momentum(&self) -> bool {
        self.alpha > 0.0
    }
}
