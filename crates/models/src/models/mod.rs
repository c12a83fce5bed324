//! The models of the papers.
//!
//! A [`Model`] classifies images, a [`Gpt`] or a [`LanguageModel`] predicts the next token of a
//! text, and a [`Recommender`] predicts which items a user takes. All compute the loss and
//! gradients of a batch, and evaluate. Parameters and gradients are flat `f32` vectors, one per
//! tensor, and stay outside: a model of images keeps only the running statistics of batch
//! normalisation, a model of text nothing.

mod alexnet;
mod architecture;
mod batch_norm;
mod cifar_cnn;
mod conv;
mod dense;
mod densenet;
mod doubling;
mod error;
mod gpt;
mod image_shape;
mod imagenet_resnet;
mod kind;
mod layout;
mod lenet5;
mod loss;
mod lstm;
mod maps;
mod max_pool;
mod mlp;
mod model;
mod ncf;
mod network;
mod operations;
#[cfg(test)]
mod order_tests;
mod pass;
mod pointwise;
mod resnet;
mod resnet9;
mod rows;
mod score;
mod statistics;
mod tanh;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod unet;
mod vgg;
mod window;

pub use architecture::Architecture;
pub use error::ModelError;
pub use gpt::{Gpt, GptConfig, Windows};
pub use image_shape::ImageShape;
pub use kind::{ModelKind, UnknownModel};
pub use layout::Layout;
pub use lstm::{Chunk, Dropout, HiddenState, LanguageModel, LstmConfig};
pub use mlp::Hidden;
pub use model::Model;
pub(crate) use ncf::cross_entropy;
pub use ncf::{Pairs, Recommender};
pub(crate) use rows::{known, names};
pub use score::Score;
pub use statistics::Statistics;
