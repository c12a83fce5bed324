//! The predictions of candidates in one situation.

use gradwire_exchange::{Exchange, Link, Result};

use crate::crossover::Crossover;
use crate::prediction::{OnLink, Prediction, TensorAdvice};
use crate::trials::Trials;
use crate::{Candidate, Cluster, Costs, MeasuredStep, OptimizerFamily, Recording};

/// The accuracy of a prediction, as a fraction of a step. A candidate must be faster than no
/// compression by more than this to be recommended. Two candidates that differ by less count as
/// equally fast.
pub const MARGIN: f64 = 0.05;

/// The situation in which candidates are compared.
#[derive(Debug, Clone)]
pub struct Situation<'a> {
    /// Recorded training steps.
    pub recording: &'a Recording<'a>,
    /// The ranks, their links and cores.
    pub cluster: Cluster,
    /// The optimizer that takes the averages.
    pub optimizer: OptimizerFamily,
    /// The links to predict steps for; one at least.
    pub links: &'a [Link],
    /// A step that was measured with an exchange, which corrects the predictions.
    pub measured: Option<&'a MeasuredStep>,
}

/// A candidate and the costs that its trial measured.
pub(crate) struct Tried<'a> {
    candidate: &'a Candidate,
    exchange: Exchange,
    costs: Costs,
}

