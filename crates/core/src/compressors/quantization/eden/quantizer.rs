//! Rounding to the best levels for normally distributed elements.

use gradwire_bits::kernels;

use crate::numeric::lloyd_max;

/// The quantizer of a number of bits.
#[derive(Debug)]
pub(super) struct Quantizer {
    limits: [f32; 127],
    numbers: [f32; 256],
    /// The number of positive levels, and the offset of negative levels' numbers.
    half: u16,
}

impl Quantizer {
    /// `None` for 0 bits.
    pub(super) fn new(bits: u32) -> Option<Self> {
        let half = 1 << bits.checked_sub(1)?;
        let (limits, numbers) = (lloyd_max::limits(bits), lloyd_max::numbers(bits));
        Some(Self { limits, numbers, half })
    }

    /// The levels 1 and −1, whose sums are exact. The scale of a message with one bit for every
    /// element contains the level.
    pub(super) fn of_signs() -> Self {
        let mut numbers = [0.0; 256];
        (numbers[0], numbers[1]) = (1.0, -1.0);
        Self { limits: [0.0; 127], numbers, half: 1 }
    }

    /// Writes the levels nearest to the values times `inverse`, and adds them to `decoded`.
    pub(super) fn quantize(
        &self,
        values: &[f32],
        inverse: f32,
        symbols: &mut [u16],
        decoded: &mut [f32],
    ) {
        let limits = &self.limits[..usize::from(self.half) - 1];
        kernels::limits_reached(values, inverse, limits, self.half, symbols);
        self.add(symbols, decoded);
    }

    /// Adds the numbers of levels to `decoded`.
    pub(super) fn add(&self, symbols: &[u16], decoded: &mut [f32]) {
        if self.half <= 4 {
            let few = self.numbers.first_chunk().expect("there are 256 numbers");
            kernels::few_numbers_add(symbols, few, decoded);
        } else {
            kernels::numbers_add(symbols, &self.numbers, decoded);
        }
    }
}
