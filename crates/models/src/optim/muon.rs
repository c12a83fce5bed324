//! Muon: momentum, made orthogonal as a matrix before it is applied.
//!
//! For a matrix with gradient G: `M ← m·M + G`, `U = G + m·M`, and
//! `W ← W·(1 − lr·decay) − lr·0.2·√max(rows, columns)·O`, where O is U with all its singular values
//! brought near 1 by five Newton–Schulz steps: from `X = U/‖U‖`, `X ← a·X + (b·A + c·A²)·X` with
//! `A = X·Xᵀ` and (a, b, c) = (3.4445, −4.775, 2.0315). The factor 0.2·√max(rows, columns) gives
//! updates the size of AdamW's, so one learning rate fits all tensors. Tensors of more dimensions
//! are matrices of the first dimension by the product of the others.
//!
//! AdamW updates vectors and embeddings, which are looked up by row. A tensor is an embedding if
//! its name contains `embed`, `tokens`, `positions`, `users` or `items`.
//!
//! Deviation: Jordan et al. leave output layers to AdamW, too. Here that holds only for an output
//! that shares the weights of an embedding, as in `gpt`; other output layers are matrices like the
//! rest.
//!
//! A step takes fifteen more matrix products per matrix than training alone: 5·(4·s²·l + 2·s³)
//! operations, with s the smaller and l the larger side.
//!
//! References: Jordan et al.: "Muon: An optimizer for hidden layers in neural networks", 2024 (the
//! method and its coefficients); Liu et al.: "Muon is Scalable for LLM Training", arXiv 2502.16982,
//! 2025 (weight decay and the factor). As in the first but not the second, momentum looks ahead
//! (Nesterov).

use gradwire::Tensor;
use gradwire_bits::kernels;

use super::AdamConfig;
use super::per_tensor::{Rule, Step};

/// The settings of Muon.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MuonConfig {
    /// The momentum of matrices, in [0, 1).
    pub momentum: f32,
    /// The settings of AdamW, which updates vectors and embeddings.
    pub others: AdamConfig,
}

/// Words in the names of embeddings.
const EMBEDDINGS: [&str; 5] = ["embed", "tokens", "positions", "users", "items"];
/// The size of AdamW's updates.
const SIZE: f32 = 0.2;
/// The coefficients of a Newton–Schulz step.
const COEFFICIENTS: [f32; 3] = [3.4445, -4.775, 2.0315];
/// Newton–Schulz steps of an update.
const STEPS: usize = 5;

impl Rule for MuonConfig {
    const STATE: &[&str] = AdamConfig::STATE;
    const HAS_MOMENTUM: bool = true;
    const COUNTS_UPDATES: bool = true;

    fn decays(&self, tensor: &Tensor) -> bool {
        self.others.decays(tensor)
    }

    fn matrix(&self, tensor: &Tensor) -> Option<[usize; 2]> {
        let is_embedding = EMBEDDINGS.iter().any(|word| tensor.name().contains(word));
        match tensor.shape() {
            [rows, rest @ ..] if !rest.is_empty() && !is_embedding && tensor.elements() > 0 => {
                Some([*rows, rest.iter().product()])
            }
            _ => None,
        }
    }

    /// Matrices have no second moments.
    fn keeps(&self, tensor: &Tensor, at: usize) -> bool {
        at == 0 || self.matrix(tensor).is_none()
    }

    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]) {
        let Some([rows, columns]) = step.matrix else {
            return self.others.update(step, gradient, parameters, state);
        };
        let mut ahead = Vec::with_capacity(gradient.len());
        for (mean, gradient) in state[0].iter_mut().zip(gradient) {
            *mean = self.momentum * *mean + gradient;
            ahead.push(gradient + self.momentum * *mean);
        }
        let update = orthogonal(ahead, columns);
        let kept = 1.0 - step.learning_rate * step.decay;
        let rate = step.learning_rate * SIZE * (rows.max(columns) as f32).sqrt();
        for (parameter, update) in parameters.iter_mut().zip(update) {
            *parameter = kept * *parameter - rate * update;
        }
    }
}

/// The matrix with singular values near 1; zeros stay zeros.
fn orthogonal(mut x: Vec<f32>, columns: usize) -> Vec<f32> {
    let norm = x.iter().map(|&x| f64::from(x) * f64::from(x)).sum::<f64>().sqrt() as f32;
    if norm == 0.0 {
        return x;
    }
    x.iter_mut().for_each(|x| *x /= norm);
    let rows = x.len() / columns;
    match rows <= columns {
        true => wide(x, rows, columns),
        false => transposed(&wide(transposed(&x, columns), columns, rows), rows),
    }
}

/// The Newton–Schulz steps of a matrix with no more rows than columns.
fn wide(mut x: Vec<f32>, rows: usize, columns: usize) -> Vec<f32> {
    let [mut square, mut factor] = [vec![0.0; rows * rows], vec![0.0; rows * rows]];
    let mut next = vec![0.0; x.len()];
    let [a, b, c] = COEFFICIENTS;
    for _ in 0..STEPS {
        let by_columns = transposed(&x, columns);
        product(&by_columns, &by_columns, columns, &mut square);
        product(&square, &square, rows, &mut factor);
        factor
            .iter_mut()
            .zip(&square)
            .for_each(|(factor, square)| *factor = b * square + c * *factor);
        product(&factor, &x, rows, &mut next);
        x.iter_mut().zip(&next).for_each(|(x, next)| *x = a * *x + next);
    }
    x
}

/// `P·Q`, with P given by its `inner` columns and Q by as many rows. The same bits on every
/// machine: replicas that apply the same gradients must stay equal.
fn product(p: &[f32], q: &[f32], inner: usize, out: &mut [f32]) {
    out.fill(0.0);
    kernels::add_product(out, p, q, inner, 1.0);
}

