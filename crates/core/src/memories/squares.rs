//! The memory of `variance`: the residual and sums of squares.

use super::{Encoding, Memory, Scope, Step};
use crate::{Coverage, NonFinite, Source, Statistics};

/// The plain residual, and elementwise sums of the squares of the parts (micro-batches) of
/// gradients. The compressor sets the sums of the elements that it sends to 0, and decays the
/// others.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Squares;

impl Memory for Squares {
    fn encode(&self, step: Step<'_>, encoding: &mut Encoding<'_>) -> Result<Coverage, NonFinite> {
        let Step { input, feedback, kept, scratch, plain, .. } = step;
        // The gradient must be finite before anything is added.
        let source = Source::unchecked(input.gradient, feedback, scratch);
        let source =
            source.with_statistics(Statistics::Largest, &mut encoding.workspace.helpers)?;
        let mut source = source.with_kept(kept).with_plain_memory(plain);
        source.add_squares(input.squares, encoding.workspace);
        encoding.encode(&mut source)
    }

    fn scope(&self) -> Scope {
        Scope::Always
    }

    fn keeps_squares(&self) -> bool {
        true
    }
}
