//! The time of a step, assembled from its parts.
//!
//! Gradients become ready during the backward pass. One thread processes the buckets in this order:
//! it compresses a bucket, sends it, waits for the other ranks and decompresses. The optimizer
//! begins when the backward pass and this thread are done. If no core is free for the thread, its
//! CPU time delays the rest of the backward pass by as much.
//!
//! In each phase of gradwire's exchange a rank sends to all others at once, and waits for the
//! link's latency once. The framework's own all-reduce is a ring, as in gloo: each of n ranks sends
//! 2(n − 1) times to the next one, and waits for the latency each time.

use gradwire_exchange::Link;

use crate::{Bucket, BucketCost, Recording};

/// The ranks of a run, their links and their cores.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Ranks of the run.
    pub ranks: usize,
    /// Whether a core of this machine is free for compression while the others compute.
    pub spare_core: bool,
    /// The number of ranks on this machine divided by its cores, at least 1: the factor by which
    /// CPU times grow.
    pub crowding: f64,
    /// Seconds by which a step becomes longer when ranks exchange almost empty messages: ranks wait
    /// for the slowest rank, and threads for cores.
    pub synchronization: f64,
    /// Seconds to add to a step that compresses and exchanges, according to a measured step; see
    /// [`MeasuredStep`](crate::MeasuredStep). May be negative.
    pub correction: f64,
    /// The possible error of measured step times in seconds; 0 if none was measured.
    pub noise: f64,
    /// The link on which messages were measured. Messages may use a different part of another
    /// link's bandwidth.
    pub link: Option<Link>,
    /// gradwire's messages.
    pub messages: Messages,
    /// The training framework's own all-reduce.
    pub plain: Messages,
    /// Seconds per byte to copy gradients to main memory and back; 0 if they are in main memory.
    pub staging: f64,
}

/// The cost of messages apart from the time of their bytes on the link.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Messages {
    /// The seconds of an almost empty message, including the hand-over between threads; an
    /// all-reduce counts as one message.
    pub overhead: f64,
    /// The additional seconds of a message of 64 KiB or more, until TCP sends as fast as the link;
    /// shorter messages take a proportional part.
    pub start: f64,
    /// The part of the [measured link](Cluster::link)'s bandwidth that they use, more than 0 and at
    /// most 1.
    pub efficiency: f64,
}

/// The bytes of a message that takes the whole [`Messages::start`].
const LONG: f64 = 65_536.0;

impl Messages {
    /// Messages without other costs.
    pub const FREE: Self = Self { overhead: 0.0, start: 0.0, efficiency: 1.0 };

    /// The seconds that a rank takes to send and receive a bucket, in this number of phases and
    /// latencies.
    fn seconds(self, cost: BucketCost, [phases, latencies]: [f64; 2], link: Link) -> f64 {
        let busiest = cost.up.max(cost.down);
        let start = self.start * (busiest / phases.max(1.0) / LONG).min(1.0);
        8.0 * busiest / (self.efficiency * link.bits_per_second)
            + phases * (self.overhead + start)
            + latencies * link.latency.as_secs_f64()
    }
}

impl Cluster {
    /// One rank per machine, with a free core and no overhead.
    pub fn of(ranks: usize) -> Self {
        Self {
            ranks,
            spare_core: true,
            crowding: 1.0,
            synchronization: 0.0,
            correction: 0.0,
            noise: 0.0,
            link: None,
            messages: Messages::FREE,
            plain: Messages::FREE,
            staging: 0.0,
        }
    }

    /// The cluster for links of all bandwidths: without the measurements of one link, and without a
    /// negative correction, because no compression makes a step shorter than its parts.
    pub(crate) fn on_other_links(&self) -> Self {
        Self { link: None, correction: self.correction.max(0.0), ..self.clone() }
    }

    /// The costs of messages on a link.
    fn on(&self, link: Link, messages: Messages) -> Messages {
        let measured = self.link == Some(link);
        Messages { efficiency: if measured { messages.efficiency } else { 1.0 }, ..messages }
    }

    /// The seconds of a training step that exchanges all buckets, with gradwire or, if `plain`,
    /// with the framework's own all-reduce of uncompressed gradients.
    pub fn step_seconds(
        &self,
        recording: &Recording<'_>,
        costs: &[BucketCost],
        link: Link,
        plain: bool,
    ) -> f64 {
        let messages = self.on(link, if plain { self.plain } else { self.messages });
        let taken = |bucket: &Bucket, cost: BucketCost| {
            if plain {
                // A ring, which is measured as one message.
                let latencies = 2.0 * (self.ranks as f64 - 1.0);
                return Taken {
                    seconds: messages.seconds(cost, [1.0, latencies], link),
                    delay: 0.0,
                };
            }
            let work = self.work(cost, bucket.bytes(recording));
            let seconds = work + messages.seconds(cost, [cost.phases; 2], link);
            Taken { seconds, delay: if self.spare_core { 0.0 } else { work } }
        };
        let buckets = recording.buckets();
        let taken = buckets.iter().zip(costs).map(|(bucket, &cost)| taken(bucket, cost));
        let step = step_of(recording, &buckets, taken) + self.synchronization;
        if plain { step } else { f64::max(step + self.correction, recording.step_seconds) }
    }

    /// The seconds of one round that sends all buckets, in one message, after the step has ended.
    pub fn round_seconds(
        &self,
        recording: &Recording<'_>,
        costs: &[BucketCost],
        link: Link,
    ) -> f64 {
        let sum = |field: fn(&BucketCost) -> f64| costs.iter().map(field).sum();
        let all = BucketCost {
            compress: sum(|cost| cost.compress),
            decompress: sum(|cost| cost.decompress),
            up: sum(|cost| cost.up),
            down: sum(|cost| cost.down),
            phases: costs.iter().map(|cost| cost.phases).fold(0.0, f64::max),
        };
        self.work(all, recording.bytes())
            + self.on(link, self.messages).seconds(all, [all.phases; 2], link)
            + self.synchronization
    }

