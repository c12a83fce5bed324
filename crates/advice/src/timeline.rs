//! The time of a step, put together from its parts.
//!
//! Gradients become ready during the backward pass. One thread takes the buckets in this order: it compresses a bucket,
//! sends it, waits for the others and decompresses. The optimizer begins when the backward pass and this thread are done.
//! Where no core is free for the thread, its processor time delays the rest of the backward pass by as much.

use std::time::Duration;

use gradwire_exchange::{Exchange, ExchangeError, Link, Result, StepBytes};

use crate::{BucketCost, Recording};

/// Where a run takes place.
#[derive(Debug, Clone, PartialEq)]
pub struct Cluster {
    /// Ranks of the run.
    pub ranks: usize,
    /// Whether a core of this machine is free for compression while the others compute.
    pub spare_core: bool,
    /// Ranks of this machine by its cores, at least 1: by this factor processor times become longer.
    pub crowding: f64,
    /// Seconds that each bucket takes beside compressing, decompressing and its bytes: hand-over between threads, and
    /// messages that carry almost nothing.
    pub overhead: f64,
    /// The same for the training framework's own all-reduce.
    pub plain_overhead: f64,
    /// Seconds a byte to copy gradients to main memory and back; 0 where they are there.
    pub staging: f64,
}

impl Cluster {
    /// One rank a machine, with a free core and no overhead.
    pub fn of(ranks: usize) -> Self {
        Self {
            ranks,
            spare_core: true,
            crowding: 1.0,
            overhead: 0.0,
            plain_overhead: 0.0,
            staging: 0.0,
        }
    }

    /// The seconds of a training step that exchanges all buckets, with gradwire or, if `plain`, with the framework's own
    /// all-reduce of uncompressed gradients.
    pub fn step_seconds(
        &self,
        recording: &Recording,
        costs: &[BucketCost],
        exchange: Exchange,
        link: Link,
        plain: bool,
    ) -> f64 {
        let (mut delay, mut done, mut last_ready) = (0.0, 0.0, 0.0_f64);
        for (bucket, cost) in recording.buckets().iter().zip(costs) {
            let elements: usize =
                bucket.tensors.iter().map(|&at| recording.tensors[at].elements()).sum();
            let work = if plain {
                self.plain_overhead
            } else {
                self.overhead
                    + self.crowding * (cost.compress + cost.decompress)
                    + self.staging * 8.0 * elements as f64
            };
            done = f64::max(bucket.ready + delay, done) + work + self.wire(*cost, exchange, link);
            if !self.spare_core && !plain {
                delay += work;
            }
            last_ready = last_ready.max(bucket.ready);
        }
        let rest = (recording.step_seconds - last_ready).max(0.0);
        f64::max(last_ready + delay, done) + rest
    }

    /// The seconds of one round that sends all buckets after the step has ended.
    pub fn round_seconds(
        &self,
        recording: &Recording,
        costs: &[BucketCost],
        exchange: Exchange,
        link: Link,
    ) -> f64 {
        let work: f64 = costs.iter().map(|cost| cost.compress + cost.decompress).sum();
        let sum = |field: fn(&BucketCost) -> f64| costs.iter().map(field).sum();
        let all = BucketCost {
            up: sum(|cost| cost.up),
            down: sum(|cost| cost.down),
            ..BucketCost::default()
        };
        self.overhead
            + self.crowding * work
            + self.staging * 8.0 * recording.elements() as f64
            + self.wire(all, exchange, link)
    }

    fn wire(&self, cost: BucketCost, exchange: Exchange, link: Link) -> f64 {
        let bytes = StepBytes { up: cost.up, down: cost.down, largest_share: 1.0 };
        link.step_time(exchange, self.ranks, bytes).as_secs_f64()
    }
}

/// Reads a link: a bandwidth such as `100mbit`, `1.5gbit` or `800kbit`, and optionally a latency, as in `100mbit/20ms`.
///
/// # Errors
/// `Config` for any other text.
pub fn parse_link(text: &str) -> Result<Link> {
    let number = |text: &str, units: &[(&str, f64)]| {
        let text = text.trim().to_lowercase();
        units.iter().find_map(|(unit, size)| {
            let value: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
            (value.is_finite() && value >= 0.0).then_some(value * size)
        })
    };
    let (bandwidth, latency) = text.split_once('/').unwrap_or((text, "0s"));
    let bandwidth = number(bandwidth, &[("gbit", 1e9), ("mbit", 1e6), ("kbit", 1e3)]);
    let latency = number(latency, &[("ms", 1e-3), ("us", 1e-6), ("s", 1.0)]);
    match (bandwidth, latency) {
        (Some(bits_per_second), Some(latency)) if bits_per_second >= 1.0 && latency < 1e6 => {
            Ok(Link { bits_per_second, latency: Duration::from_secs_f64(latency) })
        }
        _ => Err(ExchangeError::config(format!(
            "'{text}' is no link; give a bandwidth in kbit, mbit or gbit, and a latency if there is one, as in 100mbit/20ms"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::Tensor;

    /// Two buckets, ready after 0.6 and 1.0 s, in a step of 1.2 s.
    fn recording() -> Recording {
        let n = 1 << 18;
        Recording {
            tensors: vec![Tensor::new("a", &[n]), Tensor::new("b", &[n])],
            gradients: vec![],
            step_seconds: 1.2,
            ready: vec![1.0, 0.6],
        }
    }

    fn cost(codec: f64, bytes: f64) -> BucketCost {
        BucketCost { compress: codec / 2.0, decompress: codec / 2.0, up: bytes, down: bytes }
    }

    fn seconds(cluster: &Cluster, codec: f64, bytes: f64) -> f64 {
        let costs = [cost(codec, bytes); 2];
        cluster.step_seconds(&recording(), &costs, Exchange::AllGather, Link::mbit(8.0), false)
    }

    #[test]
    fn only_what_the_backward_pass_does_not_hide_takes_time() {
        let spare = Cluster::of(2);
        assert_eq!(seconds(&spare, 0.0, 0.0), 1.2);
        // At a megabyte a second the first bucket takes until 0.9, the second from 1.0 to 1.3; then the optimizer.
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
        let crowded = Cluster { crowding: 2.0, overhead: 0.05, ..busy };
        // 0.25 of work for each bucket: the second from 1.25 to 1.7.
        assert!((seconds(&crowded, 0.1, 0.2e6) - 1.9).abs() < 1e-9);
    }

    #[test]
    fn a_round_is_not_hidden() {
        let cluster = Cluster { overhead: 0.01, staging: 1e-7, ..Cluster::of(2) };
        let found = cluster.round_seconds(
            &recording(),
            &[cost(0.1, 0.2e6); 2],
            Exchange::AllGather,
            Link::mbit(8.0),
        );
        // 0.01 + 0.2 + 8 bytes of 2^19 elements at 1e-7 s + 0.4.
        assert!((found - (0.61 + 0.8 * 0.524_288)).abs() < 1e-9, "{found}");
    }

    #[test]
    fn links_are_read() {
        let link = parse_link("1.5gbit/20ms").unwrap();
        assert_eq!((link.bits_per_second, link.latency), (1.5e9, Duration::from_millis(20)));
        assert_eq!(parse_link(" 100 Mbit").unwrap(), Link::mbit(100.0));
        for wrong in ["", "fast", "100", "-1mbit", "nanmbit", "0mbit", "1gbit/", "1gbit/x"] {
            assert!(parse_link(wrong).is_err(), "{wrong}");
        }
    }
}
