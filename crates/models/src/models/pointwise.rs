//! Operations on rows of values: sums, softmax, GELU.
//!
//! They are written for vectorising compilers: sums have [`LANES`] independent parts, and [`exp`]
//! is a polynomial instead of a call.

use crate::lanes::LANES;

/// `sum += terms`, element by element.
///
/// # Panics
/// If the numbers of terms and sums differ.
pub(super) fn add(sum: &mut [f32], terms: &[f32]) {
    assert_eq!(sum.len(), terms.len(), "a term for each sum");
    for (sum, term) in sum.iter_mut().zip(terms) {
        *sum += term;
    }
}

/// The sum of all values.
pub(super) fn sum(values: &[f32]) -> f32 {
    let chunks = values.chunks_exact(LANES);
    let rest: f32 = chunks.remainder().iter().sum();
    let mut lanes = [0.0; LANES];
    chunks.for_each(|chunk| add(&mut lanes, chunk));
    lanes.iter().sum::<f32>() + rest
}

/// Adds the values of each map of an image to the map's sum.
pub(super) fn add_map_sums(sums: &mut [f32], maps: &[f32]) {
    let maps = maps.chunks_exact(maps.len() / sums.len());
    sums.iter_mut().zip(maps).for_each(|(total, map)| *total += sum(map));
}

/// The position of the highest value; the first among equals.
pub(super) fn highest(row: &[f32]) -> usize {
    (1..row.len()).fold(0, |best, at| if row[at] > row[best] { at } else { best })
}

/// The scalar product.
pub(super) fn dot(left: &[f32], right: &[f32]) -> f32 {
    let (lefts, rights) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let pairs = lefts.remainder().iter().zip(rights.remainder());
    let rest: f32 = pairs.map(|(left, right)| left * right).sum();
    let mut lanes = [0.0; LANES];
    for (left, right) in lefts.zip(rights) {
        for ((lane, left), right) in lanes.iter_mut().zip(left).zip(right) {
            *lane += left * right;
        }
    }
    lanes.iter().sum::<f32>() + rest
}

/// Turns scores into probabilities, in proportion to e^(scale · score), `scale` > 0.
pub(super) fn softmax(scores: &mut [f32], scale: f32) {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores.iter_mut().for_each(|score| *score = exp((*score - most) * scale));
    let inverse = 1.0 / sum(scores);
    scores.iter_mut().for_each(|score| *score *= inverse);
}

/// −ln of the probability of `target`, in nats; turns scores into probabilities.
pub(super) fn cross_entropy(scores: &mut [f32], target: usize) -> f64 {
    let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // Probabilities are at least e^−87; the loss of a score below that is exact.
    let of_target = f64::from(scores[target] - most);
    scores.iter_mut().for_each(|score| *score = exp(*score - most));
    let total = sum(scores);
    scores.iter_mut().for_each(|score| *score /= total);
    f64::from(total).ln() - of_target
}

/// √(2/π) and the coefficient of GELU's cubic term.
const GELU: [f32; 2] = [0.797_884_6, 0.044_715];

/// GELU in its tanh form (Hendrycks and Gimpel 2016): `x/2 · (1 + tanh(√(2/π)·(x + 0.044715·x³)))`.
pub(super) fn gelu(x: &[f32]) -> Vec<f32> {
    x.iter().map(|&x| x * gate(x)).collect()
}

/// Multiplies a gradient by the derivative of GELU at `x`.
pub(super) fn gelu_backward(x: &[f32], gradient: &mut [f32]) {
    let [root, cubic] = GELU;
    for (gradient, &x) in gradient.iter_mut().zip(x) {
        let gate = gate(x);
        let slope = 2.0 * root * (1.0 + 3.0 * cubic * x * x);
        *gradient *= gate + x * gate * (1.0 - gate) * slope;
    }
}

/// (1 + tanh z) / 2 = 1 / (1 + e^(−2z)), the factor of GELU.
#[inline(always)]
fn gate(x: f32) -> f32 {
    let [root, cubic] = GELU;
    1.0 / (1.0 + exp(-2.0 * root * (x + cubic * x * x * x)))
}

/// eˣ, with a relative error below 3·10⁻⁷; x is clamped to ±87, where f32 is normal.
///
/// e^x = 2ⁿ·eʳ with n = round(x / ln 2), and eʳ by its Taylor polynomial of degree 7 on |r| ≤ ln 2
/// / 2.
#[inline(always)]
fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number in the lowest bits; 127 is the exponent's bias.
    const ROUND: f32 = (3 << 22) as f32 + 127.0;
    /// ln 2 in two parts; the first has few digits, so its products are exact.
    const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];
    let x = x.clamp(-87.0, 87.0);
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let whole = shifted - ROUND;
    let r = x - whole * LN_2[0] - whole * LN_2[1];
    let coefficients = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
    let power = coefficients.into_iter().fold(1.0 / 5040.0, |sum, term| sum * r + term);
    power * f32::from_bits(shifted.to_bits() << 23)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_is_near_that_of_the_standard_library() {
        for at in -8_700..=8_700 {
            let x = at as f32 / 100.0;
            let (found, expected) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((found / expected - 1.0).abs() < 3e-7, "exp({x}) = {found}, not {expected}");
        }
        assert_eq!((exp(0.0), exp(-1e30), exp(f32::NEG_INFINITY)), (1.0, exp(-87.0), exp(-87.0)));
        assert!(exp(f32::NAN).is_nan());
    }

    #[test]
    fn sums_have_all_terms() {
        let values: Vec<f32> = (1..=37).map(|value| value as f32).collect();
        assert_eq!((sum(&values), dot(&values, &values)), (703.0, 17_575.0));
    }

    #[test]
    fn probabilities_by_hand() {
        let mut scores = [1.0, 1.0 + 3.0f32.ln() / 2.0, f32::NEG_INFINITY];
        softmax(&mut scores, 2.0);
        for (found, expected) in scores.into_iter().zip([0.25, 0.75, 0.0]) {
            assert!((found - expected).abs() < 1e-6, "{scores:?}");
        }
    }

    #[test]
    fn losses_are_exact_where_probabilities_are_too_small() {
        let mut scores = [0.0, -300.0, 0.0];
        let loss = cross_entropy(&mut scores, 1);
        assert!((loss - 300.0 - f64::ln(2.0)).abs() < 1e-5, "{loss}");
        assert!((scores[0] - 0.5).abs() < 1e-6 && scores[1] < 1e-37, "{scores:?}");
        assert!(cross_entropy(&mut [f32::NAN, 1.0], 1).is_nan());
    }

    #[test]
    fn gelu_at_points_of_the_paper_s_formula() {
        // x/2·(1 + tanh(…)) in f64.
        for (x, expected) in [(0.0, 0.0), (1.0, 0.841_192), (-1.0, -0.158_808), (3.0, 2.996_363)] {
            assert!((gelu(&[x])[0] - expected).abs() < 1e-5, "gelu({x}) = {}", gelu(&[x])[0]);
        }
    }
}
