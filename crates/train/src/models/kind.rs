//! The models by name.

use std::fmt;
use std::str::FromStr;

use super::cifar_cnn::CifarCnn;
use super::layers::Layout;
use super::lenet5::LeNet5;
use super::mlp::{Hidden, Mlp};
use super::resnet::ResNet;
use super::{ImageShape, ModelError, Network};

/// Which model: `mlp` (other than rectified layers of 300 and 100 units as `mlp:392-50,tanh`), `lenet5`
/// or `lenet5:relu`, `cifar-cnn`, or `resnet` followed by its depth 6n + 2 (`resnet20`, `resnet110`) for
/// images; `charlstm`, with other than 200 hidden units as `charlstm:64`, or `wordlstm` for text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// Fully connected layers.
    Mlp {
        /// Its hidden ones.
        hidden: Hidden,
    },
    /// Caffe's LeNet-5.
    LeNet5 {
        /// Whether rectifiers follow the convolutions.
        rectified: bool,
    },
    /// Three convolutions and a fully connected layer.
    CifarCnn,
    /// CIFAR's ResNet.
    ResNet {
        /// Blocks in each of the three stages: the n of depth 6n + 2, at least 1.
        n: usize,
    },
    /// Two layers of long short-term memory, for characters.
    CharLstm {
        /// Hidden units of each layer, at least 1.
        hidden: usize,
    },
    /// The same with 650 hidden units, for words.
    WordLstm,
}

/// A name that is no model's.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown model '{0}'; known are mlp (mlp:392-50,tanh with such hidden layers), lenet5, lenet5:relu, cifar-cnn, and resnet20, resnet32, resnet56, resnet110 or any other depth 6n+2 from 8 to 1202 for images; charlstm (charlstm:N with N hidden units, 1 to 4096) and wordlstm for text"
)]
pub struct UnknownModel(pub String);

impl ModelKind {
    /// The deepest ResNet that a name may ask for, the paper's own deepest.
    const DEEPEST: usize = 1202;
    /// Hidden units of `charlstm`.
    const HIDDEN: usize = 200;

    /// Whether it learns text, not images.
    pub fn is_for_text(self) -> bool {
        matches!(self, ModelKind::CharLstm { .. } | ModelKind::WordLstm)
    }

    /// Declares the model's parameters and makes the network that uses them.
    pub(super) fn build(self, shape: ImageShape) -> Result<(Layout, Box<dyn Network>), ModelError> {
        if shape.elements() == 0 || shape.classes < 2 {
            return Err(ModelError::Empty { shape });
        }
        let mut layout = Layout::default();
        let network: Box<dyn Network> = match self {
            ModelKind::Mlp { hidden } => Box::new(Mlp::new(&mut layout, hidden, shape)),
            ModelKind::LeNet5 { rectified } => {
                Box::new(LeNet5::new(&mut layout, rectified, shape)?)
            }
            ModelKind::CifarCnn => Box::new(CifarCnn::new(&mut layout, shape)?),
            ModelKind::ResNet { n } => Box::new(ResNet::new(&mut layout, n, shape)),
            ModelKind::CharLstm { .. } | ModelKind::WordLstm => {
                return Err(ModelError::NotForImages { model: self.to_string() });
            }
        };
        Ok((layout, network))
    }
}

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let resnet = |depth: &str| {
            let depth: usize = depth.parse().ok()?;
            let fits = (8..=Self::DEEPEST).contains(&depth) && depth % 6 == 2;
            fits.then_some(ModelKind::ResNet { n: depth / 6 })
        };
        let charlstm = |hidden: &str| {
            let hidden = hidden.parse().ok().filter(|hidden| (1..=4096).contains(hidden))?;
            Some(ModelKind::CharLstm { hidden })
        };
        let mlp = |hidden: &str| Some(ModelKind::Mlp { hidden: hidden.parse().ok()? });
        match name {
            "mlp" => Ok(ModelKind::Mlp { hidden: Hidden::default() }),
            "lenet5" => Ok(ModelKind::LeNet5 { rectified: false }),
            "lenet5:relu" => Ok(ModelKind::LeNet5 { rectified: true }),
            "cifar-cnn" => Ok(ModelKind::CifarCnn),
            "charlstm" => Ok(ModelKind::CharLstm { hidden: Self::HIDDEN }),
            "wordlstm" => Ok(ModelKind::WordLstm),
            _ => name
                .strip_prefix("resnet")
                .and_then(resnet)
                .or_else(|| name.strip_prefix("charlstm:").and_then(charlstm))
                .or_else(|| name.strip_prefix("mlp:").and_then(mlp))
                .ok_or_else(|| UnknownModel(name.to_owned())),
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelKind::Mlp { hidden } if *hidden == Hidden::default() => f.write_str("mlp"),
            ModelKind::Mlp { hidden } => write!(f, "mlp:{hidden}"),
            ModelKind::LeNet5 { rectified: false } => f.write_str("lenet5"),
            ModelKind::LeNet5 { rectified: true } => f.write_str("lenet5:relu"),
            ModelKind::CifarCnn => f.write_str("cifar-cnn"),
            ModelKind::ResNet { n } => write!(f, "resnet{}", 6 * n + 2),
            ModelKind::CharLstm { hidden: Self::HIDDEN } => f.write_str("charlstm"),
            ModelKind::CharLstm { hidden } => write!(f, "charlstm:{hidden}"),
            ModelKind::WordLstm => f.write_str("wordlstm"),
        }
    }
}
