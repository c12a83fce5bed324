//! Gradients to compress.

use gradwire::Rng;

/// Gradients that are compressed in turn, so no message repeats the last.
pub(super) const GRADIENTS: usize = 2;

/// Rows and columns of a matrix as near to square as its number of elements allows, for methods
/// that treat matrices and vectors differently.
pub(super) fn matrix(elements: usize) -> [usize; 2] {
    let rows = (1..=elements.isqrt()).rev().find(|&rows| elements.is_multiple_of(rows));
    rows.map_or([1, elements], |rows| [rows, elements / rows])
}

/// Approximately normal variates, standard deviation 0.01: sums of four uniform bytes and a uniform
/// fraction.
pub(super) fn normal(elements: usize, stream: u32) -> Vec<f32> {
    let draw = |stream| {
        let mut words = vec![0; elements];
        Rng::new(0, 0, 0, 0, stream).fill(&mut words);
        words
    };
    // Four bytes have the mean 510 and the variance 4 · (256² − 1) / 12; the fraction has the
    // variance 1 / 12.
    let scale = 0.01 / ((4.0 * 65535.0 + 1.0) / 12.0f32).sqrt();
    let sum = |word: u32| word.to_le_bytes().iter().map(|&byte| f32::from(byte)).sum::<f32>();
    let fraction = |word: u32| (word >> 8) as f32 / (1 << 24) as f32 - 0.5;
    let words = draw(stream).into_iter().zip(draw(stream + GRADIENTS as u32));
    words.map(|(whole, part)| (sum(whole) + fraction(part) - 510.0) * scale).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_input_looks_normal() {
        let values = normal(100_000, 0);
        let mean = values.iter().sum::<f32>() / 1e5;
        let variance = values.iter().map(|x| x * x).sum::<f32>() / 1e5;
        assert!(mean.abs() < 2e-4, "{mean}");
        assert!((variance.sqrt() / 0.01 - 1.0).abs() < 0.02, "{variance}");
    }

    #[test]
    fn matrices_are_as_square_as_they_can_be() {
        assert_eq!((matrix(1000), matrix(7), matrix(0)), ([25, 40], [1, 7], [1, 0]));
    }
}
