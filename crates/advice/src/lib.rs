//! Whether compression pays, predicted from a few recorded training steps.
//!
//! In: the gradients of some steps, and their times within a step ([`Recording`]); the number of
//! ranks, their links and cores ([`Cluster`]); compressors to try ([`Candidate`]). Out: [`Advice`],
//! with the bytes and the step time of each candidate on each link, and the bandwidth above which
//! it is slower than no compression. Its recommendation may be not to compress.
//!
//! 1. A [trial](Costs::measure) sends the recorded gradients through the real exchange between
//!    ranks in threads of this process. It counts bytes at the transport, takes the CPU time of
//!    compressing and decompressing, and measures the error that remains after error feedback.
//! 2. The [timeline](Cluster::step_seconds) puts a step together: buckets become ready during the
//!    backward pass, and one thread compresses, sends and decompresses them in this order.
//! 3. A step that was measured with an exchange, if there is one, corrects the timeline
//!    ([`MeasuredStep`]).
//! 4. [`advise`] compares the candidates with a step that averages the same buckets uncompressed.
//!
//! [`topology`] predicts steps of nodes of several ranks, with kernels on GPUs, from measured
//! speeds instead of trials.
//!
//! The prediction does not include the effect of compression on the trained model.
//! [`Candidate::doubt`] says when gradwire's own measurements call for care.
//!
//! # Layers
//!
//! | layer | modules |
//! |---|---|
//! | 6 | `topology` |
//! | 5 | `advice` |
//! | 4 | `situation` |
//! | 3 | `measured_step` |
//! | 2 | `timeline`, `trials` |
//! | 1 | `prediction`, `sums`, `trial` |
//! | 0 | `bucket_cost`, `candidate`, `crossover`, `recording` |

mod advice;
mod bucket_cost;
mod candidate;
mod crossover;
mod measured_step;
mod prediction;
mod recording;
mod situation;
mod sums;
mod timeline;
pub mod topology;
mod trial;
mod trials;

pub use advice::{Advice, advise};
pub use bucket_cost::BucketCost;
pub use candidate::{Candidate, OptimizerFamily};
pub use crossover::{ANY_LINK, Crossover};
pub use measured_step::MeasuredStep;
pub use prediction::{OnLink, Prediction, TensorAdvice};
pub use recording::{Bucket, Recording};
pub use situation::Situation;
pub use timeline::{Cluster, Messages};
pub use trial::{Costs, TensorCost};
pub use trials::{Progress, Watch};
