//! The models by name.

use std::fmt;
use std::str::FromStr;

use gradwire::{SpecError, printable, suggestion};

use super::gpt::GptConfig;
use super::imagenet_resnet::{RESNET18, RESNET50, imagenet_resnet};
use super::loss::Loss;
use super::lstm::LstmConfig;
use super::mlp::{Hidden, mlp};
use super::network::Builder;
use super::rows::{ROWS, Row, known, models_for, names};
use super::vgg::{VGG16, VGG19, vgg};
use super::{ImageShape, ModelError, alexnet, resnet9, unet};
use super::{cifar_cnn::cifar_cnn, densenet::densenet, lenet5::lenet5, resnet::resnet};
use crate::TaskKind;
use crate::options::OptionsError;

/// Gradwire's own models. [`ModelSpec::known`](crate::ModelSpec::known) lists their names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelKind {
    /// Fully connected layers.
    Mlp {
        /// The hidden layers.
        hidden: Hidden,
    },
    /// Caffe's LeNet-5.
    LeNet5 {
        /// Whether relu follows the convolutions.
        rectified: bool,
    },
    /// Three convolutions and a fully connected layer.
    CifarCnn,
    /// CIFAR's ResNet.
    ResNet {
        /// Blocks in each of the three stages: the n of depth 6n + 2, at least 1. Depth 50 has no
        /// name, as `resnet50` is ImageNet's.
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
        /// The channels of the narrowest layer, at least 1. The channels of every layer are a
        /// multiple of it.
        width: usize,
    },
    /// A decoder-only transformer, for text.
    Gpt(GptConfig),
    /// Two layers of long short-term memory, for characters.
    CharLstm(LstmConfig),
    /// The same, with more hidden units, for words.
    WordLstm(LstmConfig),
    /// Neural collaborative filtering, for ratings.
    Ncf,
}

/// A name that is not a model.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum UnknownModel {
    /// An unknown name.
    #[error("unknown model '{name}'{near}; known ones: {known}", name = printable(.name))]
    Name {
        /// The name.
        name: String,
        /// The names that it may stand for, as [`suggestion`](gradwire::suggestion) gives them.
        near: String,
        /// The known models, as [`ModelSpec::known`](crate::ModelSpec::known) lists them.
        known: String,
    },
    /// A model of a crate that is not part of this program.
    #[error(
        "'{name}' is a model of the crate '{krate}', which this program does not contain; use a \
         program that registers it: gradwire_cli::main_with or gradwire_models::register"
    )]
    Unlinked {
        /// The name.
        name: String,
        /// The crate.
        krate: String,
    },
    /// A model whose sizes are out of range.
    #[error("the model '{name}' is out of range: {allowed}")]
    OutOfRange {
        /// The name.
        name: String,
        /// The allowed values.
        allowed: String,
    },
    /// Sizes that a GPT or an LSTM cannot have.
    #[error(transparent)]
    Sizes(#[from] OptionsError),
    /// Parameters that a model of another crate does not have.
    #[error(transparent)]
    Parameters(#[from] SpecError),
}

impl UnknownModel {
    fn unknown(name: &str) -> Self {
        let near = suggestion(name, names());
        UnknownModel::Name { name: name.to_owned(), near, known: known() }
    }
}

impl ModelKind {
    /// The depth of the deepest ResNet, as in the paper.
    const DEEPEST: usize = 1202;
    /// The most channels of the narrowest layer of a U-Net.
    const WIDEST: usize = 256;

    /// The kind of data that it learns from.
    pub fn task(self) -> TaskKind {
        self.row().task
    }

    /// The settings that suit it: their names and texts.
    pub(crate) fn defaults(self) -> &'static [(&'static str, &'static str)] {
        self.row().defaults
    }

    fn row(self) -> &'static Row {
        let text = self.to_string();
        let name = text.split(':').next().unwrap_or_default();
        let family = name.trim_end_matches(|c: char| c.is_ascii_digit());
        let find = |id: &str| ROWS.iter().find(|row| row.id == id);
        find(name).or_else(|| find(family)).expect("every model has a row")
    }

    /// The loss that a model of images minimises.
    pub(super) fn loss(self) -> Loss {
        match self {
            ModelKind::Mlp { hidden } if hidden.squared => Loss::SquaredError,
            _ => Loss::CrossEntropy,
        }
    }

    /// The error for data of kind `task`.
    pub fn not_for(self, task: TaskKind) -> ModelError {
        let (model, learns) = (self.to_string(), self.task());
        ModelError::Task { model, learns, task, instead: models_for(task) }
    }

    /// Declares the model's parameters and layers.
    pub(super) fn build(self, shape: ImageShape) -> Result<Builder, ModelError> {
        if shape.elements() == 0 || shape.classes < 2 {
            return Err(ModelError::Empty { shape });
        }
        let least = self.least_side();
        if shape.height < least || shape.width < least {
            return Err(ModelError::TooSmall { model: self.to_string(), shape, least });
        }
        let mut net = Builder::new(shape);
        match self {
            ModelKind::Mlp { hidden } => mlp(&mut net, hidden),
            ModelKind::LeNet5 { rectified } => lenet5(&mut net, rectified),
            ModelKind::CifarCnn => cifar_cnn(&mut net),
            ModelKind::ResNet { n } => resnet(&mut net, n),
            ModelKind::ResNet9 => resnet9::resnet9(&mut net, resnet9::WIDTH),
            ModelKind::DenseNet40 => densenet(&mut net, [12, 12]),
            ModelKind::Vgg16 => vgg(&mut net, VGG16),
            ModelKind::Vgg19 => vgg(&mut net, VGG19),
            ModelKind::AlexNet => alexnet::alexnet(&mut net, alexnet::WIDTH),
            ModelKind::ResNet18 => imagenet_resnet(&mut net, RESNET18),
            ModelKind::ResNet50 => imagenet_resnet(&mut net, RESNET50),
            ModelKind::UNet { width } => {
                let fits = |side: usize| side.is_multiple_of(unet::SIDES);
                if !fits(shape.height) || !fits(shape.width) || shape.classes != 2 {
                    return Err(ModelError::Sides { model: "unet", shape, sides: unet::SIDES });
                }
                unet::unet(&mut net, width);
            }
            ModelKind::Gpt(_)
            | ModelKind::CharLstm(_)
            | ModelKind::WordLstm(_)
            | ModelKind::Ncf => {
                return Err(self.not_for(TaskKind::Images));
            }
        }
        Ok(net)
    }

    /// The smallest height and width of its images.
    fn least_side(self) -> usize {
        match self {
            ModelKind::LeNet5 { .. } => 16,
            ModelKind::CifarCnn | ModelKind::ResNet9 => 8,
            ModelKind::DenseNet40 => 4,
            ModelKind::Vgg16 | ModelKind::Vgg19 => 32,
            ModelKind::AlexNet => 63,
            _ => 1,
        }
    }
}

