//! The benchmarks of the survey's Table 3.

use std::fmt;
use std::str::FromStr;

use super::known;
use crate::experiment::Experiment;

/// A benchmark of its Table 3 that trains on data to be had.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Row {
    /// ResNet-20 on CIFAR-10.
    #[default]
    ResNet20,
    /// DenseNet40-K12 on CIFAR-10.
    DenseNet40,
    /// The custom ResNet-9 on CIFAR-10.
    ResNet9,
    /// VGG16 on CIFAR-10.
    Vgg16,
    /// Neural collaborative filtering on MovieLens.
    Ncf,
    /// The LSTM on the Penn Treebank.
    Lstm,
    /// U-Net on images of defects.
    UNet,
}

impl Row {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ResNet20,
        Self::DenseNet40,
        Self::ResNet9,
        Self::Vgg16,
        Self::Ncf,
        Self::Lstm,
        Self::UNet,
    ];

    /// Whether it tells images apart.
    pub(super) fn is_classification(self) -> bool {
        matches!(self, Self::ResNet20 | Self::DenseNet40 | Self::ResNet9 | Self::Vgg16)
    }

    /// Model, data, epochs, optimizer and quality of the baseline, as Table 3 and section 5.1 give them.
    pub(super) fn paper(self) -> [&'static str; 5] {
        match self {
            Self::ResNet20 => ["resnet20", "cifar10-jpg", "328", "momentum", "90.86 %"],
            Self::DenseNet40 => ["densenet40", "cifar10-jpg", "328", "momentum", "92.07 %"],
            Self::ResNet9 => ["resnet9", "cifar10-jpg", "24", "momentum", "91.67 %"],
            Self::Vgg16 => ["vgg16", "cifar10-jpg", "328", "momentum", "86.32 %"],
            Self::Ncf => ["ncf", "movielens-100k", "30", "adam", "95.98 %"],
            Self::Lstm => ["wordlstm", "ptb", "25", "sgd", "100.168"],
            Self::UNet => ["unet", "magnetic-tile", "2500", "rmsprop", "96.4 %"],
        }
    }

    /// The survey's experiment: eight workers, vectors compressed too, and the optimizer it names. It gives neither
    /// batches nor learning rates.
    pub(super) fn experiment(self) -> Experiment {
        let [model, data, epochs, optimizer, _] = self.paper();
        let experiment = Experiment {
            data: data.to_owned(),
            workers: 8,
            exchange: known("all-gather"),
            raw_vectors: false,
            links_mbit: vec![100.0, 1_000.0, 10_000.0, 25_000.0],
            ..Experiment::default().suiting(known(model))
        };
        let experiment =
            Experiment { epochs: Some(known(epochs)), optimizer: known(optimizer), ..experiment };
        match self {
            Self::UNet => Experiment {
                batch: 2,
                learning_rate: known("0.001"),
                augment: Some(false),
                ..experiment
            },
            _ => experiment,
        }
    }
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::ResNet20 => "resnet20",
            Self::DenseNet40 => "densenet40",
            Self::ResNet9 => "resnet9",
            Self::Vgg16 => "vgg16",
            Self::Ncf => "ncf",
            Self::Lstm => "lstm",
            Self::UNet => "unet",
        })
    }
}

impl FromStr for Row {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|row| row.to_string() == text).ok_or_else(|| {
            let known: Vec<String> = Self::ALL.iter().map(Row::to_string).collect();
            format!("unknown row '{text}'; known ones: {}", known.join(", "))
        })
    }
}
