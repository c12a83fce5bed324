//! Checks of operations on feature maps against their definitions in f64.

use super::maps::Maps;
use super::pass::{Gradients, Pass};

/// Values without much structure: a wave of this step.
pub(super) fn wave(count: usize, step: f64) -> Vec<f32> {
    (0..count).map(|at| (at as f64 * step).sin() as f32).collect()
}

/// An operation's input, parameters and output, and the gradients of an inner product with the
/// output.
pub(super) struct Trial {
    /// The input.
    pub(super) x: Vec<f32>,
    /// The parameters.
    pub(super) parameters: Vec<Vec<f32>>,
    /// The output.
    pub(super) y: Vec<f32>,
    /// The gradient of the output: the loss is their inner product.
    pub(super) y_gradient: Vec<f32>,
    /// The gradients of the input, then of the parameters.
    pub(super) gradients: Vec<Vec<f32>>,
}

impl Trial {
    /// Runs an operation on a batch of waves.
    pub(super) fn run(
        (batch, shape): (usize, [usize; 3]),
        parameters: Vec<Vec<f32>>,
        run: impl Fn(&mut Pass<'_>, Maps) -> Maps,
    ) -> Self {
        let x = wave(batch * shape.iter().product::<usize>(), 0.7);
        let mut statistics = [super::Statistics::new(shape[0])];
        let mut pass = Pass::training(&parameters, &mut statistics);
        let (y, record) = pass.apart(|pass| run(pass, Maps::new(x.clone(), shape)));
        let y_gradient = wave(y.values().len(), 0.3);
        // Gradients are added to earlier ones.
        let mut gradients: Vec<Vec<f32>> =
            parameters.iter().map(|values| vec![1.0; values.len()]).collect();
        drop(pass);
        let of_y = Maps::new(y_gradient.clone(), y.shape);
        let of_x = record.back(of_y, &mut Gradients { all: &mut gradients, sink: None });
        gradients.iter_mut().flatten().for_each(|gradient| *gradient -= 1.0);
        gradients.insert(0, of_x.expect("the input is no constant").values().to_vec());
        Self { x, parameters, y: y.values().to_vec(), y_gradient, gradients }
    }

    /// Compares the output with `naive` of the input and the parameters, and the gradients with its
    /// slopes. `naive` has no kinks within 10⁻⁶ of them.
    pub(super) fn check(&self, naive: impl Fn(&[f64], &[Vec<f64>]) -> Vec<f64>) {
        let tensors: Vec<Vec<f64>> =
            [&self.x].into_iter().chain(&self.parameters).map(|values| wide(values)).collect();
        close(&self.y, &naive(&tensors[0], &tensors[1..]));
        let product = |tensors: &[Vec<f64>]| -> f64 {
            let y = naive(&tensors[0], &tensors[1..]);
            y.iter().zip(&self.y_gradient).map(|(y, y_gradient)| y * f64::from(*y_gradient)).sum()
        };
        for (at, found) in self.gradients.iter().enumerate() {
            let slope = |element: usize| {
                let [above, below] = [1e-6, -1e-6].map(|step| {
                    let mut moved = tensors.clone();
                    moved[at][element] += step;
                    product(&moved)
                });
                (above - below) / 2e-6
            };
            close(found, &(0..found.len()).map(slope).collect::<Vec<f64>>());
        }
    }
}

/// The same values in f64.
pub(super) fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Both are near each other, relative to the largest value, or to 1.
pub(super) fn close(found: &[f32], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    let largest = expected.iter().fold(1.0, |most: f64, x| most.max(x.abs()));
    for (at, (found, expected)) in found.iter().zip(expected).enumerate() {
        let difference = f64::from(*found) - expected;
        assert!(difference.abs() < 1e-4 * largest, "{found} for {expected} at {at}");
    }
}
