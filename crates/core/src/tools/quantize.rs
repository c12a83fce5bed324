//! Quantization to evenly spaced numbers around zero.

use gradwire_bits::kernels::{self, Levels};

use crate::wire::{fields, levels};
use crate::{DecodeError, Rng};

/// The numbers −n·step … n·step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Grid {
    each_side: f32,
    step: f32,
    inverse: f32,
}

impl Grid {
    /// The most numbers on either side of zero.
    pub const MOST: u16 = 32_767;

    /// `each_side` numbers on either side of zero, up to `largest`, but for rounding, and finite.
    /// If the numbers would be too close for `f32` (a step below about 3·10⁻³⁹), all are zero.
    ///
    /// # Panics
    /// If `each_side` is 0 or above [`MOST`](Self::MOST), or `largest` is negative or not finite.
    pub fn up_to(largest: f32, each_side: u16) -> Self {
        assert!(largest.is_finite() && largest >= 0.0, "{largest} is not a largest absolute value");
        let each_side = checked(each_side);
        let (step, inverse) = levels::step(largest, each_side);
        Self { each_side, step, inverse }
    }

    /// The number of numbers: the size of the alphabet that [`quantize`] writes.
    pub fn numbers(&self) -> usize {
        2 * self.each_side as usize + 1
    }

    /// The distance between neighbours.
    pub fn step(&self) -> f32 {
        self.step
    }

    /// Appends the step as f32.
    pub fn write(&self, message: &mut Vec<u8>) {
        fields::put_f32(self.step, message);
    }

    /// Reads the step off the front of a message.
    ///
    /// # Errors
    /// If the bytes end too early, the step is negative or not finite, or the largest number is not
    /// finite.
    ///
    /// # Panics
    /// If `each_side` is 0 or above [`MOST`](Self::MOST).
    pub fn read(message: &mut &[u8], each_side: u16) -> Result<Self, DecodeError> {
        let each_side = checked(each_side);
        let step = levels::take_step(message, each_side)?;
        Ok(Self { each_side, step, inverse: levels::invertible(step).1 })
    }

    fn levels(self) -> Levels {
        let Self { each_side, step, inverse } = self;
        Levels { least: -each_side, most: each_side, inverse, step }
    }
}

fn checked(each_side: u16) -> f32 {
    assert!((1..=Grid::MOST).contains(&each_side), "{each_side} numbers on either side of zero");
    f32::from(each_side)
}

/// The rule that selects one of a value's two neighbours on a grid.
#[derive(Debug, Clone, Copy)]
pub enum Rounding<'a> {
    /// The nearest neighbour, and the lower one on a tie: the least error.
    Nearest,
    /// One of the two at random, with the value as expectation: [word for
    /// rounding](Rng::fill_rounding) `first` + i of a [stream](crate::Context::rng) decides for
    /// value i.
    Random {
        /// The stream.
        rng: &'a Rng,
        /// The index of the first value in the tensor, and of its word in the stream.
        first: usize,
    },
}

/// Values that are quantized at a time.
const CHUNK: usize = 1024;
/// With this word a value becomes its upper neighbour only if that is nearer.
const HALF: u32 = 1 << 31;

/// Appends each value's index on the grid, from 0, and leaves the quantization errors in `values`.
/// Values beyond the grid become its ends.
///
/// Cost: 8 bytes per element, and the draws of [`Rng::fill_rounding`].
pub fn quantize(values: &mut [f32], grid: Grid, rounding: Rounding<'_>, symbols: &mut Vec<u16>) {
    let mut words = [HALF; CHUNK];
    for (at, values) in values.chunks_mut(CHUNK).enumerate() {
        let words = &mut words[..values.len()];
        if let Rounding::Random { rng, first } = rounding {
            rng.fill_rounding(first + at * CHUNK, words);
        }
        let start = symbols.len();
        symbols.resize(start + values.len(), 0);
        let symbols = &mut symbols[start..];
        kernels::stochastic_levels(values, grid.levels(), words, symbols);
        kernels::levels_off(values, symbols, grid.levels());
    }
}

