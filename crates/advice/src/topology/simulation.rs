//! The step of a plan: compression, messages and the backward pass.

use std::sync::Arc;

use gradwire::Tensor;
use gradwire_exchange::Exchange;

use super::hardware::Hardware;
use super::kernels::Kernels;
use super::method::Method;
use super::phases::Phase;
use super::plan::{Levels, Plan, Transport};
use super::ranks::Topology;
use crate::timeline::{Taken, step_of};
use crate::{Bucket, Recording};

/// A training step on a topology.
#[derive(Debug, Clone)]
pub struct Simulation<'a> {
    /// The tensors, the step's time, and when gradients become ready.
    pub(super) recording: &'a Recording<'a>,
    /// The nodes and their links.
    pub(super) topology: Topology,
    /// The GPUs.
    pub(super) hardware: Hardware,
    buckets: Arc<[Bucket]>,
    /// Bytes of a gradient's element, in the mean.
    element_bytes: f64,
}

/// A model of this many parameters, in buckets of `bucket` elements, at least 1. Gradients become
/// ready during the last `backward` seconds of a step.
pub fn model(
    parameters: usize,
    bucket: usize,
    step_seconds: f64,
    backward: f64,
) -> Recording<'static> {
    let rest = parameters % bucket;
    let sizes = std::iter::repeat_n(bucket, parameters / bucket).chain((rest > 0).then_some(rest));
    let tensors = sizes.enumerate().map(|(at, size)| Tensor::new(format!("t{at}"), &[size]));
    Recording::untimed(tensors.collect(), Vec::new(), step_seconds, backward)
}

/// The elements of a bucket of DistributedDataParallel: 25 MiB of `f32`. A model of smaller buckets
/// joins them to this size.
pub const BUCKET: usize = 25 << 18;

impl<'a> Simulation<'a> {
    /// A step of a recorded model, whose gradients are not needed, between nodes of these GPUs.
    pub fn new(recording: &'a Recording<'a>, topology: Topology, hardware: Hardware) -> Self {
        let element_bytes = recording.bytes() as f64 / recording.elements().max(1) as f64;
        let buckets = recording.buckets().into();
        Self { recording, topology, hardware, buckets, element_bytes }
    }

    /// The same step between other nodes.
    pub fn at(&self, topology: Topology) -> Self {
        Self { topology, ..self.clone() }
    }

    /// Gradients as they are, in their recorded type; `f32` if none are recorded.
    pub fn none(&self) -> Method {
        Method::none(8.0 * self.element_bytes)
    }

    /// A figure of each bucket, which depends on the number of its elements.
    fn of_buckets<T: Copy>(&self, figure: impl Fn(f64) -> T) -> impl Iterator<Item = T> {
        // Most buckets are as long as the one before.
        let mut known: Option<(usize, T)> = None;
        self.buckets.iter().map(move |bucket| {
            let elements = bucket.elements(self.recording);
            let (_, found) = *match &mut known {
                Some(known) if known.0 == elements => known,
                other => other.insert((elements, figure(elements as f64))),
            };
            found
        })
    }

    /// The seconds of a step that averages all gradients by a plan. With local steps, the mean over
    /// the steps of a round, whose exchange follows its last step.
    pub fn step_seconds(&self, method: &Method, plan: &Plan) -> f64 {
        let every = method.spec.every() as f64;
        if every > 1.0 {
            let round = self.bucket(method, plan, self.recording.elements() as f64).seconds;
            return self.recording.step_seconds + round / every;
        }
        let taken = self.of_buckets(|elements| self.bucket(method, plan, elements));
        step_of(self.recording, &self.buckets, taken)
    }

    /// The bytes of a step in the busier direction of a rank's link inside its node, and of a
    /// node's link to other nodes.
    pub fn bytes(&self, method: &Method, plan: &Plan) -> [f64; 2] {
        let of = |elements| {
            let phases = self.phases(method, plan, elements);
            let sum = |bytes: fn(&Phase) -> f64| phases.iter().map(bytes).sum::<f64>();
            [sum(|phase| phase.inside), sum(|phase| phase.between)]
        };
        let all = self.of_buckets(of).fold([0.0; 2], |all, one| [all[0] + one[0], all[1] + one[1]]);
        all.map(|bytes| bytes / method.spec.every() as f64)
    }

    /// The seconds for which compression keeps the GPU, or the host's core, busy in a step.
    pub fn codec_seconds(&self, method: &Method, plan: &Plan) -> f64 {
        let busy = self.of_buckets(|elements| self.work(method, plan, elements).busy);
        busy.sum::<f64>() / method.spec.every() as f64
    }

    /// The phases of the exchange of some elements.
    fn phases(&self, method: &Method, plan: &Plan, elements: f64) -> Vec<Phase> {
        let message = method.message(plan.transport);
        plan.phases(&self.topology, message, elements, self.element_bytes * elements)
    }

    /// The time of the exchange of some elements.
    fn bucket(&self, method: &Method, plan: &Plan, elements: f64) -> Taken {
        let on_the_device = plan.transport == Transport::Device;
        let Hardware { device_message, host_message, .. } = self.hardware;
        let a_message = if on_the_device { device_message } else { host_message };
        let phases = self.phases(method, plan, elements);
        let wire: f64 = phases.iter().map(|one| one.seconds(&self.topology, a_message)).sum();
        let work = self.work(method, plan, elements);
        Taken {
            seconds: f64::max(work.busy + wire, work.launches),
            delay: if on_the_device { work.busy } else { 0.0 },
        }
    }

    /// The time of compressing and adding.
    fn work(&self, method: &Method, plan: &Plan, elements: f64) -> Work {
        let own = elements * plan.share(&self.topology);
        let group = plan.group(&self.topology) as f64;
        // The elements of each compression, and of each addition.
        let (compressed, added) = match plan.exchange {
            Exchange::AllGather => (vec![own], vec![group * own]),
            Exchange::ScatterReduce => (vec![own, own / group], vec![own, own]),
            _ => (vec![own], vec![own]),
        };
        let sum = |elements: &[f64]| elements.iter().sum::<f64>();
        match (plan.transport, method.kernels) {
            (Transport::Device, None) => Work { busy: 0.0, launches: 0.0 },
            (Transport::Device, Some(Kernels { compress, add })) => Work {
                busy: self.hardware.slower
                    * (compress.busy(sum(&compressed)) + add.busy(sum(&added))),
                launches: compressed.len() as f64 * compress.launch
                    + added.len() as f64 * add.launch,
            },
            (Transport::Host, _) => {
                let codec = sum(&compressed) * method.host.compress + sum(&added) * method.host.add;
                // To main memory and back. The mean of a node is in `f32`.
                let width = if plan.levels == Levels::Two { 4.0 } else { self.element_bytes };
                let copies = 2.0 * width * own / self.hardware.copy;
                Work { busy: codec + copies, launches: 0.0 }
            }
        }
    }
}

/// The time of compressing and adding.
struct Work {
    /// Seconds for which the GPU, or the host's core, is busy.
    busy: f64,
    /// Seconds that launches take, ahead of the GPU.
    launches: f64,
}

#[cfg(test)]
mod tests;
