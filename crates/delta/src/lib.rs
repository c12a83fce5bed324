//! Lossless deltas between two versions of a model's weights.
//!
//! A trainer that ships new weights after every step changes few of them, and mostly by one unit in
//! the last place. Both ends hold the old weights, the *base*. So the positions of the changes are
//! coded within classes of the base's exponent: an optimizer's step hardly depends on a weight's
//! size, so small weights, whose last place is worth less, change far more often than large ones.
//!
//! Weights are opaque integers of 1, 2, 4 or 8 bytes ([`ElementType`]): NaN, −0 and every other
//! pattern of bits arrive as they were.

mod element;
pub mod files;
pub mod part;
mod redo;
pub mod safetensors;

pub use element::ElementType;
