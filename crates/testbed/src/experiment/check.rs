//! What an experiment cannot be.

use std::fmt::Display;

use super::Experiment;
use crate::TestbedError;

impl Experiment {
    /// Refuses what cannot run, with the reason.
    pub fn check(&self) -> Result<(), TestbedError> {
        self.settings.check().map_err(TestbedError::Config)?;
        let counts = [
            ("the number of compressors", self.compressors.len()),
            ("the number of seeds", self.seeds.len()),
            ("evaluations", self.evaluations as usize),
        ];
        if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TestbedError::Config(format!("{what} must be at least 1")));
        }
        if let Some(epochs) = self.epochs.filter(|epochs| !(epochs.is_finite() && *epochs > 0.0)) {
            let message = format!("epochs must be a positive number, not {epochs}");
            return Err(TestbedError::Config(message));
        }
        if let Some(bad) = self.links_mbit.iter().find(|mbit| !(mbit.is_finite() && **mbit > 0.0)) {
            let message = format!("a link of {bad} Mbit/s carries nothing; give a positive number");
            return Err(TestbedError::Config(message));
        }
        if !(self.latency_ms.is_finite() && self.latency_ms >= 0.0) {
            let message = format!("latency must not be negative: {} ms", self.latency_ms);
            return Err(TestbedError::Config(message));
        }
        self.distinct()
    }

    /// A compressor or seed given twice would be two runs of one name.
    fn distinct(&self) -> Result<(), TestbedError> {
        let twice = |what: &str, value: &dyn Display| {
            Err(TestbedError::Config(format!("{what} {value} is given twice; give it once")))
        };
        for (at, spec) in self.compressors.iter().enumerate() {
            if self.compressors[..at].contains(spec) {
                return twice("compressor", spec);
            }
        }
        for (at, seed) in self.seeds.iter().enumerate() {
            if self.seeds[..at].contains(seed) {
                return twice("seed", seed);
            }
        }
        Ok(())
    }
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
        assert!(refused(|e| e.seeds = vec![3, 3]).contains("seed 3"));
        assert!(refused(|e| e.compressors.push(known("3lc"))).contains("3lc"));
    }
}
