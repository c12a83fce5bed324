//! Checks of an experiment before it runs.

use std::ops::RangeInclusive;

use super::Experiment;
use crate::TestbedError;

/// The links whose times can be modelled: from a bit a second to a petabit.
const LINK_MBIT: RangeInclusive<f64> = 1e-6..=1e9;
/// The latencies, up to twelve days.
const LATENCY_MS: RangeInclusive<f64> = 0.0..=1e9;

impl Experiment {
    /// Refuses invalid experiments, with the reason.
    pub fn check(&self) -> Result<(), TestbedError> {
        self.settings.check().map_err(TestbedError::Config)?;
        let counts = [
            ("the number of compressors", self.compressors.len()),
            ("the number of seeds", self.seeds.len()),
            ("the number of links in links_mbit", self.links_mbit.len()),
            ("evaluations", self.evaluations as usize),
        ];
        if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TestbedError::Config(format!("{what} must be at least 1")));
        }
        let is_positive = |value: &f64| value.is_finite() && *value > 0.0;
        let refused = if let Some(epochs) = self.epochs.filter(|epochs| !is_positive(epochs)) {
            format!("epochs must be a positive number, not {epochs}")
        } else if let Some(bad) = self.links_mbit.iter().find(|mbit| !LINK_MBIT.contains(mbit)) {
            format!("a link of {bad} Mbit/s is not possible; give a number from 1e-6 to 1e9")
        } else if !LATENCY_MS.contains(&self.latency_ms) {
            format!(
                "a latency of {} ms is not possible; give a number from 0 to 1e9",
                self.latency_ms
            )
        } else {
            return self.distinct();
        };
        Err(TestbedError::Config(refused))
    }

    /// Refuses repeated compressors and seeds: their runs would have the same name.
    fn distinct(&self) -> Result<(), TestbedError> {
        let compressor = twice(&self.compressors).map(|spec| format!("compressor {spec}"));
        match compressor.or_else(|| twice(&self.seeds).map(|seed| format!("seed {seed}"))) {
            None => Ok(()),
            Some(what) => Err(TestbedError::Config(format!("{what} is given twice; give it once"))),
        }
    }
}

/// The first repeated value.
fn twice<T: PartialEq>(values: &[T]) -> Option<&T> {
    let repeated = values.iter().enumerate().find(|(at, value)| values[..*at].contains(value));
    repeated.map(|(_, value)| value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::known;

    #[test]
    fn what_cannot_run_is_refused() {
        let refused = |change: fn(&mut Experiment)| {
            let mut experiment = Experiment::default();
            change(&mut experiment);
            experiment.check().unwrap_err().to_string()
        };
        assert!(Experiment::default().check().is_ok());
        assert!(refused(|e| e.workers = 0).contains("workers"));
        assert!(refused(|e| e.steps = 0).contains("steps"));
        assert!(refused(|e| e.epochs = Some(-1.0)).contains("epochs"));
        assert!(refused(|e| e.clip = Some(0.0)).contains("clip"));
        assert!(refused(|e| e.links_mbit = vec![0.0]).contains("link"));
        assert!(refused(|e| e.links_mbit.clear()).contains("links_mbit must be at least 1"));
        assert!(refused(|e| e.links_mbit = vec![1e-20]).contains("link"));
        assert!(refused(|e| e.latency_ms = 1e23).contains("latency"));
        assert!(refused(|e| e.seeds = vec![3, 3]).contains("seed 3"));
        assert!(refused(|e| e.compressors.push(known("3lc"))).contains("3lc"));
    }
}
