//! Inputs for tests that compare a kernel with a naive computation.

use alloc::vec::Vec;

/// Finite values of every kind: both zeros, subnormals, halves, large and small numbers, both
/// signs.
fn values(len: usize) -> Vec<f32> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    (0..len)
        .map(|i| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let uniform = (state >> 40) as f32 / (1 << 24) as f32 - 0.5;
            match i % 11 {
                0 => 0.0,
                1 => -0.0,
                2 => 0.5,
                3 => -0.5,
                4 => 1e-40 * uniform,
                5 => 1e30 * uniform,
                _ => 2.0 * uniform,
            }
        })
        .collect()
}

/// Calls `check` with slices of many lengths.
pub(super) fn sweep(mut check: impl FnMut(&[f32])) {
    let all = values(5003);
    for len in (0..200).chain([4099]) {
        check(&all[all.len() - len..]);
    }
}

/// Whether two slices hold the same bits.
pub(super) fn same(a: &[f32], b: &[f32]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits())
}
