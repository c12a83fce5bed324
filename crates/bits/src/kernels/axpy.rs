//! Weighted sums of tensors.

use super::{cases, kernel};

/// `memory = beta·memory + gamma·gradient`, elementwise. Moves 12 bytes per element.
///
/// # Panics
/// If the lengths differ.
pub fn accumulate(memory: &mut [f32], gradient: &[f32], beta: f32, gamma: f32) {
    assert_eq!(memory.len(), gradient.len());
    if beta == 1.0 && gamma == 1.0 {
        add(memory, gradient);
    } else {
        weigh(memory, gradient, beta, gamma);
    }
}

/// `out = beta·memory + gamma·gradient`, elementwise, with the bits of [`accumulate`].
///
/// # Panics
/// If the lengths differ.
pub fn accumulate_to(out: &mut [f32], memory: &[f32], gradient: &[f32], beta: f32, gamma: f32) {
    assert!(out.len() == memory.len() && out.len() == gradient.len());
    if beta == 1.0 && gamma == 1.0 {
        add_to(out, memory, gradient);
    } else {
        weigh_to(out, memory, gradient, beta, gamma);
    }
}

kernel! {
    fn add(memory: &mut [f32], gradient: &[f32]) {
        for (m, g) in memory.iter_mut().zip(gradient) {
            *m += g;
        }
    }
}

kernel! {
    fn weigh(memory: &mut [f32], gradient: &[f32], beta: f32, gamma: f32) {
        for (m, g) in memory.iter_mut().zip(gradient) {
            *m = beta * *m + gamma * g;
        }
    }
}

kernel! {
    fn add_to(out: &mut [f32], memory: &[f32], gradient: &[f32]) {
        for ((o, m), g) in out.iter_mut().zip(memory).zip(gradient) {
            *o = m + g;
        }
    }
}

kernel! {
    fn weigh_to(
        out: &mut [f32],
        memory: &[f32],
        gradient: &[f32],
        beta: f32,
        gamma: f32,
    ) {
        for ((o, m), g) in out.iter_mut().zip(memory).zip(gradient) {
            *o = beta * m + gamma * g;
        }
    }
}

kernel! {
    /// `out += weight·values`, elementwise, up to the shorter length. Moves 12 bytes per element.
    pub fn add_scaled(out: &mut [f32], values: &[f32], weight: f32) {
        for (o, x) in out.iter_mut().zip(values) {
            *o += weight * x;
        }
    }
}

kernel! {
    /// `out += weight·x` with x = scale·value, limited to finite numbers, elementwise, up to the
    /// shorter length. A NaN stays a NaN. Moves 12 bytes per element.
    pub fn add_limited(
        out: &mut [f32],
        values: &[f32],
        scale: f32,
        weight: f32,
    ) {
        for (o, value) in out.iter_mut().zip(values) {
            *o += weight * (scale * value).clamp(f32::MIN, f32::MAX);
        }
    }
}

kernel! {
    /// `values = factor·values`, elementwise. Moves 8 bytes per element.
    pub fn scale(values: &mut [f32], factor: f32) {
        for x in values {
            *x *= factor;
        }
    }
}

cases![
    ("accumulate", |input, output| {
        for (beta, gamma) in [(input.x, input.y), (1.0, 1.0)] {
            let mut memory = input.floats();
            accumulate(&mut memory, &input.more(), beta, gamma);
            output.computed(&memory);
        }
    }),
    ("accumulate_to", |input, output| {
        for (beta, gamma) in [(input.x, input.y), (1.0, 1.0)] {
            let mut out = input.zeros();
            accumulate_to(&mut out, &input.floats(), &input.more(), beta, gamma);
            output.computed(&out);
        }
    }),
    ("add_limited", |input, output| {
        let mut out = input.floats();
        add_limited(&mut out, &input.more(), input.x, input.y);
        output.computed(&out);
    }),
    ("scale", |input, output| {
        let mut values = input.floats();
        scale(&mut values, input.x);
        output.computed(&values);
    }),
    ("add_scaled", |input, output| {
        let mut out = input.floats();
        add_scaled(&mut out, &input.more(), input.x);
        output.computed(&out);
    }),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_by_hand() {
        let mut memory = [1.0, -2.0, 0.5];
        accumulate(&mut memory, &[4.0, 8.0, -1.0], 0.5, 0.25);
        assert_eq!(memory, [1.5, 1.0, 0.0]);
        add_scaled(&mut memory, &[1.0, 2.0, 3.0], -2.0);
        assert_eq!(memory, [-0.5, -3.0, -6.0]);
        scale(&mut memory, -2.0);
        assert_eq!(memory, [1.0, 6.0, 12.0]);
    }

    #[test]
    fn what_overflows_is_the_largest_number() {
        let mut out = [1.0, 1.0, 0.0, 0.0];
        add_limited(&mut out, &[2.0, -3.0, 1e30, -1e30], 1e10, 0.5);
        assert_eq!(out, [1e10, -1.5e10, 0.5 * f32::MAX, -0.5 * f32::MAX]);
    }
}
