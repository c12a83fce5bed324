//! What an experiment cannot be.

use std::fmt::Display;

use super::Experiment;
use crate::TestbedError;

impl Experiment {
    /// Refuses what cannot run, with the reason.
    pub fn check(&self) -> Result<(), TestbedError> {
        let positive = |what: &str, value: bool| {
            let refused = TestbedError::Config(format!("{what} must be at least 1"));
            if value { Ok(()) } else { Err(refused) }
        };
        positive("workers", self.workers > 0)?;
        positive("batch", self.batch > 0)?;
        positive("the number of compressors", !self.compressors.is_empty())?;
        positive("the number of seeds", !self.seeds.is_empty())?;
        positive("evaluations", self.evaluations > 0)?;
        positive("evaluate_at_most", self.evaluate_at_most > 0)?;
        match self.epochs {
            None => positive("steps", self.steps > 0)?,
            Some(epochs) if epochs.is_finite() && epochs > 0.0 => {}
            Some(epochs) => {
                let message = format!("epochs must be a positive number, not {epochs}");
                return Err(TestbedError::Config(message));
            }
        }
        if !self.weight_decay.is_finite() || self.weight_decay < 0.0 {
            let message = format!("weight decay must not be negative: {}", self.weight_decay);
            return Err(TestbedError::Config(message));
        }
        if !(self.deadline_s > 0.0 && self.deadline_s <= LONGEST_DEADLINE) {
            let message = format!(
                "the deadline must be above 0 and at most {LONGEST_DEADLINE} seconds, not {}",
                self.deadline_s
            );
            return Err(TestbedError::Config(message));
        }
        if !self.l1.is_finite() || self.l1 < 0.0 {
            let message = format!("l1 must not be negative: {}", self.l1);
            return Err(TestbedError::Config(message));
        }
        if let Some(norm) = self.clip.filter(|norm| !(norm.is_finite() && *norm > 0.0)) {
            let message = format!("clip must be a positive number, not {norm}");
            return Err(TestbedError::Config(message));
        }
        if let Some(bad) = self.links_mbit.iter().find(|mbit| !(mbit.is_finite() && **mbit > 0.0)) {
            let message = format!("a link of {bad} Mbit/s carries nothing; give a positive number");
            return Err(TestbedError::Config(message));
        }
        if !(self.participation > 0.0 && self.participation <= 1.0) {
            let message =
                format!("participation must be above 0 and at most 1, not {}", self.participation);
            return Err(TestbedError::Config(message));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            let message = format!("dropout must be at least 0 and below 1, not {}", self.dropout);
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

/// A day, in seconds.
const LONGEST_DEADLINE: f64 = 86_400.0;

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
