//! The ℓ1 penalty of gradients, and a check that they are finite.

/// Adds the gradient of an ℓ1 penalty; a parameter of 0 has none.
pub(crate) fn penalise(gradients: &mut [Vec<f32>], parameters: &[Vec<f32>], weight: f32) {
    for (gradients, parameters) in gradients.iter_mut().zip(parameters) {
        for (gradient, parameter) in gradients.iter_mut().zip(parameters) {
            let sign = if *parameter == 0.0 { 0.0 } else { parameter.signum() };
            *gradient += weight * sign;
        }
    }
}

/// The first value that is not finite.
pub(crate) fn non_finite(values: &[f32]) -> Option<f32> {
    // One pass of integer operations at memory speed finds whether there is one; a rare second pass
    // finds which.
    let exponents = |value: &f32| value.to_bits() & 0x7f80_0000;
    let found = values.iter().fold(false, |found, value| found | (exponents(value) == 0x7f80_0000));
    if found { values.iter().copied().find(|value| !value.is_finite()) } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_penalty_pulls_towards_zero() {
        let mut gradients = vec![vec![1.0, 1.0, 1.0, 1.0]];
        penalise(&mut gradients, &[vec![2.0, -0.5, 0.0, -0.0]], 0.25);
        assert_eq!(gradients, [[1.25, 0.75, 1.0, 1.0]]);
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_found() {
        assert_eq!(non_finite(&[0.0, -1.0, f32::MAX, f32::MIN_POSITIVE / 2.0]), None);
        assert_eq!(non_finite(&[0.0, f32::NEG_INFINITY, f32::NAN]), Some(f32::NEG_INFINITY));
        assert!(non_finite(&[1.0; 100].map(|x| x * f32::NAN)).is_some_and(f32::is_nan));
    }
}
