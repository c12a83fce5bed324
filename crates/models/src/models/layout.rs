//! The parameters that a network declares, and their initial values.

use std::hint::black_box;

use gradwire::{Rng, memory};

use super::ModelError;

/// The random stream of initial parameters.
const STREAM: u32 = 0x696e_6974;

/// How a parameter is initialised.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Init {
    /// Every element the same.
    Constant(f32),
    /// Uniform in ±√(3·variance).
    Uniform {
        /// The variance of the distribution.
        variance: f32,
    },
}

impl Init {
    /// He et al. 2015: variance 2 / fan-in, for weights before a rectifier.
    pub(crate) fn he(fan_in: usize) -> Self {
        Init::Uniform { variance: 2.0 / fan_in as f32 }
    }

    /// Variance 0.65 / fan-in, for weights before a rectifier and max-pooling. Pooling takes the
    /// largest of four values. If they are independent and normal, the mean square after the
    /// rectifier is 1/0.65 of their variance; without pooling it is half their variance, hence He's
    /// 2. With He's variance each such layer would triple the scores' variance.
    fn pooled(fan_in: usize) -> Self {
        Init::Uniform { variance: 0.65 / fan_in as f32 }
    }

    /// Glorot and Bengio 2010 in Caffe's form: variance 1 / fan-in, for a layer without rectifier.
    pub(crate) fn xavier(fan_in: usize) -> Self {
        Init::Uniform { variance: 1.0 / fan_in as f32 }
    }

    fn draw(self, tensor: &gradwire::Tensor, seed: u64) -> Vec<f32> {
        match self {
            Init::Constant(value) => vec![value; tensor.elements()],
            Init::Uniform { variance } => {
                let mut words = vec![0; tensor.elements()];
                Rng::new(seed, tensor.id(), 0, 0, STREAM).fill(&mut words);
                let bound = (3.0 * variance).sqrt();
                // 24 bits, centred on zero.
                let unit = |word: u32| ((word >> 8) as f32 + 0.5) * (1.0 / (1 << 23) as f32) - 1.0;
                words.into_iter().map(|word| bound * unit(word)).collect()
            }
        }
    }
}

/// The operation after a layer, which determines the initialisation of its weights.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Next {
    /// A rectifier. In all models but two this includes a rectifier before pooling, as in `vgg16`,
    /// `vgg19`, `alexnet` and `unet`.
    Relu,
    /// A rectifier, with 2×2 max-pooling before or after it: only in `lenet5:relu` and `cifar-cnn`.
    PooledRelu,
    /// Anything else.
    Linear,
}

impl Next {
    /// The initialisation of weights with this fan-in.
    pub(crate) fn init(self, fan_in: usize) -> Init {
        match self {
            Next::Relu => Init::he(fan_in),
            Next::PooledRelu => Init::pooled(fan_in),
            Next::Linear => Init::xavier(fan_in),
        }
    }
}

/// The parameters and batch normalisations of a network, in order.
#[derive(Debug, Default)]
pub struct Layout {
    /// The name and shape of each parameter.
    pub(crate) tensors: Vec<gradwire::Tensor>,
    /// The initialisation of each parameter.
    inits: Vec<Init>,
    /// The name and number of channels of each batch normalisation.
    pub(crate) norms: Vec<(String, usize)>,
    /// A lower estimate of the values that a step keeps for an image, a token or a pair.
    pub(crate) activations: usize,
}

impl Layout {
    /// Declares a parameter and returns its position.
    pub(crate) fn parameter(
        &mut self,
        layer: &str,
        name: &str,
        shape: &[usize],
        init: Init,
    ) -> usize {
        self.tensors.push(gradwire::Tensor::new(format!("{layer}.{name}"), shape));
        self.inits.push(init);
        self.inits.len() - 1
    }

    /// Declares a bias, of zeros.
    pub(crate) fn bias(&mut self, layer: &str, size: usize) -> usize {
        self.parameter(layer, "bias", &[size], Init::Constant(0.0))
    }

    /// Refuses a model whose parameters do not fit into the remaining memory.
    pub(crate) fn check_size(&self) -> Result<(), ModelError> {
        let sum = |sum: u64, tensor: &gradwire::Tensor| {
            let sizes = tensor.shape().iter().map(|&size| size as u64);
            sum.saturating_add(sizes.fold(1, u64::saturating_mul))
        };
        let parameters = self.tensors.iter().fold(0, sum);
        // The compiler may remove an allocation that is visibly unused.
        let reserves = |count| black_box(Vec::<f32>::new()).try_reserve_exact(count).is_ok();
        let fits = memory::available().is_none_or(|bytes| parameters.saturating_mul(4) <= bytes);
        match fits && usize::try_from(parameters).is_ok_and(reserves) {
            true => Ok(()),
            false => Err(ModelError::TooLarge { parameters }),
        }
    }

    /// The initial parameters of a run, a pure function of the seed.
    pub(crate) fn initial_parameters(&self, seed: u64) -> Vec<Vec<f32>> {
        self.tensors.iter().zip(&self.inits).map(|(tensor, init)| init.draw(tensor, seed)).collect()
    }
}