/// Adds `weight` times the grid's number at each index to `out`, up to the shorter length. Indices
/// must be below [`Grid::numbers`]; [`unpack`](super::unpack) checks this.
pub fn dequantize(symbols: &[u16], grid: Grid, weight: f32, out: &mut [f32]) {
    kernels::levels_add(symbols, -grid.each_side, weight * grid.step, out);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_worked_by_hand() {
        let grid = Grid::up_to(6.0, 3);
        assert_eq!((grid.step(), grid.numbers()), (2.0, 7));
        // In steps: 3, −3, 0.5 (a tie), −0.5 (a tie), 0.75, −2.25, and beyond the end.
        let mut values = [6.0, -6.0, 1.0, -1.0, 1.5, -4.5, 9.0];
        let mut symbols = vec![99];
        quantize(&mut values, grid, Rounding::Nearest, &mut symbols);
        assert_eq!(symbols, [99, 6, 0, 3, 2, 4, 1, 6]);
        assert_eq!(values, [0.0, 0.0, 1.0, 1.0, -0.5, -0.5, 3.0]);
        let mut out = [1.0; 7];
        dequantize(&symbols[1..], grid, 0.5, &mut out);
        assert_eq!(out, [4.0, -2.0, 1.0, 0.0, 2.0, -1.0, 4.0]);
    }

    #[test]
    fn random_rounding_is_by_place_and_has_the_value_as_expectation() {
        let (rng, grid) = (Rng::new(1, 2, 3, 4, 5), Grid::up_to(1.0, 1));
        let count = 100_000;
        let mut whole = vec![0.25; count];
        let mut symbols = Vec::new();
        quantize(&mut whole, grid, Rounding::Random { rng: &rng, first: 0 }, &mut symbols);
        let mean = symbols.iter().map(|&s| f64::from(s) - 1.0).sum::<f64>() / count as f64;
        // Five standard deviations of the mean of draws with variance 1/4 · 3/4.
        assert!((mean - 0.25).abs() < 5.0 * (0.1875 / count as f64).sqrt(), "{mean}");
        // A part from the middle gets the same decisions.
        let (mut part, mut again) = (vec![0.25; 5000], Vec::new());
        quantize(&mut part, grid, Rounding::Random { rng: &rng, first: 1717 }, &mut again);
        assert_eq!(again, symbols[1717..6717]);
    }

    #[test]
    fn numbers_stay_finite() {
        let grid = Grid::up_to(f32::MAX, Grid::MOST);
        let (mut values, mut symbols) = ([f32::MAX, -f32::MAX], Vec::new());
        quantize(&mut values, grid, Rounding::Nearest, &mut symbols);
        let mut out = [0.0; 2];
        dequantize(&symbols, grid, 1.0, &mut out);
        assert!(out.iter().chain(&values).all(|x| x.is_finite()));
        // Too close to distinguish: the values stay as errors.
        let mut tiny = [1e-40];
        quantize(&mut tiny, Grid::up_to(1e-40, 7), Rounding::Nearest, &mut symbols);
        assert_eq!((tiny[0], symbols[2]), (1e-40, 7));
    }

    #[test]
    fn a_step_is_read_as_written_and_checked() {
        let grid = Grid::up_to(3.0, 2);
        let mut message = Vec::new();
        grid.write(&mut message);
        assert_eq!(message, 1.5f32.to_le_bytes());
        assert_eq!(Grid::read(&mut &message[..], 2), Ok(grid));
        assert_eq!(Grid::read(&mut &message[..3], 2), Err(DecodeError::Truncated));
        for bad in [-1.0, f32::NAN, f32::INFINITY, f32::MAX] {
            let read = Grid::read(&mut &bad.to_le_bytes()[..], 2);
            assert!(matches!(read, Err(DecodeError::Corrupt(_))), "{bad}");
        }
    }
}
