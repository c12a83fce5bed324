//! Uniform 8-bit quantization.

use super::{cases, kernel};

/// 1.5·2^23: adding it to a number of magnitude below 2^22 rounds the number to an integer, ties to
/// even, in the low bits of the sum. A cast from float to integer saturates and costs fourteen
/// times as much.
const ROUND: f32 = 12_582_912.0;

kernel! {
    /// Quantizes `values` to `q = round(value·inverse)`, clamped to ±127, and leaves
    /// `value − q·step` in `values`; a NaN may become any q. Processes the shorter length.
    pub fn int8_residual(
        values: &mut [f32],
        inverse: f32,
        step: f32,
        out: &mut [i8],
    ) {
        for (x, out) in values.iter_mut().zip(out) {
            let rounded = rounded(*x * inverse);
            *x -= (rounded - ROUND) * step;
            *out = rounded.to_bits() as u8 as i8;
        }
    }
}

kernel! {
    /// Quantizes as [`int8_residual`] does, but leaves the values unchanged.
    pub fn int8_levels(values: &[f32], inverse: f32, out: &mut [i8]) {
        for (x, out) in values.iter().zip(out) {
            *out = rounded(*x * inverse).to_bits() as u8 as i8;
        }
    }
}

/// The integer nearest to a number, clamped to ±127, plus [`ROUND`].
#[inline(always)]
fn rounded(scaled: f32) -> f32 {
    let scaled = if scaled < -127.0 { -127.0 } else { scaled };
    let scaled = if scaled > 127.0 { 127.0 } else { scaled };
    scaled + ROUND
}

kernel! {
    /// `out += step·q`, elementwise, up to the shorter length.
    pub fn int8_add(quantized: &[i8], step: f32, out: &mut [f32]) {
        for (&q, out) in quantized.iter().zip(out) {
            *out += step * f32::from(q);
        }
    }
}

cases![
    ("int8_add", |input, output| {
        let quantized = input.elements(input.len, |at| input.word(at) as i8);
        let mut out = input.more();
        int8_add(&quantized, input.x, &mut out);
        output.computed(&out);
    }),
    ("int8_residual", |input, output| {
        let (mut values, mut out) = (input.floats(), input.zeros());
        int8_residual(&mut values, input.x, input.y, &mut out);
        let out: Vec<u8> = out.iter().map(|q: &i8| *q as u8).collect();
        output.symbols((&input.floats(), input.x), &values, &out);
    }),
    ("int8_levels", |input, output| {
        let (values, mut out) = (input.floats(), input.zeros());
        int8_levels(&values, input.x, &mut out);
        let out: Vec<u8> = out.iter().map(|q: &i8| *q as u8).collect();
        output.symbols((&values, input.x), &values, &out);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_halves_to_even_and_clamps() {
        let mut values = [0.5, 1.5, -2.5, 126.6, 200.0, -200.0, -0.0];
        let mut q = [0; 7];
        int8_levels(&values, 1.0, &mut q);
        assert_eq!(q, [0, 2, -2, 127, 127, -127, 0]);
        q.fill(0);
        int8_residual(&mut values, 1.0, 1.0, &mut q);
        assert_eq!(q, [0, 2, -2, 127, 127, -127, 0]);
        assert_eq!(values[..3], [0.5, -0.5, -0.5]);
        assert_eq!(values[4..], [73.0, -73.0, 0.0]);
        let mut out = [1.0; 7];
        int8_add(&q, 0.5, &mut out);
        assert_eq!(out, [1.0, 2.0, 0.0, 64.5, 64.5, -62.5, 1.0]);
    }
}
