//! The models by name.

use std::fmt;
use std::str::FromStr;

use super::layers::Layout;
use super::lenet5::LeNet5;
use super::mlp::Mlp;
use super::resnet::ResNet;
use super::{ImageShape, ModelError, Network};

/// Which model: `mlp`, `lenet5`, or `resnet` followed by its depth 6n + 2 (`resnet20`, `resnet110`) for
/// images; `charlstm`, with other than 200 hidden units as `charlstm:64`, or `wordlstm` for text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// 300 and 100 hidden units.
    Mlp,
    /// Caffe's LeNet-5.
    LeNet5,
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
    "unknown model '{0}'; known are mlp, lenet5, and resnet20, resnet32, resnet56, resnet110 or any other depth 6n+2 from 8 to 1202 for images; charlstm (charlstm:N with N hidden units, 1 to 4096) and wordlstm for text"
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
            ModelKind::Mlp => Box::new(Mlp::new(&mut layout, shape)),
            ModelKind::LeNet5 => Box::new(LeNet5::new(&mut layout, shape)?),
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
        match name {
            "mlp" => Ok(ModelKind::Mlp),
            "lenet5" => Ok(ModelKind::LeNet5),
            "charlstm" => Ok(ModelKind::CharLstm { hidden: Self::HIDDEN }),
            "wordlstm" => Ok(ModelKind::WordLstm),
            _ => name
                .strip_prefix("resnet")
                .and_then(resnet)
                .or_else(|| name.strip_prefix("charlstm:").and_then(charlstm))
                .ok_or_else(|| UnknownModel(name.to_owned())),
        }
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ModelKind::Mlp => f.write_str("mlp"),
            ModelKind::LeNet5 => f.write_str("lenet5"),
            ModelKind::ResNet { n } => write!(f, "resnet{}", 6 * n + 2),
            ModelKind::CharLstm { hidden: Self::HIDDEN } => f.write_str("charlstm"),
            ModelKind::CharLstm { hidden } => write!(f, "charlstm:{hidden}"),
            ModelKind::WordLstm => f.write_str("wordlstm"),
        }
    }
}
