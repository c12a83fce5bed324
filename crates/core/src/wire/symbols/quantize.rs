//! Quantizes a tensor to one symbol per element, in parts that threads share.

use std::ops::Range;

use super::alphabet::Alphabet;
use crate::parts::cut_mut;
use crate::{BLOCK, Source, Workspace};

impl Alphabet {
    /// [Takes](Source::take) a tensor block by block, and appends a symbol for each element.
    /// `quantize` gets the block's offset, the block, the buffer for its symbols, the value that
    /// `value` returned for the places of the part, and a workspace of the thread.
    pub(crate) fn encode<T: Send>(
        self,
        source: &mut Source<'_>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
        value: impl FnMut(Range<usize>) -> T,
        quantize: impl Fn(usize, &mut [f32], &mut [u16], &mut T, &mut Workspace) + Sync,
    ) {
        if !self.is_coded {
            // A block is a whole number of bytes.
            const { assert!(BLOCK.is_multiple_of(8)) };
            let append = |source: &mut Source<'_>, mut value, message: &mut _, own: &mut _| {
                let mut symbols = [0; BLOCK];
                source.take_blocks(|offset, block| {
                    let symbols = &mut symbols[..block.len()];
                    quantize(offset, block, symbols, &mut value, own);
                    self.put_fixed(symbols, message);
                });
            };
            return source.append_in_parts(1, workspace, message, value, append);
        }
        fill_symbols(source, workspace, value, quantize);
        self.write(workspace, message);
    }
}

/// [Takes](Source::take) a tensor block by block, and leaves a symbol for each element in the
/// workspace. `quantize` is as for [`Alphabet::encode`].
pub(crate) fn fill_symbols<T: Send>(
    source: &mut Source<'_>,
    workspace: &mut Workspace,
    mut value: impl FnMut(Range<usize>) -> T,
    quantize: impl Fn(usize, &mut [f32], &mut [u16], &mut T, &mut Workspace) + Sync,
) {
    let mut symbols = std::mem::take(&mut workspace.symbols);
    symbols.resize(source.len(), 0);
    let mut rest = &mut symbols[..];
    let of_part = |part: Range<usize>| (cut_mut(&mut rest, part.len()), value(part));
    source.in_parts(workspace, of_part, |source, (mut symbols, mut value), workspace| {
        source.take_blocks(|offset, block| {
            let symbols = cut_mut(&mut symbols, block.len());
            quantize(offset, block, symbols, &mut value, workspace);
        });
    });
    workspace.symbols = symbols;
}