    /// The seconds a core works on a bucket. `bytes` is the size of its gradients, which are copied
    /// to main memory and back.
    fn work(&self, cost: BucketCost, bytes: usize) -> f64 {
        self.crowding * (cost.compress + cost.decompress) + self.staging * 2.0 * bytes as f64
    }
}

/// The time that the exchange of a bucket takes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Taken {
    /// Seconds from its start to its end.
    pub(crate) seconds: f64,
    /// Seconds by which it delays the backward pass.
    pub(crate) delay: f64,
}

/// The seconds of a step whose buckets are exchanged one after the other as they become ready.
/// `taken` has an item for each bucket.
pub(crate) fn step_of(
    recording: &Recording<'_>,
    buckets: &[Bucket],
    taken: impl IntoIterator<Item = Taken>,
) -> f64 {
    let (mut delay, mut done, mut last_ready) = (0.0, 0.0, 0.0_f64);
    for (bucket, taken) in buckets.iter().zip(taken) {
        done = f64::max(bucket.ready + delay, done) + taken.seconds;
        delay += taken.delay;
        last_ready = last_ready.max(bucket.ready);
    }
    let rest = (recording.step_seconds - last_ready).max(0.0);
    f64::max(last_ready + delay, done) + rest
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use gradwire::Tensor;

    /// Two buckets, ready after 0.6 and 1.0 s, in a step of 1.2 s.
    fn recording() -> Recording<'static> {
        let n = 1 << 18;
        Recording {
            tensors: vec![Tensor::new("a", &[n]), Tensor::new("b", &[n])],
            gradients: vec![],
            step_seconds: 1.2,
            ready: vec![1.0, 0.6],
        }
    }

    fn cost(codec: f64, bytes: f64) -> BucketCost {
        BucketCost {
            compress: codec / 2.0,
            decompress: codec / 2.0,
            up: bytes,
            down: bytes / 2.0,
            phases: 2.0,
        }
    }

    fn seconds(cluster: &Cluster, codec: f64, bytes: f64) -> f64 {
        let costs = [cost(codec, bytes); 2];
        cluster.step_seconds(&recording(), &costs, Link::mbit(8.0), false)
    }

    #[test]
    fn only_what_the_backward_pass_does_not_hide_takes_time() {
        let spare = Cluster::of(2);
        assert_eq!(seconds(&spare, 0.0, 0.0), 1.2);
        // At a megabyte a second the first bucket takes until 0.9, the second from 1.0 to 1.3; then
        // the optimizer.
        assert!((seconds(&spare, 0.1, 0.2e6) - 1.5).abs() < 1e-9);
        // Now the second waits for the first: 0.6 + 2 · 0.7.
        assert!((seconds(&spare, 0.1, 0.6e6) - 2.2).abs() < 1e-9);
    }

    #[test]
    fn without_a_free_core_compression_delays_the_backward_pass() {
        let busy = Cluster { spare_core: false, ..Cluster::of(2) };
        // The first: 0.6 to 0.9, 0.1 of it on the core. The second from 1.1 to 1.4.
        assert!((seconds(&busy, 0.1, 0.2e6) - 1.6).abs() < 1e-9);
        // The core has time while bytes travel: 0.6 to 1.3, then to 2.0.
        assert!((seconds(&busy, 0.1, 0.6e6) - 2.2).abs() < 1e-9);
        let messages = Messages { overhead: 0.015, start: 0.01, efficiency: 0.8 };
        let crowded = Cluster { crowding: 2.0, messages, link: Some(Link::mbit(8.0)), ..busy };
        // 0.2 of work and 0.3 of messages: 0.25 of bytes and two messages' overhead and start. The
        // second from 1.2 to 1.7.
        assert!((seconds(&crowded, 0.1, 0.2e6) - 1.9).abs() < 1e-9);
    }

    #[test]
    fn the_frameworks_own_messages_take_no_work() {
        let plain = Messages { overhead: 0.05, efficiency: 0.5, ..Messages::FREE };
        let busy = Cluster { spare_core: false, crowding: 2.0, ..Cluster::of(2) };
        let link = Link { latency: Duration::from_millis(10), ..Link::mbit(8.0) };
        let cluster = Cluster { plain, synchronization: 0.1, link: Some(link), ..busy };
        // Each bucket takes 0.4 of bytes, one overhead and two latencies: until 1.07, and from
        // there to 1.54; then 0.1 of waiting and the optimizer.
        let found = cluster.step_seconds(&recording(), &[cost(0.1, 0.2e6); 2], link, true);
        assert!((found - 1.84).abs() < 1e-9, "{found}");
        // Among five ranks a bucket takes eight latencies: until 1.13, and from there to 1.66.
        let five = Cluster { ranks: 5, ..cluster };
        let found = five.step_seconds(&recording(), &[cost(0.1, 0.2e6); 2], link, true);
        assert!((found - 1.96).abs() < 1e-9, "{found}");
    }

    #[test]
    fn a_round_is_not_hidden() {
        let messages = Messages { overhead: 0.005, ..Messages::FREE };
        let cluster = Cluster { messages, staging: 1e-7, ..Cluster::of(2) };
        let found = cluster.round_seconds(&recording(), &[cost(0.1, 0.2e6); 2], Link::mbit(8.0));
        // 0.2 of work, 8 bytes of 2^19 elements at 1e-7 s, 0.4 of bytes, two overheads.
        assert!((found - (0.61 + 0.8 * 0.524_288)).abs() < 1e-9, "{found}");
    }
}
