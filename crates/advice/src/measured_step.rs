//! A measured step with an exchange, which corrects predictions.

use gradwire_exchange::Link;

use crate::{Candidate, Cluster, Costs, Recording};

/// A training step that was measured while a candidate exchanged its buckets.
///
/// It includes effects that are missing from the timeline: threads that wait for cores, and shared
/// caches.
#[derive(Debug, Clone, PartialEq)]
pub struct MeasuredStep {
    /// The candidate that exchanged the buckets, at every step.
    pub candidate: Candidate,
    /// Ranks that took part.
    pub ranks: usize,
    /// The link between them.
    pub link: Link,
    /// The seconds of the step.
    pub step_seconds: f64,
    /// Bytes that a rank sent in the step, headers included: messages of other steps than the
    /// recorded ones may be several times as long.
    pub bytes_up: f64,
}

impl MeasuredStep {
    /// The cluster, corrected such that the prediction of this step equals its measured time.
    /// `costs` are the costs of the step's candidate between its ranks.
    pub fn correct(&self, costs: &Costs, recording: &Recording<'_>, cluster: &Cluster) -> Cluster {
        let trial = Cluster { ranks: self.ranks, correction: 0.0, ..cluster.clone() };
        let mut costs = costs.buckets.clone();
        let longer = self.bytes_up / costs.iter().map(|cost| cost.up).sum::<f64>().max(1.0);
        for cost in &mut costs {
            (cost.up, cost.down) = (longer * cost.up, longer * cost.down);
        }
        let predicted = trial.step_seconds(recording, &costs, self.link, false);
        Cluster { correction: self.step_seconds - predicted, ..cluster.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::{Floats, Tensor};

    #[test]
    fn a_measured_step_is_predicted_as_it_was_measured() {
        let recording = Recording {
            tensors: vec![Tensor::new("a", &[1000])],
            gradients: vec![vec![Floats::F32(&[0.5; 1000])]],
            step_seconds: 1.0,
            ready: vec![0.9],
        };
        let none = Candidate::new("none".parse().unwrap());
        // 4 kB at 8 kB/s take at least half a second: the step should have ended after 1.5 s.
        let link = Link::mbit(0.064);
        let costs = Costs::measure(&recording, &none, 2).unwrap();
        let bytes_up = costs.buckets[0].up;
        let measured =
            MeasuredStep { candidate: none.clone(), ranks: 2, link, step_seconds: 3.0, bytes_up };
        let corrected = measured.correct(&costs, &recording, &Cluster::of(4));
        assert_eq!(corrected.ranks, 4);
        assert!((1.0..1.5).contains(&corrected.correction), "{}", corrected.correction);
        // Twice the bytes explain another half second.
        let longer = MeasuredStep { bytes_up: 2.0 * bytes_up, ..measured.clone() };
        let less = longer.correct(&costs, &recording, &Cluster::of(4));
        let explained = corrected.correction - less.correction;
        assert!((explained - 8.0 * bytes_up / 64e3).abs() < 0.05, "{explained}");
        let two = Cluster { ranks: 2, ..corrected.clone() };
        let again = two.step_seconds(&recording, &costs.buckets, link, false);
        assert!((again - 3.0).abs() < 0.05, "{again}");
        // Without compression nothing is corrected, and no step is shorter than its computation.
        let plain =
            |cluster: &Cluster| cluster.step_seconds(&recording, &costs.buckets, link, true);
        assert_eq!(plain(&two), plain(&Cluster::of(2)));
        let faster = Cluster { correction: -9.0, ..two };
        assert_eq!(faster.step_seconds(&recording, &costs.buckets, link, false), 1.0);
    }
}
