//! The network, written with candle.

use candle_core::{D, Device, Result, Tensor, Var};
use gradwire::Rng;

use crate::points::ARMS;

/// Three layers, with rectifiers between them.
#[derive(Debug, Clone, Copy)]
pub struct Network {
    /// The units of both hidden layers.
    pub hidden: usize,
}

impl Network {
    /// Inputs and outputs of each layer.
    fn layers(self) -> [[usize; 2]; 3] {
        [[2, self.hidden], [self.hidden, self.hidden], [self.hidden, ARMS]]
    }

    /// The names and shapes of the parameters: weights and biases, layer by layer.
    pub fn tensors(self) -> Vec<gradwire::Tensor> {
        let layer = |(at, [inputs, outputs]): (usize, [usize; 2])| {
            let named = |name: &str, shape: &[usize]| {
                gradwire::Tensor::new(format!("layer{at}.{name}"), shape)
            };
            [named("weight", &[inputs, outputs]), named("bias", &[outputs])]
        };
        self.layers().into_iter().enumerate().flat_map(layer).collect()
    }

    /// Initial values: weights with variance 2 / inputs, biases of 0.
    pub fn initial_parameters(self, seed: u64) -> Vec<Vec<f32>> {
        let layer = |(at, [inputs, outputs]): (usize, [usize; 2])| {
            let mut rng = Rng::new(seed, at as u64, 0, 0, 0);
            let deviation = (2.0 / inputs as f32).sqrt();
            let weights = (0..inputs * outputs).map(|_| deviation * rng.normal()).collect();
            [weights, vec![0.0; outputs]]
        };
        self.layers().into_iter().enumerate().flat_map(layer).collect()
    }

    /// Variables of candle with these values.
    pub fn variables(self, parameters: &[Vec<f32>]) -> Result<Vec<Var>> {
        let variable = |(values, tensor): (&Vec<f32>, gradwire::Tensor)| {
            Var::from_slice(values, tensor.shape(), &Device::Cpu)
        };
        parameters.iter().zip(self.tensors()).map(variable).collect()
    }

    /// A row of scores for each point.
    pub fn scores(self, variables: &[Var], points: &[[f32; 2]]) -> Result<Tensor> {
        let mut values =
            Tensor::from_slice(points.as_flattened(), (points.len(), 2), &Device::Cpu)?;
        let last = variables.len() / 2 - 1;
        for (at, layer) in variables.chunks(2).enumerate() {
            values = values.matmul(&layer[0])?.broadcast_add(&layer[1])?;
            values = if at < last { values.relu()? } else { values };
        }
        Ok(values)
    }

    /// The mean cross-entropy of the points' arms.
    pub fn loss(self, scores: &Tensor, arms: &[u32]) -> Result<Tensor> {
        let arms = Tensor::from_slice(arms, (arms.len(), 1), &Device::Cpu)?;
        let of_arms = scores.gather(&arms, 1)?.squeeze(1)?;
        (scores.log_sum_exp(D::Minus1)? - of_arms)?.mean_all()
    }
}
