//! Exchange of compressed tensors between the ranks of a training run.
//!
//! A [`Transport`] moves bytes between ranks and counts them. A [`DistributedOptimizer`] is one
//! rank's end of an exchange over a transport: it takes this rank's gradients and updates the
//! parameters. All ranks then hold the same bits, except with an asynchronous or stale server.
//! [`launch`] makes all ranks of a run inside one process; [`Role::join`] makes one of them over a
//! transport that the caller brings.
//!
//! ```
//! use gradwire::{Spec, Tensor};
//! use gradwire_exchange::{
//!     GroupConfig, Optimizer, Participation, Policy, Role, StepInput, in_process, launch,
//! };
//!
//! struct Sgd;
//!
//! impl Optimizer for Sgd {
//!     fn update(&mut self, _: usize, rate: f32, gradient: &[f32], parameters: &mut [f32]) {
//!         parameters.iter_mut().zip(gradient).for_each(|(w, g)| *w -= rate * g);
//!     }
//! }
//!
//! let policy = Policy::new("3lc:s=1.75".parse::<Spec>()?);
//! let tensors = [Tensor::new("fc.weight", &[20, 50])];
//! let initial = vec![vec![0.0; 1000]];
//! let config = GroupConfig {
//!     exchange: "server".parse()?,
//!     participation: &Participation::equal(2),
//!     policy: &policy,
//!     tensors: &tensors,
//!     seed: 0,
//!     initial: &initial,
//! };
//! let join = |transport| Role::join(transport, &config, || Box::new(Sgd));
//! let launched = launch(&config, in_process::Options::default(), join)?;
//! let threads: Vec<_> = launched
//!     .workers
//!     .into_iter()
//!     .map(|mut exchange| {
//!         let mut parameters = initial.clone();
//!         std::thread::spawn(move || {
//!             let gradients = vec![vec![1.0; 1000]];
//!             let report = exchange.step(StepInput::new(0, 0.1, &gradients), &mut parameters)?;
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
//! # Layers
//!
//! Each layer uses only the layers below it.
//!
//! | layer | what |
//! |---|---|
//! | [`Role`], [`launch`] | one rank of a run, or all ranks in one process |
//! | [`DistributedOptimizer`] | what a trainer calls: [`ReplicatedOptimizer`], or [`ServerWorker`] |
//! | [`Reducer`] | groups of tensors in, means out |
//! | [`Control`] | handshake, gather, broadcast and check: everything that is not a gradient |
//! | [`collectives`] | how a group is averaged; they own buffers and have no other state |
//! | codecs | compressor, residual and momenta of each tensor, by its name |
//! | [`Transport`], [`Link`], [`Policy`] | bytes between ranks, counted; the compressor of each tensor |
//! | [`Exchange`], [`Participation`], [`Rule`], [`CompressionSchedule`], [`Traffic`] | configuration, byte counts |
//!
//! # The path of a gradient
//!
//! The trainer passes gradients to [`DistributedOptimizer::step`], or early to a [`GradientSink`].
//! They are concatenated in the buffer of their group, which the [`Reducer`] passes to the
//! collective. The collective encodes each tensor with the codec of its name and sends the messages
//! through the [`Transport`]. It adds the decoded messages to the same buffer, in rank order. The
//! optimizer then reads the means from this buffer.
//!
//! # Local steps
//!
//! The trainer takes local steps (`every` in a spec), and then calls [`DistributedOptimizer::step`]
//! with the sum of their gradients. If ranks optimize on their own, it passes the change of the
//! parameters over these steps instead; the optimizer [`AddUpdate`] adds the mean change. Or it
//! passes the parameters themselves, and [`ReplaceParameters`] replaces them with their mean.
//!
//! # With an optimizer of your own
//!
//! A caller that has its own optimizer averages gradients with a [`Reducer`], or with a
//! [`ReducerThread`] while it computes:
//!
//! ```
//! use std::thread;
//!
//! use gradwire::{Spec, Tensor};
//! use gradwire_exchange::{OnNonFinite, Policy, Reducer, ReducerConfig, in_process};
//!
//! type Outcome = Result<(), Box<dyn std::error::Error>>;
//! let average = |transport: in_process::InProcess, gradient: &mut [f32]| -> Outcome {
//!     let config = ReducerConfig {
//!         exchange: "all-gather".parse()?,
//!         policy: Policy::new("int8".parse::<Spec>()?),
//!         tensors: vec![Tensor::new("fc.weight", &[20, 50])],
//!         seed: 0,
//!         on_non_finite: OnNonFinite::Refuse,
//!     };
//!     let mut reducer = Reducer::new(Box::new(transport), config)?;
//!     let group = reducer.form(&["fc.weight"])?;
//!     // Once a step, for each group.
//!     reducer.average(group, 0, gradient)?;
//!     Ok(reducer.flush()?)
//! };
//! // Two ranks, here threads of a process.
//! thread::scope(|scope| {
//!     let transports = in_process::connect(2, Default::default());
//!     for (rank, transport) in transports.into_iter().enumerate() {
//!         scope.spawn(move || {
//!             let mut gradient = vec![rank as f32; 1000];
//!             average(transport, &mut gradient).unwrap();
//!             assert!(gradient.iter().all(|mean| (mean - 0.5).abs() < 1e-3));
//!         });
//!     }
//! });
//! ```

mod codecs;
pub mod collectives;
mod control;
mod device;
mod digest;
mod distributed_optimizer;
mod elements;
mod error;
mod exchange;
mod group;
mod group_config;
mod launch;
pub mod laws;
mod ledger;
mod link;
mod mean;
mod optimizer;
mod participation;
pub mod patience;
mod policy;
mod reducer;
mod replicated;
mod report;
mod role;
mod rule;
pub mod schedule;
pub mod server;
mod state;
mod transport;

pub use codecs::{KeptArray, KeptFor};
pub use control::{Control, agree};
pub use device::{DeviceForms, DeviceGroup, NonFiniteElement, RoundForm};
pub use digest::digest;
pub use distributed_optimizer::{DistributedOptimizer, StepInput};
pub use error::{ExchangeError, Result};
pub use exchange::{Exchange, ExchangeFacts, ParseExchangeError, Synchronization};
pub use group::fuse;
pub use group_config::GroupConfig;
pub use launch::{Launched, Servers, launch};
pub use ledger::Traffic;
pub use link::{Link, StepBytes};
pub use optimizer::{AddUpdate, Optimizer, ReplaceParameters};
pub use participation::Participation;
pub use policy::Policy;
pub use reducer::{
    Column, GradientSink, OnNonFinite, Outcome, Reducer, ReducerConfig, ReducerThread,
};
pub use replicated::ReplicatedOptimizer;
pub use report::StepReport;
pub use role::Role;
pub use rule::{Rule, RuleError};
pub use schedule::{CompressionSchedule, RunDescription, Schedule, ScheduleError};
pub use server::{Server, ServerReport, ServerWorker, assign};
pub use state::{check_arrays, reshard, saved_as};
pub use transport::{
    Arrival, Endpoint, HEADER_BYTES, Header, Incoming, Operation, Outgoing, Phase, Transport,
    in_process,
};
