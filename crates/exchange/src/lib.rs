//! DistributedOptimizer of compressed tensors between the ranks of a training run.
//!
//! A [`Transport`] moves bytes between ranks and counts them; an [`DistributedOptimizer`] is one rank's end of a
//! strategy written over it: it takes this rank's gradients and leaves the same updated parameters
//! on every rank, bit for bit. [`launch`] builds all ends of a run inside one process;
//! [`End::join`] builds one of them over a transport that the caller brings.
//!
//! ```
//! use gradwire::{State, StateError, Tensor};
//! use gradwire_exchange::{Optimizer, Policy, GroupConfig, Participation, in_process, launch};
//!
//! struct Sgd;
//!
//! impl Optimizer for Sgd {
//!     fn update(&mut self, _: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
//!         parameters.iter_mut().zip(gradient).for_each(|(w, g)| *w -= rate * g);
//!     }
//!     fn save(&self, _: &str, _: &mut State) {}
//!     fn restore(&mut self, _: &str, _: &State) -> Result<(), StateError> {
//!         Ok(())
//!     }
//! }
//!
//! let policy = Policy::new(&"3lc:s=1.75".parse()?);
//! let tensors = [Tensor::new("fc.weight", &[20, 50])];
//! let initial = vec![vec![0.0; 1000]];
//! let setup = GroupConfig {
//!     strategy: "server".parse()?,
//!     workers: 2,
//!     shares: &Participation::equal(2),
//!     policy: &policy,
//!     tensors: &tensors,
//!     seed: 0,
//!     initial: &initial,
//! };
//! let launched = launch(&setup, in_process::Options::default(), || Box::new(Sgd))?;
//! let threads: Vec<_> = launched
//!     .workers
//!     .into_iter()
//!     .map(|mut exchange| {
//!         let mut parameters = initial.clone();
//!         std::thread::spawn(move || {
//!             let gradients = vec![vec![1.0; 1000]];
//!             let report = exchange.step(0, 0.1, &gradients, &mut parameters)?;
//!             assert!(report.traffic.bytes_up < 300, "4 bytes an element would be 4000");
//!             Ok::<_, gradwire_exchange::ExchangeError>(parameters)
//!         })
//!     })
//!     .collect();
//! let ends: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
//! assert_eq!(ends[0].as_ref().unwrap(), ends[1].as_ref().unwrap());
//! launched.servers.join()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Local steps (`every` in a spec) are the trainer's. It calls [`DistributedOptimizer::step`] with the sum of so
//! many gradients; or, where ranks optimize on their own, with the change of the parameters over
//! those steps and with [`AddUpdate`] for the optimizer, which adds the mean change; or with the parameters
//! themselves and [`ReplaceParameters`], which takes their mean.
//!
//! A caller that has its own optimizer and learns of gradients one after the other averages them in groups of tensors:
//! [`Reducer`], and [`ReducerThread`] to do so in a thread of their own. [`Overlapped`] is the exchange made of the two.

mod agreement;
pub mod all_gather;
pub mod all_reduce;
mod buckets;
mod codec;
mod collective;
mod digest;
mod distributed_optimizer;
mod elements;
mod end;
mod ends;
mod error;
mod exchange;
mod fused;
mod gradient_sink;
mod group_config;
pub mod hierarchical;
mod launch;
mod ledger;
mod link;
mod optimizer;
mod overlapped;
mod participation;
pub mod plan;
mod policy;
mod reducer_thread;
mod report;
mod rows;
mod rule;
pub mod scatter_reduce;
pub mod server;
pub mod sparse_all_reduce;
mod state_keys;
mod transport;

pub use agreement::agree;
pub use all_gather::AllGather;
pub use all_reduce::AllReduce;
pub use buckets::{Model, OnNonFinite, Outcome, Reducer};
pub use collective::{Average, Collective, Round};
pub use digest::digest;
pub use distributed_optimizer::{DistributedOptimizer, StepReport};
pub use end::End;
pub use ends::Ends;
pub use error::ExchangeError;
pub use exchange::{Exchange, ParseExchangeError, Synchronization};
pub use gradient_sink::GradientSink;
pub use group_config::GroupConfig;
pub use hierarchical::Hierarchical;
pub use launch::{Launched, Servers, launch, launch_with};
pub use ledger::Traffic;
pub use link::{Link, StepBytes};
pub use optimizer::{AddUpdate, Optimizer, ReplaceParameters};
pub use overlapped::{Overlapped, fuse};
pub use participation::Participation;
pub use policy::Policy;
pub use reducer_thread::ReducerThread;
pub use rule::{Rule, RuleError};
pub use scatter_reduce::ScatterReduce;
pub use server::{Server, ServerReport, Worker, assign};
pub use sparse_all_reduce::SparseAllReduce;
pub use state_keys::reshard;
pub use transport::{HEADER_BYTES, Header, Operation, Phase, Transport, in_process};