/// The models with names without parameters.
const NAMES: [(&str, ModelKind); 12] = [
    ("lenet5", ModelKind::LeNet5 { rectified: false }),
    ("lenet5:relu", ModelKind::LeNet5 { rectified: true }),
    ("cifar-cnn", ModelKind::CifarCnn),
    ("resnet9", ModelKind::ResNet9),
    ("densenet40", ModelKind::DenseNet40),
    ("vgg16", ModelKind::Vgg16),
    ("vgg19", ModelKind::Vgg19),
    ("alexnet", ModelKind::AlexNet),
    ("resnet18", ModelKind::ResNet18),
    ("resnet50", ModelKind::ResNet50),
    ("unet", ModelKind::UNet { width: unet::WIDTH }),
    ("ncf", ModelKind::Ncf),
];

impl FromStr for ModelKind {
    type Err = UnknownModel;

    fn from_str(name: &str) -> Result<Self, UnknownModel> {
        let within =
            |size: &str, most: usize| size.parse().ok().filter(|size| (1..=most).contains(size));
        let resnet = |depth: &str| {
            let depth: usize = depth.parse().ok()?;
            // A depth of 50 means ImageNet's network in any spelling.
            let fits = (8..=Self::DEEPEST).contains(&depth) && depth % 6 == 2 && depth != 50;
            fits.then_some(ModelKind::ResNet { n: depth / 6 })
        };
        let sized = || match name.split_once(':') {
            Some(("mlp", hidden)) => Some(ModelKind::Mlp { hidden: hidden.parse().ok()? }),
            Some(("unet", width)) => Some(ModelKind::UNet { width: within(width, Self::WIDEST)? }),
            _ if name == "mlp" => Some(ModelKind::Mlp { hidden: Hidden::default() }),
            _ => resnet(name.strip_prefix("resnet")?),
        };
        match name.split(':').next() {
            Some("gpt") => return Ok(ModelKind::Gpt(name.parse()?)),
            Some("charlstm") => return Ok(ModelKind::CharLstm(LstmConfig::CHARACTERS.read(name)?)),
            Some("wordlstm") => return Ok(ModelKind::WordLstm(LstmConfig::WORDS.read(name)?)),
            _ => {}
        }
        let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, kind)| *kind);
        named.or_else(sized).ok_or_else(|| {
            let name = name.to_owned();
            match allowed_sizes(&name) {
                Some(allowed) => UnknownModel::OutOfRange { name, allowed },
                None => UnknownModel::unknown(&name),
            }
        })
    }
}

/// The allowed sizes of a model, for a name of its form.
fn allowed_sizes(name: &str) -> Option<String> {
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    match name.split_once(':') {
        Some(("mlp", hidden)) => {
            let sizes = hidden.split_once(',').map_or(hidden, |(sizes, _)| sizes);
            let fits = hidden.len() == sizes.len() || hidden[sizes.len()..].starts_with(",tanh");
            (fits && sizes.split('-').all(is_number)).then(Hidden::allowed)
        }
        Some(("unet", width)) => {
            is_number(width).then(|| format!("give 1 to {} channels", ModelKind::WIDEST))
        }
        _ => is_number(name.strip_prefix("resnet")?).then(|| {
            format!(
                "give a depth 6n+2 from 8 to {} except 50, or resnet9, resnet18 or resnet50",
                ModelKind::DEEPEST
            )
        }),
    }
}

impl fmt::Display for ModelKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = NAMES.iter().find(|(_, kind)| kind == self) {
            return f.write_str(name);
        }
        match self {
            ModelKind::Mlp { hidden } if *hidden == Hidden::default() => f.write_str("mlp"),
            ModelKind::Mlp { hidden } => write!(f, "mlp:{hidden}"),
            ModelKind::ResNet { n } => write!(f, "resnet{}", 6 * n + 2),
            ModelKind::Gpt(config) => config.fmt(f),
            ModelKind::UNet { width } => write!(f, "unet:{width}"),
            ModelKind::CharLstm(config) => config.print(f, "charlstm", LstmConfig::CHARACTERS),
            ModelKind::WordLstm(config) => config.print(f, "wordlstm", LstmConfig::WORDS),
            named => unreachable!("{named:?} has a name"),
        }
    }
}
