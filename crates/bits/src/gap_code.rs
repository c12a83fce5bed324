//! The [Rice code](crate::rice) of a single gap.

/// The code of a gap (ones, a zero, and the lower bits; the first bit lowest), and its length. The
/// bits are wrong if the length is 64 or more.
#[inline(always)]
pub(crate) fn gap_code(gap: u32, parameter: u32) -> (u64, u32) {
    let ones = gap >> parameter;
    let lower = u64::from(gap & ((1 << parameter) - 1));
    let unary = 1u64.wrapping_shl(ones) - 1;
    (unary | lower.wrapping_shl(ones.wrapping_add(1)), ones.wrapping_add(1 + parameter))
}
