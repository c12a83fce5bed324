//! The comparison of candidates and the recommendations.

use gradwire_exchange::{ExchangeError, Link, Result};
use serde::Serialize;

use crate::crossover::Crossover;
use crate::prediction::{Prediction, TensorAdvice};
use crate::situation::{MARGIN, Situation};
use crate::trials::{Trials, Watch};
use crate::{Candidate, Recording};

/// Predictions for a run, and a recommendation for each link.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Advice {
    /// Ranks of the run.
    pub ranks: usize,
    /// Elements of the model.
    pub elements: usize,
    /// Seconds of a step without any exchange.
    pub compute: f64,
    /// The bandwidths of the links in bits per second.
    pub links: Vec<f64>,
    /// Their latencies in seconds.
    pub latencies: Vec<f64>,
    /// Steps without compression, averaged by the training framework.
    pub plain: Prediction,
    /// The candidates, in the order in which they were given.
    pub predictions: Vec<Prediction>,
    /// For each link the recommended candidate, as an index of `predictions`; `None`: do not
    /// compress.
    pub recommended: Vec<Option<usize>>,
    /// For each link the fastest candidate with local steps, if it is faster than the recommended
    /// one.
    pub local: Vec<Option<usize>>,
    /// The bandwidth in bits per second up to which some candidate without a doubt is faster than
    /// no compression, at the latency of the first link. `None` if none is faster at any bandwidth.
    pub crossover: Option<f64>,
    /// The least and the greatest crossover if measured times are off by
    /// [`Cluster::noise`](crate::Cluster::noise).
    pub crossover_range: [Option<f64>; 2],
    /// Advice for each tensor on the first link, with the candidate recommended there. Empty
    /// without a recommendation.
    pub tensors: Vec<TensorAdvice>,
}

/// Tries all candidates on a recording, and predicts their step times on each link.
///
/// Takes as long as the candidates take to compress and decompress the recorded steps on up to four
/// ranks; see [`Costs::measure`](crate::Costs::measure) for memory. Several times in each trial,
/// `watch` receives the trials' progress, and may end them.
///
/// # Errors
/// `Config` if the recording is inconsistent, there is no link or only one rank, or a candidate
/// cannot work; `Ended` if `watch` ended the trials.
pub fn advise<'a>(
    situation: &Situation<'a>,
    candidates: &[Candidate],
    watch: &'a mut Watch<'a>,
) -> Result<Advice> {
    let Situation { recording, cluster, links, measured, .. } = situation;
    if links.is_empty() {
        return Err(ExchangeError::config("there is no link; give one, as in 100mbit"));
    }
    let baseline = Candidate::new(gradwire::Spec::none());
    let all = std::iter::once(&baseline).chain(candidates).map(|one| (one, cluster.ranks));
    let planned = measured.iter().map(|step| (&step.candidate, step.ranks)).chain(all);
    let mut trials = Trials::new(recording, planned, watch);
    let corrected = match measured {
        Some(step) => {
            let costs = trials.costs(&step.candidate, step.ranks)?;
            step.correct(&costs, recording, cluster)
        }
        None => cluster.clone(),
    };
    let at = Situation { cluster: corrected, ..situation.clone() };
    let plain = at.attempt(&baseline, &mut trials)?;
    let tried = candidates.iter().map(|candidate| at.attempt(candidate, &mut trials));
    let tried = tried.collect::<Result<Vec<_>>>()?;
    let predictions: Vec<_> = tried.iter().map(|one| at.predict(one, &plain, false)).collect();
    let advice =
        Advice::of(recording, cluster.ranks, links, at.predict(&plain, &plain, true), predictions);
    let tensors = advice.recommended[0].map_or_else(Vec::new, |best| at.tensors(&tried[best]));
    Ok(Advice { tensors, ..advice })
}

impl Advice {
    /// The crossover with its range.
    pub fn crossovers(&self) -> Crossover {
        let [least, most] = self.crossover_range;
        Crossover { least, likely: self.crossover, most }
    }

    /// Compares predictions on each link; without advice for each tensor.
    pub(crate) fn of(
        recording: &Recording<'_>,
        ranks: usize,
        links: &[Link],
        plain: Prediction,
        predictions: Vec<Prediction>,
    ) -> Self {
        let recommended: Vec<_> = (0..links.len()).map(|link| best(&predictions, link)).collect();
        let local = (0..links.len()).map(|link| best_local(&predictions, link, recommended[link]));
        let sound =
            predictions.iter().filter(|one| one.doubt.is_none()).map(Prediction::crossovers);
        let crossover = sound.reduce(Crossover::max).unwrap_or(Crossover::NOWHERE);
        Self {
            ranks,
            elements: recording.elements(),
            compute: recording.step_seconds,
            links: links.iter().map(|link| link.bits_per_second).collect(),
            latencies: links.iter().map(|link| link.latency.as_secs_f64()).collect(),
            plain,
            local: local.collect(),
            crossover: crossover.likely,
            crossover_range: [crossover.least, crossover.most],
            tensors: Vec::new(),
            predictions,
            recommended,
        }
    }
}

/// The recommended candidate on a link, or `None`. It has no doubt and is faster than no
/// compression by more than the margin. Among the candidates within the margin of the fastest such
/// one, it has the least error.
fn best(predictions: &[Prediction], link: usize) -> Option<usize> {
    let pays = |one: &Prediction| one.doubt.is_none() && one.on_links[link].speedup > 1.0 + MARGIN;
    let paying = || predictions.iter().enumerate().filter(|(_, one)| pays(one));
    let least = paying().map(|(_, one)| one.on_links[link].seconds).reduce(f64::min)?;
    let near = paying().filter(|(_, one)| one.on_links[link].seconds <= least * (1.0 + MARGIN));
    let error = |one: &Prediction| one.error.unwrap_or(f64::INFINITY);
    near.min_by(|(_, a), (_, b)| error(a).total_cmp(&error(b))).map(|(at, _)| at)
}

/// The fastest candidate with local steps, if it is faster than candidate `than`, or than no
/// compression.
fn best_local(predictions: &[Prediction], link: usize, than: Option<usize>) -> Option<usize> {
    let speedup = |at: usize| predictions[at].on_links[link].speedup;
    let local = (0..predictions.len()).filter(|&at| predictions[at].every > 1);
    let fastest = local.max_by(|&a, &b| speedup(a).total_cmp(&speedup(b)))?;
    (speedup(fastest) > than.map_or(1.0, speedup) * (1.0 + MARGIN)).then_some(fastest)
}

#[cfg(test)]
mod tests;