/// The transposed matrix, copied in blocks of 16 × 16; their rows stay in the cache.
fn transposed(x: &[f32], columns: usize) -> Vec<f32> {
    const SIDE: usize = 16;
    let rows = x.len() / columns;
    let mut out = vec![0.0; x.len()];
    for top in (0..rows).step_by(SIDE) {
        for left in (0..columns).step_by(SIDE) {
            for row in top..(top + SIDE).min(rows) {
                for column in left..(left + SIDE).min(columns) {
                    out[column * rows + row] = x[row * columns + column];
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use gradwire_exchange::Optimizer;

    use super::*;
    use crate::optim::OptimizerKind;

    /// The result of the steps for one singular value. The steps treat each singular value
    /// separately.
    fn brought_near_one(mut value: f64) -> f64 {
        for _ in 0..STEPS {
            let [a, b, c] = COEFFICIENTS.map(f64::from);
            value = a * value + b * value.powi(3) + c * value.powi(5);
        }
        value
    }

    #[test]
    fn singular_values_come_near_one_and_vectors_stay() {
        // Rotations by 3/5, 4/5 on the left and 5/13, 12/13 on the right of diag(3, 0.5).
        let [p, q] =
            [[[0.6, -0.8], [0.8, 0.6]], [[5.0 / 13.0, -12.0 / 13.0], [12.0 / 13.0, 5.0 / 13.0]]];
        let product = |values: [f64; 2]| -> Vec<f64> {
            let element = |row: usize, column: usize| -> f64 {
                (0..2).map(|k| p[row][k] * values[k] * q[column][k]).sum()
            };
            (0..4).map(|at| element(at / 2, at % 2)).collect()
        };
        let norm = (9.0f64 + 0.25).sqrt();
        let expected = product([3.0, 0.5].map(|value| brought_near_one(value / norm)));
        let given: Vec<f32> = product([3.0, 0.5]).iter().map(|&x| x as f32).collect();
        for (found, expected) in orthogonal(given, 2).iter().zip(&expected) {
            assert!((f64::from(*found) - expected).abs() < 1e-4, "{found} for {expected}");
        }
        assert!(
            [3.0, 0.5].map(|v| brought_near_one(v / norm)).iter().all(|v| (0.6..1.3).contains(v))
        );
    }

    #[test]
    fn tall_matrices_are_wide_ones_transposed() {
        let wide: Vec<f32> = (0..15).map(|at| ((at * at * 7 + at) % 11) as f32 - 5.0).collect();
        let tall: Vec<f32> = (0..15).map(|at| wide[at % 3 * 5 + at / 3]).collect();
        let (wide, tall) = (orthogonal(wide, 5), orthogonal(tall, 3));
        for at in 0..15 {
            assert!((tall[at] - wide[at % 3 * 5 + at / 3]).abs() < 1e-4);
        }
        // Singular values end between 0.68 and 1.14, so rows are nearly orthonormal: squared
        // lengths are between the squares of these bounds, and products of two rows are below half
        // of the difference.
        for row in 0..3 {
            for other in 0..3 {
                let dot: f32 = (0..5).map(|at| wide[5 * row + at] * wide[5 * other + at]).sum();
                let range = if row == other { 0.45..1.31 } else { -0.43..0.43 };
                assert!(range.contains(&dot), "{row}, {other}: {dot}");
            }
        }
        assert_eq!(orthogonal(vec![0.0; 6], 3), [0.0; 6]);
    }

    fn optimizer(name: &str, shape: &[usize]) -> Box<dyn Optimizer> {
        let kind: OptimizerKind = "muon:m=0.5".parse().unwrap();
        kind.build(&[Tensor::new(name, shape)], 0.1)
    }

    #[test]
    fn two_steps_of_a_matrix_by_hand() {
        // One row: its only singular value is its norm, 5, and becomes 1 before the steps.
        let mut muon = optimizer("weight", &[1, 2]);
        let mut parameters = [1.0, 1.0];
        let one = brought_near_one(1.0) as f32;
        let size = 0.5 * 0.2 * 2f32.sqrt() * one;
        muon.update(0, 0.5, &[3.0, 4.0], &mut parameters);
        let expected = [0.95 - size * 0.6, 0.95 - size * 0.8];
        parameters.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-5));
        // M = (1.5, 2) + (−3.5, 0) = (−2, 2), and U = (−3.5, 0) + (−1, 1) = (−4.5, 1).
        muon.update(0, 0.5, &[-3.5, 0.0], &mut parameters);
        let length = (4.5f32 * 4.5 + 1.0).sqrt();
        let expected =
            [0.95 * expected[0] + size * 4.5 / length, 0.95 * expected[1] - size / length];
        parameters.iter().zip(expected).for_each(|(a, b)| assert!((a - b).abs() < 1e-5));
    }

    #[test]
    fn vectors_and_embeddings_are_adamws() {
        let adamw: OptimizerKind = "adamw".parse().unwrap();
        for (name, shape) in
            [("bias", &[4][..]), ("tokens.weight", &[2, 2]), ("embedding", &[2, 2])]
        {
            let mut expected = adamw.build(&[Tensor::new(name, shape)], 0.1);
            let mut muon = optimizer(name, shape);
            let [mut a, mut b] = [[1.0, 2.0, 3.0, 4.0]; 2];
            for gradient in [[1.0, -1.0, 0.5, 0.0], [2.0, 0.0, 0.0, 1.0]] {
                expected.update(0, 0.1, &gradient, &mut a);
                muon.update(0, 0.1, &gradient, &mut b);
            }
            assert_eq!(a, b, "{name}");
        }
    }
}
