//! Machines of several ranks: predicted step times without a recording of the exchange.
//!
//! A [`Topology`] has N nodes of k ranks, n = N·k in all: a link inside of each rank, and one link
//! between nodes for each node, which its ranks share. A [`Plan`] is an exchange, flat or on two
//! levels, with its transport. A [`Method`] is a compressor with the bytes of its messages and the
//! speeds of its kernels. [`Simulation`] puts a step together from them, with the timeline of
//! [`Cluster`](crate::Cluster): buckets are exchanged one after the other as they become ready.
//!
//! # Bytes
//!
//! b(d) are the bytes of a message of d elements: bits·d/8 and a constant. d is the size of a
//! bucket, and g are the bytes of its gradients. Each phase below waits for the one before it. It
//! takes as long as the slower of the two links, and its latencies. All figures are of one
//! direction of the busiest link.
//!
//! | plan | phase | inside, a rank | between, a node | latencies |
//! |---|---|---|---|---|
//! | all-reduce, flat | 1 | 2·b(d)·(n − 1)/n | 2·b(d)·(N − 1)/N | twice ⌈log₂ k⌉ inside, ⌈log₂ N⌉ between |
//! | all-gather, flat, device | 1 | (n − 1)·b(d) | (n − 1)·b(d) | ⌈log₂ k⌉, ⌈log₂ N⌉ |
//! | all-gather, flat, host | 1 | (k − 1)·b(d) | k·(n − k)·b(d) | 1, 1 |
//! | scatter-reduce, flat | 1, to the owners | (k − 1)·b(d/n) | k·(n − k)·b(d/n) | 1, 1 |
//! | | 2, to all | as all-gather of b(d/n) | | |
//! | two levels | 1, reduce inside | g·(k − 1)/k | 0 | ⌈log₂ k⌉ inside |
//! | | then, each rank its slice | 0 | k columns of d/k elements, N ranks each | as above |
//! | | last, gather inside | g·(k − 1)/k | 0 | ⌈log₂ k⌉ inside |
//! | sites | each rank its shard | 0 | k columns of d/k elements, N ranks each | as above |
//!
//! The framework's collectives (NCCL) get the benefit of the doubt, because compression is compared
//! with them: an all-reduce reduces inside a node before anything leaves the node, gathers send
//! along a ring, and both wait as a tree does. The host transport sends each message to each
//! receiver; so does an all-to-all of the device transport. So a flat scatter-reduce of the host
//! transport sends 2·k·b(d)·(N − 1)/N through the link of a node, and two levels send 1/k of it.
//! With k = 1 both are flat, and a worker's bytes are those of `docs/exchanges.md`. Messages to
//! several receivers cost a constant time each.
//!
//! # Time of compression
//!
//! D elements (d, or d/k on two levels and at sites) are compressed for a group of G ranks (n, or
//! N). An all-gather compresses D and adds G·D elements. A scatter-reduce compresses D and, as
//! the owner of a slice, D/G elements, and adds D elements twice.
//!
//! - **Device**: kernels take the time of their elements at the measured speed, and delay the
//!   backward pass, which uses the same GPU, by this time. Launches run ahead of the GPU, which
//!   computes or waits for messages meanwhile: a bucket takes the time of its kernels and
//!   messages, and at least the time of its launches.
//! - **Host**: D elements are copied to main memory and back, in `f32` on two levels and otherwise
//!   in the type of the gradients, and a core of each rank's own compresses them. Nothing delays
//!   the backward pass.
//!
//! # What is not modelled
//!
//! Jitter and slow ranks; congestion in the network between nodes; memory; other traffic on the
//! links, such as that of FSDP2 inside a site; and the effect of compression on the trained model.

mod advice;
mod hardware;
mod kernels;
mod method;
mod phases;
mod picture;
mod plan;
mod published;
mod ranks;
mod simulation;

pub use advice::{Comparison, MARGIN, TopologyAdvice, advise_topology};
pub use hardware::Hardware;
pub use method::{Codec, Method};
pub use phases::{Message, Phase};
pub use picture::{NODES, PCIE, Picture, SITES};
pub use plan::{Levels, Plan, Transport};
pub use published::{Published, published};
pub use ranks::Topology;
pub use simulation::{BUCKET, Simulation, model};
