//! Update rules on flat parameters, for workers and parameter servers alike.
//!
//! Each optimizer is a rule for one tensor, generic over which tensor it is; [`PerTensor`] gives every
//! tensor its own state and adds weight decay. Decay is the ℓ2 penalty of the papers reproduced here:
//! `weight_decay · parameter` is added to the gradient of every tensor, biases and batch norm
//! included, before the rule sees it.

mod adagrad;
mod adam;
mod kind;
mod momentum;
mod rmsprop;
mod rule;
mod sgd;

#[cfg(test)]
mod tests;

pub use adagrad::{AdaGrad, AdaGradConfig};
pub use adam::{Adam, AdamConfig};
pub use kind::{OptimizerError, OptimizerKind};
pub use momentum::{Momentum, MomentumConfig};
pub use rmsprop::{RmsProp, RmsPropConfig};
pub use rule::{PerTensor, Rule};
pub use sgd::Sgd;
