//! The common part of methods that send signs: one bit per element, decoded to one of two levels.

use gradwire_bits::{DecodeError, kernels};

use crate::wire::fields;
use crate::{BLOCK, Source, Unit, Workspace};

/// The number of bytes for the bits of a tensor.
pub(super) fn len(elements: usize) -> usize {
    elements.div_ceil(8)
}

/// Appends a bit per element, least significant first and 1 for elements ≥ 0, and pads the last
/// byte with zeros. If there is a residual, subtracts from each element the level of its sign.
pub(super) fn encode(
    source: &mut Source<'_>,
    [negative, positive]: [f32; 2],
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    // A block is a whole number of bytes, so blocks join without shifts.
    const { assert!(BLOCK.is_multiple_of(8)) };
    source.append(workspace, message, |source, message| {
        let mut bits = [0; BLOCK / 8];
        if source.keeps_residual() {
            return source.take_short_blocks(|_, block| {
                let bits = &mut bits[..len(block.len())];
                kernels::sign_residual(block, negative, positive, bits);
                message.extend_from_slice(bits);
            });
        }
        let mut put = |block: &[f32]| {
            let bits = &mut bits[..len(block.len())];
            kernels::signs(block, bits);
            message.extend_from_slice(bits);
        };
        // Taking the elements stores the velocity in the same pass.
        match source.has_velocity() {
            true => source.take_short_blocks(|_, block| put(block)),
            false => source.peek_short_blocks(|_, block| put(block)),
        }
    });
}

/// Adds the level of each bit.
pub(super) fn decode_add(
    bits: &[u8],
    [negative, positive]: [f32; 2],
    workspace: &mut Workspace,
    out: &mut [f32],
) -> Result<(), DecodeError> {
    check(bits, out.len())?;
    let unit = Unit { items: 1, elements: 8 };
    workspace.helpers.add_in_parts(bits, unit, out, |_, bits, out| {
        kernels::sign_add(bits, negative, positive, out);
    });
    Ok(())
}

/// Checks the bits of a tensor.
pub(super) fn check(bits: &[u8], elements: usize) -> Result<(), DecodeError> {
    fields::expect_len(bits, len(elements))?;
    let used = elements % 8;
    if used != 0 && bits.last().is_some_and(|last| last >> used != 0) {
        return Err(DecodeError::Corrupt("a padding bit is set"));
    }
    Ok(())
}
