//! From a tensor to a symbol for each element, in parts that threads share.

use super::alphabet::Alphabet;
use crate::{BLOCK, Parts, Source, Workspace};

impl Alphabet {
    /// [Takes](Source::take) a tensor block by block, and appends a symbol for each element. `quantize` gets the block's
    /// offset, the block, the place of its symbols, the value of the part, and a workspace of the thread.
    pub(crate) fn encode<T: Send>(
        self,
        source: &mut Source<'_>,
        parts: Parts,
        values: impl Iterator<Item = T>,
        workspace: &mut Workspace,
        message: &mut Vec<u8>,
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
            return source.append_in_parts(parts, workspace, message, values, append);
        }
        fill_symbols(source, parts, values, workspace, quantize);
        self.write(workspace, message);
    }
}

/// [Takes](Source::take) a tensor block by block, and leaves a symbol for each element in the workspace. `quantize` is as for
/// [`Alphabet::encode`].
pub(crate) fn fill_symbols<T: Send>(
    source: &mut Source<'_>,
    parts: Parts,
    values: impl Iterator<Item = T>,
    workspace: &mut Workspace,
    quantize: impl Fn(usize, &mut [f32], &mut [u16], &mut T, &mut Workspace) + Sync,
) {
    let mut symbols = std::mem::take(&mut workspace.symbols);
    symbols.resize(source.len(), 0);
    let each = symbols.chunks_mut(parts.len()).zip(values);
    source.in_parts(parts, workspace, each, |source, (symbols, mut value), workspace| {
        let mut places = symbols.chunks_mut(BLOCK);
        source.take_blocks(|offset, block| {
            let symbols = places.next().expect("a block has its place");
            quantize(offset, block, symbols, &mut value, workspace);
        });
    });
    workspace.symbols = symbols;
}
