//! Combines the workers' measurements into the record of the run.

use std::collections::BTreeMap;

use gradwire_exchange::ServerReport;
use gradwire_models::models::Score;
use gradwire_models::tasks::Metric;

use crate::checkpoint::Record;
use crate::diagnosis::Diagnosis;
use crate::record::{Evaluation, Sample, SentCounts, StepRecord};

/// Collects samples, in any order of arrival, until a step is complete.
#[derive(Debug)]
pub(crate) struct Recorder {
    /// Steps on record, in order.
    pub(crate) trace: Vec<StepRecord>,
    /// Evaluations on record, in order.
    pub(crate) evaluations: Vec<Evaluation>,
    /// Diagnoses on record, in order.
    pub(crate) diagnoses: Vec<Diagnosis>,
    /// The digests of the parameters, by steps done.
    pub(crate) digests: BTreeMap<u64, String>,
    /// The CPU time of the busiest server in a step, if servers run in this process.
    pub(crate) server: Option<f64>,
    /// Steps on record from before a resumption.
    past: usize,
    pending: BTreeMap<u64, Vec<Option<Sample>>>,
    /// The step each worker takes next.
    next: Vec<u64>,
}

impl Recorder {
    /// A recorder for `workers` workers that continues `past`.
    pub(crate) fn new(workers: usize, past: Record) -> Self {
        let Record { trace, evaluations, diagnoses, digests, .. } = past;
        let (past, pending, next) = (trace.len(), BTreeMap::new(), vec![0; workers]);
        Self { trace, evaluations, diagnoses, digests, server: None, past, pending, next }
    }

    /// Takes the score of an evaluation after `step` steps.
    pub(crate) fn evaluate(&mut self, step: u64, metric: Metric, score: Score) -> &Evaluation {
        self.evaluations.push(Evaluation {
            step,
            metric,
            quality: metric.quality(&score),
            loss: score.loss / score.examples as f64,
            examples: score.examples,
        });
        &self.evaluations[self.evaluations.len() - 1]
    }

    /// Takes the reports of servers, which cover all steps since the run was last resumed.
    pub(crate) fn add_servers(&mut self, reports: &[ServerReport]) {
        let steps = (self.trace.len() - self.past).max(1) as f64;
        let worked = |report: &ServerReport| {
            (report.decompress + report.update + report.compress).as_secs_f64() / steps
        };
        self.server = reports.iter().map(worked).max_by(f64::total_cmp);
    }

    /// Takes a worker's sample and the step it takes next. Returns the steps that are now complete:
    /// every worker has taken or skipped them.
    pub(crate) fn add(&mut self, rank: usize, sample: Sample, next: u64) -> &[StepRecord] {
        let workers = self.next.len();
        self.next[rank] = next;
        self.pending.entry(sample.record.step).or_insert_with(|| vec![None; workers])[rank] =
            Some(sample);
        let complete = self.next.iter().min().copied().unwrap_or(0);
        let before = self.trace.len();
        while let Some(entry) = self.pending.first_entry() {
            if *entry.key() >= complete {
                break;
            }
            self.trace.push(average(&entry.remove()));
        }
        &self.trace[before..]
    }
}

