//! Mean and standard deviation of a tensor that is read block by block.

use std::ops::AddAssign;

use gradwire_bits::kernels;

/// Sums of values and of squares, in f64 and in an order that does not depend on the processor.
#[derive(Debug, Clone, Copy, Default)]
pub struct Moments {
    count: u64,
    sum: f64,
    squares: f64,
}

impl Moments {
    /// Adds a block of values.
    pub fn add(&mut self, block: &[f32]) {
        let [sum, squares] = kernels::moments(block);
        self.count += block.len() as u64;
        self.sum += sum;
        self.squares += squares;
    }

    /// The mean; 0 without values.
    pub fn mean(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum / self.count as f64 }
    }

    /// The standard deviation; 0 without values, and 0 if it is too small, compared with the mean,
    /// to tell from rounding errors.
    pub fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let square = self.squares / self.count as f64;
        let variance = square - self.mean() * self.mean();
        if variance > 1e-12 * square { variance.sqrt() } else { 0.0 }
    }
}

impl AddAssign for Moments {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.sum += other.sum;
        self.squares += other.squares;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(blocks: &[&[f32]]) -> Moments {
        let mut moments = Moments::default();
        blocks.iter().for_each(|block| moments.add(block));
        moments
    }

    #[test]
    fn of_a_textbook_set() {
        // 2 4 4 4 5 5 7 9: mean 5, deviation 2.
        let m = moments(&[&[2.0, 4.0, 4.0], &[4.0, 5.0, 5.0, 7.0, 9.0]]);
        assert_eq!((m.mean(), m.standard_deviation()), (5.0, 2.0));
    }

    #[test]
    fn every_lane_and_the_tail_count() {
        // 1 to 19: mean 10, variance (19² − 1) / 12 = 30.
        let values: Vec<f32> = (1..20).map(|x| x as f32).collect();
        let m = moments(&[&values]);
        assert_eq!(m.mean(), 10.0);
        assert!((m.standard_deviation() - 30f64.sqrt()).abs() < 1e-12);
    }

    #[test]
    fn constants_do_not_deviate() {
        assert_eq!(moments(&[&[0.1; 1000], &[0.1; 77]]).standard_deviation(), 0.0);
        assert_eq!(moments(&[]).standard_deviation(), 0.0);
        assert!(moments(&[&[f32::MAX, f32::MIN]]).standard_deviation().is_finite());
    }
}
