//! Neural collaborative filtering: predicting which items a user takes.
//!
//! NeuMF of He, Liao, Zhang, Nie, Hu and Chua ("Neural collaborative filtering", WWW 2017, section
//! 3.4) with the sizes of MLPerf's reference, as in the survey of compressed communication. A user
//! u and an item i each have an embedding row: 64 values for a factorisation, then 128 for a
//! perceptron:
//!
//! ```text
//! g = u[..64] ∘ i[..64]
//! h = relu(C·relu(B·relu(A·[u[64..] i[64..]] + a) + b) + c)        256 → 256 → 128 → 64
//! score = w·[g h] + d
//! ```
//!
//! The loss is the mean over pairs of the cross-entropy of σ(score). Rows start uniform with a
//! deviation of 0.01.
//!
//! Parameters: 192·(users + items) + 107 073, in ten tensors; 31 832 577 with the 138 493 users and
//! 26 744 items of MovieLens' twenty million ratings. A step uses only the rows of its pairs, but
//! the gradient is dense, as large as the tables.

use super::architecture::Architecture;
use super::layout::{Init, Layout};
use super::{ModelError, ModelKind};
use crate::TaskKind;
use crate::matmul::{Matrix, multiply};

#[cfg(test)]
mod tests;

/// The initialisation of rows.
const INIT: Init = Init::Uniform { variance: 0.01 * 0.01 };

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub(super) struct Widths {
    /// Values of a row for the factorisation.
    pub(super) factors: usize,
    /// Values of a row for the perceptron.
    pub(super) inputs: usize,
    /// Units of the perceptron's layers.
    pub(super) layers: [usize; 3],
}

/// The sizes of MLPerf's reference.
const WIDTHS: Widths = Widths { factors: 64, inputs: 128, layers: [256, 128, 64] };

/// A model that predicts which items users take. Parameters and gradients stay outside.
#[derive(Debug)]
pub struct Recommender {
    widths: Widths,
    /// Weight and bias of each dense layer, the last scores.
    dense: [Dense; 4],
    layout: Layout,
}

/// Pairs of a user and an item.
#[derive(Debug, Clone, Copy)]
pub struct Pairs<'a> {
    /// The users.
    pub users: &'a [u32],
    /// The items, one for each user.
    pub items: &'a [u32],
}

/// A fully connected layer, and the positions of its parameters.
#[derive(Debug, Clone, Copy)]
struct Dense {
    weight: usize,
    bias: usize,
    outputs: usize,
}

/// The values of a forward pass that the backward pass needs.
struct Trace {
    /// The perceptron's inputs and the outputs of its layers, row by row.
    perceptron: Vec<Vec<f32>>,
    /// The products of factors, and the outputs of the perceptron.
    joint: Vec<f32>,
    scores: Vec<f32>,
}

impl Architecture for Recommender {
    fn layout(&self) -> &Layout {
        &self.layout
    }
}

impl Recommender {
    /// A model for this number of users and items.
    ///
    /// # Errors
    /// If `kind` is not a model of ratings.
    pub fn new(kind: ModelKind, users: usize, items: usize) -> Result<Self, ModelError> {
        match kind {
            ModelKind::Ncf => {
                let model = Self::with_widths(WIDTHS, users, items);
                model.layout.check_size()?;
                Ok(model)
            }
            _ => Err(kind.not_for(TaskKind::Ratings)),
        }
    }