impl Situation<'_> {
    pub(crate) fn attempt<'c>(
        &self,
        candidate: &'c Candidate,
        trials: &mut Trials<'_>,
    ) -> Result<Tried<'c>> {
        let ranks = self.cluster.ranks;
        let costs = trials.costs(candidate, ranks)?;
        Ok(Tried { candidate, exchange: candidate.exchange(ranks), costs })
    }

    /// The seconds of a step. If `plain`, the training framework averages the buckets uncompressed.
    fn seconds(&self, tried: &Tried<'_>, link: Link, plain: bool) -> f64 {
        let buckets = &tried.costs.buckets;
        let every = tried.candidate.spec.every() as f64;
        if every > 1.0 {
            let round = self.cluster.round_seconds(self.recording, buckets, link);
            return self.recording.step_seconds + round / every;
        }
        self.cluster.step_seconds(self.recording, buckets, link, plain)
    }

    pub(crate) fn predict(
        &self,
        tried: &Tried<'_>,
        baseline: &Tried<'_>,
        plain: bool,
    ) -> Prediction {
        let Tried { candidate, exchange, costs } = tried;
        let every = candidate.spec.every() as f64;
        let on_links = self.links.iter().map(|&link| {
            let seconds = self.seconds(tried, link, plain);
            OnLink { seconds, speedup: self.seconds(baseline, link, true) / seconds }
        });
        let error = (!candidate.is_local()).then_some(costs.error);
        let doubt = candidate.doubt(self.optimizer, costs.error).filter(|_| !plain);
        let crossover = if plain { Crossover::NOWHERE } else { self.crossover(tried, baseline) };
        Prediction {
            candidate: if plain { "no compression".to_owned() } else { candidate.to_string() },
            spec: candidate.spec.to_string(),
            exchange: exchange.to_string(),
            every: candidate.spec.every(),
            ratio: every * self.recording.bytes() as f64 / costs.message_bytes(),
            bytes_up: costs.buckets.iter().map(|cost| cost.up).sum::<f64>() / every,
            codec: if plain { 0.0 } else { costs.codec() / every },
            error,
            doubt: doubt.map(str::to_owned),
            on_links: on_links.collect(),
            crossover: crossover.likely,
            crossover_range: [crossover.least, crossover.most],
        }
    }

    /// The bandwidth below which a candidate is faster than no compression by more than the margin.
    /// A measurement on the first link counts only for that link.
    fn crossover(&self, tried: &Tried<'_>, baseline: &Tried<'_>) -> Crossover {
        let pays = |at: &Self, link: Link, gift: f64| {
            let seconds = at.seconds(tried, link, false) - gift;
            at.seconds(baseline, link, true) > (1.0 + MARGIN) * seconds
        };
        let (first, noise) = (self.links[0], self.cluster.noise);
        let elsewhere = Situation { cluster: self.cluster.on_other_links(), ..self.clone() };
        let link = |bits_per_second| Link { bits_per_second, ..first };
        let found =
            Crossover::find(|bandwidth, gift| pays(&elsewhere, link(bandwidth), gift), noise);
        if self.cluster.link != Some(first) {
            return found;
        }
        match (pays(self, first, -noise), pays(self, first, noise)) {
            (true, _) => found.with_known(first.bits_per_second, true),
            (_, false) => found.with_known(first.bits_per_second, false),
            // The measured times vary too much to decide.
            _ => found,
        }
    }

    pub(crate) fn tensors(&self, tried: &Tried<'_>) -> Vec<TensorAdvice> {
        let costs = &tried.costs;
        let link = self.links[0];
        // The bytes on a link for each byte of a message.
        let spread = costs.buckets.iter().map(|cost| cost.up.max(cost.down)).sum::<f64>()
            / costs.message_bytes().max(1.0);
        let a_byte = 8.0 / link.bits_per_second;
        let a_value = self.cluster.crowding * costs.codec() / self.recording.elements() as f64;
        let raw_spread = 2.0 * (1.0 - 1.0 / self.cluster.ranks as f64);
        let tensors = self.recording.tensors.iter().zip(&costs.tensors).enumerate();
        let one = |(at, (tensor, cost)): (usize, (&gradwire::Tensor, &crate::TensorCost))| {
            let raw = self.recording.bytes_of(at) as f64;
            let saved = (raw_spread * raw - spread * cost.bytes) * a_byte;
            let gain = saved - a_value * tensor.elements() as f64;
            let plain = cost.bytes >= raw || gain <= 0.0;
            TensorAdvice {
                name: tensor.name().to_owned(),
                elements: tensor.elements(),
                bytes: cost.bytes,
                error: cost.error,
                gain,
                send: if plain { "none".to_owned() } else { tried.candidate.spec.to_string() },
            }
        };
        tensors.map(one).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crossover::ANY_LINK;

    use gradwire::Tensor;

    /// The crossover of a model of a megabyte, compressed to a half in no time, between two ranks.
    /// Its step takes a millisecond, and its single bucket is ready at the end. `efficiencies` are
    /// the parts of a 5 Gbit/s link that the measured messages of gradwire and of the framework
    /// use.
    fn of_half_the_bytes(efficiencies: [f64; 2], noise: f64, correction: f64) -> Crossover {
        let tensors = vec![Tensor::new("weight", &[512, 512])];
        let recording = Recording::untimed(tensors, vec![], 0.001, 0.0);
        let link = Link::mbit(5000.0);
        let [messages, plain] =
            efficiencies.map(|efficiency| crate::Messages { efficiency, ..crate::Messages::FREE });
        let measured =
            Cluster { link: Some(link), noise, correction, messages, plain, ..Cluster::of(2) };
        let at = Situation {
            recording: &recording,
            cluster: measured,
            optimizer: OptimizerFamily::Sgd,
            links: &[link],
            measured: None,
        };
        let [candidate, baseline] =
            ["fp16", "none"].map(|spec| Candidate::new(spec.parse().unwrap()));
        let tried = |candidate, bytes: f64| {
            let bucket = crate::BucketCost {
                compress: 0.0,
                decompress: 0.0,
                up: bytes,
                down: bytes,
                phases: 1.0,
            };
            let costs = Costs { buckets: vec![bucket], tensors: vec![], error: 0.0 };
            Tried { candidate, exchange: Exchange::AllReduce, costs }
        };
        at.crossover(&tried(&candidate, 0.5e6), &tried(&baseline, 1e6))
    }

    #[test]
    fn what_was_measured_on_one_link_is_not_carried_to_others() {
        // 1 + 8 ms and 1 + 4 ms at a Gbit/s. If a megabyte takes t ms, 1 + t = 1.05 (1 + t / 2) at
        // t = 0.105, which is 76 Gbit/s. This is faster than the measured link, where compression
        // pays by the same arithmetic.
        let near = |found: Option<f64>, gigabits: f64| {
            (found.unwrap() / 1e9 / gigabits - 1.0).abs() < 0.02
        };
        assert!(near(of_half_the_bytes([1.0, 1.0], 0.0, 0.0).likely, 76.0));
        // If gradwire's messages use less than half of the measured link, compression pays only on
        // slower links.
        for efficiency in [0.3, 0.4, 0.5] {
            assert!(near(of_half_the_bytes([efficiency, 1.0], 0.0, 0.0).likely, 5.0));
        }
        // If times vary by more than the difference on the measured link, that link says nothing
        // about others.
        assert!(near(of_half_the_bytes([0.5, 1.0], 1e-3, 0.0).likely, 76.0));
        // A measured step that was shorter than its parts does not mean a gain at every bandwidth.
        assert!(near(of_half_the_bytes([1.0, 1.0], 0.0, -0.9e-3).likely, 76.0));
        // Noise makes a range: 1 + t = 1.05 (1.5 + t / 2) at t = 1.21.
        let noisy = of_half_the_bytes([1.0, 1.0], 0.5e-3, 0.0);
        assert!(
            near(noisy.likely, 76.0) && near(noisy.least, 6.6) && noisy.most == Some(ANY_LINK),
            "{noisy:?}"
        );
    }
}
