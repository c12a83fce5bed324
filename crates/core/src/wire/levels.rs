//! The common part of compressors with evenly spaced levels: the step between levels, and the norms
//! that determine it.

use gradwire_bits::{DecodeError, kernels};

use super::fields;

/// The step and its inverse; both zero if the inverse would overflow.
pub(crate) fn invertible(step: f32) -> (f32, f32) {
    let inverse = 1.0 / step;
    if inverse.is_finite() { (step, inverse) } else { (0.0, 0.0) }
}

/// The step at which `levels` steps reach `largest` without overflowing, and its inverse.
pub(crate) fn step(largest: f32, levels: f32) -> (f32, f32) {
    let step = largest / levels;
    invertible(if (step * levels).is_finite() { step } else { step.next_down() })
}

/// Splits a step off the front of a message whose largest level is `most` steps from zero.
pub(crate) fn take_step(message: &mut &[u8], most: f32) -> Result<f32, DecodeError> {
    let step = fields::take_scale(message)?;
    if (most * step).is_finite() {
        return Ok(step);
    }
    Err(DecodeError::Corrupt("the step is too large"))
}

/// Splits the bytes of `count` steps off the front of a message, each as for [`take_step`].
pub(crate) fn take_steps<'a>(
    message: &mut &'a [u8],
    count: usize,
    most: f32,
) -> Result<&'a [[u8; 4]], DecodeError> {
    let steps = fields::take(message, count.saturating_mul(4))?.as_chunks().0;
    for step in steps {
        take_step(&mut &step[..], most)?;
    }
    Ok(steps)
}

/// A norm that is computed block by block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Norm {
    /// The root of the sum of squares.
    Euclidean,
    /// The largest absolute value.
    Max,
}

impl Norm {
    /// Adds a block to a total that starts at 0.
    pub(crate) fn add(self, total: f64, block: &[f32]) -> f64 {
        match self {
            Norm::Euclidean => total + kernels::sum_of_squares(block),
            Norm::Max => total.max(f32::from_bits(kernels::abs_max_bits(block)).into()),
        }
    }

    /// The norm of all blocks in the total, at most the largest finite number.
    pub(crate) fn finish(self, total: f64) -> f32 {
        match self {
            Norm::Euclidean => total.sqrt().min(f32::MAX.into()) as f32,
            Norm::Max => total as f32,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_reach_the_largest_value_and_not_beyond() {
        assert_eq!(step(127.0, 127.0), (1.0, 1.0));
        assert_eq!(step(0.0, 5.0), (0.0, 0.0));
        assert_eq!(step(1e-40, 5.0), (0.0, 0.0));
        for levels in 1..1000 {
            let (step, inverse) = step(f32::MAX, levels as f32);
            assert!((step * levels as f32).is_finite() && inverse > 0.0, "{levels}");
            assert!(step * levels as f32 > 0.999_999 * f32::MAX, "{levels}");
        }
    }

    #[test]
    fn norms_by_hand() {
        let of = |norm: Norm| norm.finish(norm.add(norm.add(0.0, &[3.0, 0.0]), &[-4.0]));
        assert_eq!((of(Norm::Euclidean), of(Norm::Max)), (5.0, 4.0));
        assert_eq!(Norm::Euclidean.finish(Norm::Euclidean.add(0.0, &[f32::MAX; 9])), f32::MAX);
    }
}