    pub(super) fn with_widths(widths: Widths, users: usize, items: usize) -> Self {
        let mut layout = Layout::default();
        let row = widths.factors + widths.inputs;
        layout.parameter("users", "weight", &[users, row], INIT);
        layout.parameter("items", "weight", &[items, row], INIT);
        let [first, second, third] = widths.layers;
        let sizes = [
            ("fc1", 2 * widths.inputs, first),
            ("fc2", first, second),
            ("fc3", second, third),
            ("score", widths.factors + third, 1),
        ];
        let dense = sizes.map(|(name, inputs, outputs)| {
            let init = if name == "score" { Init::xavier(inputs) } else { Init::he(inputs) };
            let weight = layout.parameter(name, "weight", &[outputs, inputs], init);
            let bias = layout.bias(name, outputs);
            Dense { weight, bias, outputs }
        });
        // The inputs of the perceptron, the outputs of its layers, and the products of factors.
        layout.activations =
            2 * widths.inputs + widths.layers.iter().sum::<usize>() + widths.factors;
        Self { widths, dense, layout }
    }

    /// Adds the gradient of the mean cross-entropy of these pairs to `gradients` and returns that
    /// mean. `taken` says for each pair whether the user has taken the item.
    ///
    /// # Panics
    /// If lengths do not fit, there are no pairs, or a user or item does not exist.
    pub fn add_gradients(
        &self,
        parameters: &[Vec<f32>],
        pairs: Pairs<'_>,
        taken: &[bool],
        gradients: &mut [Vec<f32>],
    ) -> f64 {
        assert_eq!(pairs.users.len(), taken.len(), "each pair is taken or not");
        let Trace { perceptron, joint, scores } = self.forward(parameters, pairs);
        let scale = 1.0 / taken.len() as f32;
        let mut loss = 0.0;
        let mut gradient: Vec<f32> = Vec::with_capacity(taken.len());
        for (&score, &taken) in scores.iter().zip(taken) {
            loss += cross_entropy(score, taken);
            let probability = 1.0 / (1.0 + (-score).exp());
            gradient.push(scale * (probability - f32::from(u8::from(taken))));
        }
        let [layers @ .., last] = &self.dense;
        let joint = last.backward(parameters, &joint, &gradient, gradients);
        let (factors, mut gradient) = split(&joint, joint.len() / taken.len(), self.widths.factors);
        for (layer, ends) in layers.iter().zip(perceptron.windows(2)).rev() {
            for (gradient, output) in gradient.iter_mut().zip(&ends[1]) {
                // Relu follows each layer.
                *gradient = if *output > 0.0 { *gradient } else { 0.0 };
            }
            gradient = layer.backward(parameters, &ends[0], &gradient, gradients);
        }
        self.add_rows(parameters, pairs, &factors, &gradient, gradients);
        loss / taken.len() as f64
    }

    /// The score of each pair: the logit of taking the item.
    ///
    /// # Panics
    /// If there is no such user or item.
    pub fn scores(&self, parameters: &[Vec<f32>], pairs: Pairs<'_>) -> Vec<f32> {
        self.forward(parameters, pairs).scores
    }

    fn forward(&self, parameters: &[Vec<f32>], pairs: Pairs<'_>) -> Trace {
        assert_eq!(pairs.users.len(), pairs.items.len(), "a pair is a user and an item");
        let Widths { factors, inputs, layers } = self.widths;
        let mut first = Vec::with_capacity(pairs.users.len() * 2 * inputs);
        for (user, item) in self.rows(parameters, pairs) {
            first.extend_from_slice(&user[factors..]);
            first.extend_from_slice(&item[factors..]);
        }
        let [hidden @ .., last] = &self.dense;
        let mut perceptron = vec![first];
        for (at, dense) in hidden.iter().enumerate() {
            let mut outputs = dense.forward(parameters, &perceptron[at]);
            outputs.iter_mut().for_each(|value| *value = value.max(0.0));
            perceptron.push(outputs);
        }
        let made = perceptron[hidden.len()].chunks_exact(layers[2]);
        let mut joint = Vec::with_capacity(pairs.users.len() * (factors + layers[2]));
        for ((user, item), made) in self.rows(parameters, pairs).zip(made) {
            joint.extend(user[..factors].iter().zip(&item[..factors]).map(|(u, i)| u * i));
            joint.extend_from_slice(made);
        }
        let scores = last.forward(parameters, &joint);
        Trace { perceptron, joint, scores }
    }

