//! A perceptron of candle that tells the arms of spirals apart.
//!
//! [`POINTS`] and [`MLP`] are the entries that gradwire's command line takes: `--data
//! spirals/points --model spirals/mlp`. The [`Network`] is candle's own;
//! `src/bin/two_processes.rs` trains it without gradwire's trainer.

mod network;
mod points;
mod task;

pub use network::Network;
pub use points::{ARMS, POINTS, Points, points};
pub use task::MLP;
