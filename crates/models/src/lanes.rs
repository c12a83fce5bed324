//! Partial sums in lanes. Every processor has as many, whatever the width of its vectors, so all
//! compute the same bits.

/// The number of partial sums. No processor has vectors of more values.
pub(crate) const LANES: usize = 16;

/// The sum of all lanes: halves are added until one value is left.
pub(crate) fn total(mut lanes: [f32; LANES]) -> f32 {
    let mut half = LANES;
    while half > 1 {
        half /= 2;
        let (sums, terms) = lanes[..2 * half].split_at_mut(half);
        sums.iter_mut().zip(terms).for_each(|(sum, term)| *sum += *term);
    }
    lanes[0]
}

/// Whether this processor does not round products before adding them.
#[cfg(test)]
pub(crate) fn is_fused() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    cfg!(target_arch = "aarch64")
}

/// Values with all bits in use.
#[cfg(test)]
pub(crate) fn waves(count: usize, pace: f32) -> Vec<f32> {
    (0..count).map(|at| (at as f32 * pace).sin()).collect()
}