    /// The rows of each pair.
    fn rows<'a>(
        &self,
        parameters: &'a [Vec<f32>],
        pairs: Pairs<'a>,
    ) -> impl Iterator<Item = (&'a [f32], &'a [f32])> {
        let width = self.widths.factors + self.widths.inputs;
        let row = move |table: &'a [f32], at: u32| &table[at as usize * width..][..width];
        let (users, items) = (&parameters[0], &parameters[1]);
        pairs.users.iter().zip(pairs.items).map(move |(u, i)| (row(users, *u), row(items, *i)))
    }

    /// Adds the gradients of the rows: of the products of factors, and of the perceptron's inputs.
    fn add_rows(
        &self,
        parameters: &[Vec<f32>],
        pairs: Pairs<'_>,
        products: &[f32],
        perceptron: &[f32],
        gradients: &mut [Vec<f32>],
    ) {
        let Widths { factors, inputs, .. } = self.widths;
        let width = factors + inputs;
        let [users, items] =
            gradients.get_disjoint_mut([0, 1]).expect("both tables have gradients");
        let ends = products.chunks_exact(factors).zip(perceptron.chunks_exact(2 * inputs));
        let places = pairs.users.iter().zip(pairs.items);
        for (((user, item), (&u, &i)), (products, inner)) in
            self.rows(parameters, pairs).zip(places).zip(ends)
        {
            for (table, at, other, inner) in
                [(&mut *users, u, item, &inner[..inputs]), (&mut *items, i, user, &inner[inputs..])]
            {
                let (first, rest) = table[at as usize * width..][..width].split_at_mut(factors);
                for ((sum, product), other) in first.iter_mut().zip(products).zip(other) {
                    *sum += product * other;
                }
                rest.iter_mut().zip(inner).for_each(|(sum, term)| *sum += term);
            }
        }
    }
}

impl Dense {
    fn forward(self, parameters: &[Vec<f32>], inputs: &[f32]) -> Vec<f32> {
        let weight = &parameters[self.weight];
        let width = weight.len() / self.outputs;
        let mut outputs = parameters[self.bias].repeat(inputs.len() / width);
        let weight = Matrix::new(weight, width).transposed();
        multiply(Matrix::new(inputs, width), weight, true, &mut outputs);
        outputs
    }

    /// Adds the gradients of weight and bias, and returns the gradient of the inputs.
    fn backward(
        self,
        parameters: &[Vec<f32>],
        inputs: &[f32],
        outputs: &[f32],
        gradients: &mut [Vec<f32>],
    ) -> Vec<f32> {
        let weight = &parameters[self.weight];
        let width = weight.len() / self.outputs;
        let outputs_of = Matrix::new(outputs, self.outputs);
        let of_weight = &mut gradients[self.weight];
        multiply(outputs_of.transposed(), Matrix::new(inputs, width), true, of_weight);
        for row in outputs.chunks_exact(self.outputs) {
            gradients[self.bias].iter_mut().zip(row).for_each(|(sum, term)| *sum += term);
        }
        let mut gradient = vec![0.0; inputs.len()];
        multiply(outputs_of, Matrix::new(weight, width), false, &mut gradient);
        gradient
    }
}

/// Each row in two: its first `at` values, and the rest.
fn split(rows: &[f32], width: usize, at: usize) -> (Vec<f32>, Vec<f32>) {
    let parts = || rows.chunks_exact(width).map(|row| row.split_at(at));
    (
        parts().flat_map(|(first, _)| first).copied().collect(),
        parts().flat_map(|(_, rest)| rest).copied().collect(),
    )
}

/// The cross-entropy, in nats, of the logit `score` of taking an item that was `taken` or not.
pub(crate) fn cross_entropy(score: f32, taken: bool) -> f64 {
    let score = f64::from(if taken { -score } else { score });
    // ln(1 + eˣ) without overflow.
    score.max(0.0) + (-score.abs()).exp().ln_1p()
}
