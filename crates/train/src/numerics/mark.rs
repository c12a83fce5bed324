//! The digest of a part's results.

use gradwire::Rng;
use sha2::{Digest, Sha256};

/// A digest of values in the order they are added.
#[derive(Default)]
pub(super) struct Mark(Sha256);

impl Mark {
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    pub(super) fn floats(&mut self, values: &[f32]) {
        self.0.update((values.len() as u64).to_le_bytes());
        for some in values.chunks(1024) {
            let bytes: Vec<u8> =
                some.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect();
            self.0.update(bytes);
        }
    }

    pub(super) fn tensors(&mut self, tensors: &[Vec<f32>]) {
        tensors.iter().for_each(|values| self.floats(values));
    }

    pub(super) fn number(&mut self, value: f64) {
        self.0.update(value.to_bits().to_le_bytes());
    }

    /// Sixteen hexadecimal digits.
    pub(super) fn text(self) -> String {
        self.0.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Fixed values as gradients have them, mostly small and a few larger ones: cubes of numbers from
/// −1 to 1.
pub(super) fn values(count: usize, tensor: u64, rank: u32, step: u64) -> Vec<f32> {
    let mut rng = Rng::new(0, tensor, rank, step, 0);
    let cube = |x: f32| x * x * x;
    (0..count).map(|_| cube(2.0 * rng.uniform() - 1.0)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_every_border_counts() {
        let mark = |tensors: &[Vec<f32>]| {
            let mut mark = Mark::default();
            mark.tensors(tensors);
            mark.text()
        };
        let base = mark(&[vec![1.0, 2.0], vec![3.0]]);
        assert_eq!(base, mark(&[vec![1.0, 2.0], vec![3.0]]));
        assert_ne!(base, mark(&[vec![1.0], vec![2.0, 3.0]]));
        assert_ne!(base, mark(&[vec![1.0, 2.0], vec![f32::from_bits(3.0f32.to_bits() + 1)]]));
        assert_ne!(mark(&[vec![0.0]]), mark(&[vec![-0.0]]));
    }
}
