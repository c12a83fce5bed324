//! Update rules on flat parameters, for workers and parameter servers alike.
//!
//! Each optimizer applies one rule to all tensors; every tensor has separate state. Weight decay is
//! the ℓ2 penalty of the papers reproduced here: `weight_decay · parameter` is added to the
//! gradient of every tensor, biases and batch norm included, before the rule is applied. AdamW and
//! Muon decay only tensors of two or more dimensions, including embeddings and convolutions, by
//! `learning rate · weight_decay`, separately from the gradient.

mod adagrad;
mod adam;
mod kind;
mod momentum;
mod muon;
mod per_tensor;
mod rmsprop;
mod sgd;
#[cfg(test)]
mod tests;

pub use adagrad::AdaGradConfig;
pub use adam::AdamConfig;
pub use kind::OptimizerKind;
pub use momentum::MomentumConfig;
pub use muon::MuonConfig;
pub use rmsprop::RmsPropConfig;
