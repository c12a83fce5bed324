//! Checks of an experiment before it runs.

use super::Experiment;
use crate::TestbedError;

impl Experiment {
    /// Refuses invalid experiments, with the reason.
    pub fn check(&self) -> Result<(), TestbedError> {
        self.settings.check().map_err(TestbedError::Config)?;
        let counts = [
            ("the number of compressors", self.compressors.len()),
            ("the number of seeds", self.seeds.len()),
            ("the number of links", self.links.len()),
            ("evaluations", self.evaluations as usize),
        ];
        if let Some((what, _)) = counts.into_iter().find(|(_, count)| *count == 0) {
            return Err(TestbedError::Config(format!("{what} must be at least 1")));
        }
        let is_positive = |value: &f64| value.is_finite() && *value > 0.0;
        match self.epochs.filter(|epochs| !is_positive(epochs)) {
            Some(epochs) => Err(TestbedError::Config(format!(
                "epochs (--epochs) must be a positive number, not {epochs}"
            ))),
            None => self.distinct(),
        }
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
        assert!(refused(|e| e.links.clear()).contains("number of links must be at least 1"));
        assert!(refused(|e| e.seeds = vec![3, 3]).contains("seed 3"));
        assert!(refused(|e| e.compressors.push(known("3lc"))).contains("3lc"));
    }
}