/// The loss is the mean over the workers that took part in the round. The time of each kind of work
/// is the mean over the workers that did such work: an absent worker still decodes. Bytes are the
/// mean over all workers, so they add up; the bytes of the busiest worker are listed, too.
fn average(samples: &[Option<Sample>]) -> StepRecord {
    // Every round has a participant.
    let taken: Vec<&StepRecord> = samples.iter().flatten().map(|sample| &sample.record).collect();
    let present = samples.iter().flatten().filter(|sample| sample.took_part).count();
    let (workers, all) = (samples.len(), taken.len());
    let over = |count: usize, value: fn(&StepRecord) -> f64| {
        taken.iter().map(|record| value(record)).sum::<f64>() / count as f64
    };
    let work = |value: fn(&StepRecord) -> f64| {
        over(taken.iter().filter(|record| value(record) > 0.0).count().max(1), value)
    };
    StepRecord {
        step: taken[0].step,
        loss: over(present, |record| record.loss),
        learning_rate: taken[0].learning_rate,
        bytes_up: over(workers, |record| record.bytes_up),
        bytes_down: over(workers, |record| record.bytes_down),
        bytes_busiest: taken
            .iter()
            .map(|record| record.bytes_up.max(record.bytes_down))
            .fold(0.0, f64::max),
        sent: SentCounts {
            sparse: over(workers, |record| record.sent.sparse),
            dense: over(workers, |record| record.sent.dense),
            raw: over(workers, |record| record.sent.raw),
            position_bits: over(workers, |record| record.sent.position_bits),
        },
        compute: work(|record| record.compute),
        compress: work(|record| record.compress),
        decompress: work(|record| record.decompress),
        update: work(|record| record.update),
        wire: over(all, |record| record.wire),
        wall: over(all, |record| record.wall),
        background: over(all, |record| record.background),
        waited: over(all, |record| record.waited),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn sample(step: u64, loss: f64, bytes_up: f64) -> Sample {
        let record =
            StepRecord { step, loss, bytes_up, learning_rate: 0.1, ..StepRecord::default() };
        Sample { record, took_part: true }
    }

    #[test]
    fn a_step_is_the_mean_of_its_samples_in_any_order_of_arrival() {
        let mut recorder = Recorder::new(2, Record::default());
        assert!(recorder.add(1, sample(0, 2.0, 10.0), 1).is_empty());
        assert!(recorder.add(1, sample(1, 4.0, 10.0), 2).is_empty());
        assert_eq!(recorder.add(0, sample(0, 1.0, 30.0), 1).len(), 1);
        assert_eq!(recorder.add(0, sample(1, 0.0, 10.0), 2).len(), 1);
        let values = |r: &StepRecord| (r.step, r.loss, r.bytes_up, r.bytes_busiest);
        let found: Vec<_> = recorder.trace.iter().map(values).collect();
        assert_eq!(found, [(0, 1.5, 20.0, 30.0), (1, 2.0, 10.0, 10.0)]);
    }

    #[test]
    fn server_time_is_of_the_busiest_server_per_step_since_the_resumption() {
        let trace = vec![StepRecord::default(); 3];
        let mut recorder = Recorder::new(1, Record { trace, ..Record::default() });
        for step in 3..5 {
            recorder.add(0, sample(step, 1.0, 8.0), step + 1);
        }
        assert_eq!(recorder.server, None);
        let [one, two, five] = [1, 2, 5].map(Duration::from_secs);
        let report = ServerReport { decompress: one, update: two, ..ServerReport::default() };
        let busier = ServerReport { compress: five, decompress: two, ..report };
        recorder.add_servers(&[report, busier, report]);
        // 2 + 2 + 5 seconds in the two steps since.
        assert_eq!(recorder.server, Some(4.5));
    }

    #[test]
    fn a_worker_without_part_in_a_round_counts_in_bytes_and_work() {
        let mut recorder = Recorder::new(2, Record::default());
        let mut sample = sample(0, 3.0, 8.0);
        (sample.record.compute, sample.record.decompress) = (0.5, 0.25);
        recorder.add(0, sample, 1);
        sample.record.bytes_down = 12.0;
        (sample.record.loss, sample.record.compute, sample.took_part) = (0.0, 0.0, false);
        recorder.add(1, sample, 1);
        let step = recorder.trace[0];
        assert_eq!((step.loss, step.bytes_up, step.bytes_busiest), (3.0, 8.0, 12.0));
        // It decodes as others do.
        assert_eq!((step.compute, step.decompress), (0.5, 0.25));
    }

    #[test]
    fn a_step_is_complete_without_a_worker_that_skipped_it() {
        let mut recorder = Recorder::new(2, Record::default());
        recorder.add(0, sample(0, 1.0, 8.0), 1);
        recorder.add(0, sample(1, 3.0, 8.0), 2);
        recorder.add(1, sample(0, 1.0, 8.0), 2);
        assert_eq!(recorder.trace.len(), 2);
        assert_eq!((recorder.trace[1].loss, recorder.trace[1].bytes_up), (3.0, 4.0));
    }
}
