//! The bytes that stand for runs.

/// The byte whose runs are coded: five zeros in quartic code.
pub const ZEROS: u8 = 121;
/// The length of the longest run in one byte.
pub const LONGEST: usize = 14;
/// The byte of a run of two; a run of `k` is `RUN + (k − 2)`.
pub(super) const RUN: u8 = 243;

/// The byte of a run of 1 to 14.
#[inline]
pub(crate) fn code(run: usize) -> u8 {
    debug_assert!((1..=LONGEST).contains(&run));
    if run == 1 { ZEROS } else { RUN + (run as u8 - 2) }
}
