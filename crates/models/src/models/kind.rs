//! The models by name.

use std::fmt;
use std::str::FromStr;

use super::alexnet::AlexNet;
use super::cifar_cnn::CifarCnn;
use super::densenet::DenseNet;
use super::imagenet_resnet::{ImageNetResNet, RESNET18, RESNET50};
use super::layers::Layout;
use super::lenet5::LeNet5;
use super::mlp::{Hidden, Mlp};
use super::network::Network;
use super::resnet::ResNet;
use super::resnet9::ResNet9;
use super::unet::UNet;
use super::vgg::{VGG16, VGG19, Vgg};
use super::{ImageShape, ModelError};
use crate::TaskKind;

/// Which model: `mlp` (other than rectified layers of 300 and 100 units as `mlp:392-50,tanh`), `lenet5`
/// or `lenet5:relu`, `cifar-cnn`, `resnet` followed by its depth 6n + 2 (`resnet20`, `resnet110`),
/// `resnet9`, `densenet40` or `vgg16` for images of CIFAR's size; `alexnet`, `resnet18`, `resnet50` or
/// `vgg19` for those of ImageNet's; `unet`, with other than 16 channels in its narrowest layer as
/// `unet:4`, for images with masks; `charlstm`, with other than 200 hidden units as `charlstm:64`, or
/// `wordlstm` for text; `ncf` for ratings.
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
        /// Blocks in each of the three stages: the n of depth 6n + 2, at least 1. Depth 50 has no name, as `resnet50`
        /// is ImageNet's.
        n: usize,
    },
    /// The ResNet of DAWNBench.
    ResNet9,
    /// DenseNet of depth 40 and growth rate 12.
    DenseNet40,
    /// VGG with 13 convolutions, for CIFAR.
    Vgg16,
    /// VGG with 16 convolutions.
    Vgg19,
    /// Five convolutions and three fully connected layers.
    AlexNet,
    /// ImageNet's ResNet of 18 layers.
    ResNet18,
    /// ImageNet's ResNet of 50 layers.
    ResNet50,
    /// A small U-Net, for images with masks.
    UNet {
        /// What the channels of all its layers are multiples of, those of the narrowest, at least 1.
        width: usize,
    },
    /// Two layers of long short-term memory, for characters.
    CharLstm {
        /// Hidden units of each layer, at least 1.
        hidden: usize,
    },
    /// The same with 650 hidden units, for words.
    WordLstm,
    /// Neural collaborative filtering, for ratings.
    Ncf,
}

/// The name of no model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "unknown model '{0}'; known are mlp (mlp:392-50,tanh with such hidden layers), lenet5, lenet5:relu, cifar-cnn, resnet20, resnet32, resnet56, resnet110 or any other depth 6n+2 from 8 to 1202 but 50, resnet9, densenet40, vgg16, and, for images of ImageNet's size, alexnet, resnet18, resnet50, vgg19; unet (unet:N with N channels in its narrowest layer, 1 to 256) for images with masks; charlstm (charlstm:N with N hidden units, 1 to 4096) and wordlstm for text; ncf for ratings"
)]
pub struct UnknownModel(pub String);

impl ModelKind {
    /// The deepest ResNet that a name may ask for, the paper's own deepest.
    const DEEPEST: usize = 1202;
    /// Hidden units of `charlstm`.
    const HIDDEN: usize = 200;

    /// What it learns from.
    pub fn task(self) -> TaskKind {
        match self {
            ModelKind::CharLstm { .. } | ModelKind::WordLstm => TaskKind::Text,
            ModelKind::UNet { .. } => TaskKind::Segmentation,
            ModelKind::Ncf => TaskKind::Ratings,
            _ => TaskKind::Images,
        }
    }

    /// The error where it should learn `task`.
    pub fn not_for(self, task: TaskKind) -> ModelError {
        ModelError::Task { model: self.to_string(), learns: self.task(), task }
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
            ModelKind::ResNet9 => Box::new(ResNet9::new(&mut layout, ResNet9::WIDTH, shape)?),
            ModelKind::DenseNet40 => Box::new(DenseNet::new(&mut layout, [12, 12], shape)?),
            ModelKind::Vgg16 => Box::new(Vgg::new(&mut layout, VGG16, shape)?),
            ModelKind::Vgg19 => Box::new(Vgg::new(&mut layout, VGG19, shape)?),
            ModelKind::AlexNet => Box::new(AlexNet::new(&mut layout, AlexNet::WIDTH, shape)?),
            ModelKind::ResNet18 => Box::new(ImageNetResNet::new(&mut layout, RESNET18, shape)),
            ModelKind::ResNet50 => Box::new(ImageNetResNet::new(&mut layout, RESNET50, shape)),
            ModelKind::UNet { width } => Box::new(UNet::new(&mut layout, width, shape)?),
            ModelKind::CharLstm { .. } | ModelKind::WordLstm | ModelKind::Ncf => {
                return Err(self.not_for(TaskKind::Images));
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
        let within =
            |size: &str, most: usize| size.parse().ok().filter(|size| (1..=most).contains(size));
        let unet = |width: &str| Some(ModelKind::UNet { width: within(width, 256)? });
        let charlstm = |hidden: &str| Some(ModelKind::CharLstm { hidden: within(hidden, 4096)? });
        let mlp = |hidden: &str| Some(ModelKind::Mlp { hidden: hidden.parse().ok()? });
        match name {
            "mlp" => Ok(ModelKind::Mlp { hidden: Hidden::default() }),
            "lenet5" => Ok(ModelKind::LeNet5 { rectified: false }),
            "lenet5:relu" => Ok(ModelKind::LeNet5 { rectified: true }),
            "cifar-cnn" => Ok(ModelKind::CifarCnn),
            "resnet9" => Ok(ModelKind::ResNet9),
            "densenet40" => Ok(ModelKind::DenseNet40),
            "vgg16" => Ok(ModelKind::Vgg16),
            "vgg19" => Ok(ModelKind::Vgg19),
            "alexnet" => Ok(ModelKind::AlexNet),
            "resnet18" => Ok(ModelKind::ResNet18),
            "resnet50" => Ok(ModelKind::ResNet50),
            "unet" => Ok(ModelKind::UNet { width: UNet::WIDTH }),
            "charlstm" => Ok(ModelKind::CharLstm { hidden: Self::HIDDEN }),
            "wordlstm" => Ok(ModelKind::WordLstm),
            "ncf" => Ok(ModelKind::Ncf),
            _ => name
                .strip_prefix("resnet")
                .and_then(resnet)
                .or_else(|| name.strip_prefix("unet:").and_then(unet))
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
            ModelKind::ResNet9 => f.write_str("resnet9"),
            ModelKind::DenseNet40 => f.write_str("densenet40"),
            ModelKind::Vgg16 => f.write_str("vgg16"),
            ModelKind::Vgg19 => f.write_str("vgg19"),
            ModelKind::AlexNet => f.write_str("alexnet"),
            ModelKind::ResNet18 => f.write_str("resnet18"),
            ModelKind::ResNet50 => f.write_str("resnet50"),
            ModelKind::UNet { width: UNet::WIDTH } => f.write_str("unet"),
            ModelKind::UNet { width } => write!(f, "unet:{width}"),
            ModelKind::CharLstm { hidden: Self::HIDDEN } => f.write_str("charlstm"),
            ModelKind::CharLstm { hidden } => write!(f, "charlstm:{hidden}"),
            ModelKind::WordLstm => f.write_str("wordlstm"),
            ModelKind::Ncf => f.write_str("ncf"),
        }
    }
}
