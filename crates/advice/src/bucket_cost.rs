//! The cost of a bucket, in a trial and between the ranks of a run.

use gradwire_exchange::{Exchange, StepReport};
use serde::Serialize;

/// The cost of a bucket in one exchange.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct BucketCost {
    /// Processor seconds of compressing.
    pub compress: f64,
    /// Processor seconds of decompressing and adding.
    pub decompress: f64,
    /// Bytes sent, headers included.
    pub up: f64,
    /// Bytes received, headers included.
    pub down: f64,
    /// Messages to each other rank, one after the other: one with a gather, two with a reduction,
    /// more with multi-round methods.
    pub phases: f64,
}

impl BucketCost {
    /// The cost of the exchanges between two reports of a step, for a number of ranks.
    pub(crate) fn between(before: &StepReport, after: &StepReport, ranks: usize) -> Self {
        let traffic = after.traffic - before.traffic;
        Self {
            compress: (after.compress - before.compress).as_secs_f64(),
            decompress: (after.decompress - before.decompress).as_secs_f64(),
            up: traffic.bytes_up as f64,
            down: traffic.bytes_down as f64,
            phases: traffic.messages_up as f64 / (ranks - 1) as f64,
        }
    }
}

/// The factors by which bytes and decoding grow from the ranks of the trial to the ranks of the
/// run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Growth {
    pub(crate) bytes: f64,
    decompress: f64,
}

impl Growth {
    pub(crate) fn of(exchange: Exchange, tried: usize, ranks: usize) -> Self {
        let (k, n) = (tried as f64, ranks as f64);
        match exchange {
            Exchange::AllGather => Self { bytes: (n - 1.0) / (k - 1.0), decompress: n / k },
            _ => Self { bytes: (1.0 - 1.0 / n) / (1.0 - 1.0 / k), decompress: 1.0 },
        }
    }

    pub(crate) fn apply(self, cost: BucketCost) -> BucketCost {
        BucketCost {
            decompress: self.decompress * cost.decompress,
            up: self.bytes * cost.up,
            down: self.bytes * cost.down,
            ..cost
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn growth_by_hand() {
        // 9 instead of 3 other ranks, 10 messages instead of 4.
        let gathered = Growth { bytes: 3.0, decompress: 2.5 };
        assert_eq!(Growth::of(Exchange::AllGather, 4, 10), gathered);
        // Nine tenths instead of three quarters.
        let reduced = Growth::of(Exchange::AllReduce, 4, 10);
        assert!((reduced.bytes - 1.2).abs() < 1e-12 && reduced.decompress == 1.0, "{reduced:?}");
    }
}
