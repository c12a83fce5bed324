//! Exchange of compressed tensors between the ranks of a training run.
//!
//! A [`Transport`] moves bytes between ranks and counts them; an [`Exchange`] is one rank's end of a
//! strategy written over it: it takes this rank's gradients and leaves the same updated parameters
//! on every rank, bit for bit. [`launch`] builds all ends of a run inside one process.
//!
//! Local steps (`every` in a spec) are the trainer's: it sums the gradients of so many steps and
//! calls [`Exchange::step`] with the sum.

mod agreement;
mod all_gather;
mod all_reduce;
mod codec;
mod collective;
mod digest;
mod elements;
mod error;
mod exchange;
mod fused;
mod launch;
mod ledger;
mod link;
mod optimizer;
mod policy;
mod scatter_reduce;
mod server;
mod setup;
mod strategy;
mod transport;

pub use all_gather::AllGather;
pub use all_reduce::AllReduce;
pub use collective::{Average, Collective, Round};
pub use digest::digest;
pub use error::ExchangeError;
pub use exchange::{Exchange, StepReport};
pub use launch::{Launched, Servers, launch};
pub use ledger::Traffic;
pub use link::{Link, StepBytes};
pub use optimizer::Optimizer;
pub use policy::Policy;
pub use scatter_reduce::ScatterReduce;
pub use server::{Server, ServerReport, Worker, assign};
pub use setup::Setup;
pub use strategy::{Strategy, StrategyError};
pub use transport::{HEADER_BYTES, Header, Operation, Phase, Transport, in_process};
