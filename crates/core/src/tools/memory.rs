//! The survey's memory, as functions of whole tensors.

use gradwire_bits::kernels;

/// `memory_compensate` φ = β·m + γ·g (equation 5), elementwise, written to `compensated`.
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

/// `memory_update` ψ = φ − g̃ (equation 5), elementwise, written to `memory`.
///
/// # Panics
/// If the lengths differ.
pub fn memory_update(compensated: &[f32], decoded: &[f32], memory: &mut [f32]) {
    memory.copy_from_slice(compensated);
    kernels::add_scaled(memory, decoded, -1.0);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_that_of_equation_5() {
        let (mut memory, gradient, mut compensated) = ([4.0, -2.0], [1.0, 3.0], [9.0; 2]);
        memory_compensate(&memory, &gradient, [0.5, 2.0], &mut compensated);
        assert_eq!(compensated, [4.0, 5.0]);
        memory_update(&compensated, &[4.0, 0.5], &mut memory);
        assert_eq!(memory, [0.0, 4.5]);
    }
}
