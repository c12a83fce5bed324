//! The survey's defaults for what compressors customize.

use gradwire_bits::kernels;

use crate::{Encoded, Gathered};

/// `memory_compensate` φ = β·m + γ·g (equation 5), elementwise, in place of what `compensated` held.
///
/// # Panics
/// If the lengths differ.
pub fn memory_compensate(
    memory: &[f32],
    gradient: &[f32],
    [beta, gamma]: [f32; 2],
    compensated: &mut [f32],
) {
    kernels::accumulate_to(compensated, memory, gradient, beta, gamma);
}

/// `memory_update` ψ = φ − g̃ (equation 5): the memory is what the message left out.
///
/// # Panics
/// If the lengths differ.
pub fn memory_update(memory: &mut [f32], encoded: &Encoded<'_>) {
    memory.copy_from_slice(encoded.left);
}

/// `aggregate` Agg = Σ wᵢ·xᵢ: the weighted mean, added in the order of ranks, in place of what `combined` held.
///
/// # Panics
/// If the length is not the tensor's.
pub fn aggregate(gathered: &Gathered<'_>, combined: &mut [f32]) {
    combined.fill(0.0);
    for (row, &weight) in gathered.rows().zip(gathered.weights()) {
        kernels::add_scaled(combined, row, weight);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_the_survey() {
        let (mut memory, gradient, mut compensated) = ([4.0, -2.0], [1.0, 3.0], [9.0; 2]);
        memory_compensate(&memory, &gradient, [0.5, 2.0], &mut compensated);
        assert_eq!(compensated, [4.0, 5.0]);
        let left = [0.0, 5.0];
        let encoded = Encoded {
            gradient: &gradient,
            compensated: &compensated,
            left: &left,
            positions: Some(&[0]),
        };
        assert_eq!([encoded.decoded(0), encoded.decoded(1)], [4.0, 0.0]);
        memory_update(&mut memory, &encoded);
        assert_eq!(memory, left);
    }

    #[test]
    fn the_mean_has_weights() {
        let mut mean = [9.0; 2];
        aggregate(&Gathered::new(&[0.25, 0.75], &[4.0, 8.0, -4.0, 0.0], 2), &mut mean);
        assert_eq!(mean, [-2.0, 2.0]);
    }
}
