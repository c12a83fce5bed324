//! Checks that both orders of a message share.

use gradwire_bits::DecodeError;
use gradwire_bits::kernels::TAGS;

/// The error of a value outside of the range of its tag.
pub(super) const INVALID: DecodeError =
    DecodeError::Corrupt("a value is outside the range of its tag");

/// Checks that the padding bits of the last byte of tags are zero.
pub(super) fn check_padding(packed: &[u8], elements: usize) -> Result<(), DecodeError> {
    let used = elements % TAGS;
    if used != 0 && packed.last().is_some_and(|last| last >> (2 * used) != 0) {
        return Err(DecodeError::Corrupt("a padding bit is set"));
    }
    Ok(())
}
