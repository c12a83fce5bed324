//! Default settings for each model.

use gradwire_models::ModelSpec;
use gradwire_train::settings::Setting;

use super::Experiment;
use crate::TestbedError;

impl Experiment {
    /// The same experiment with another model and the settings that suit it
    /// ([`ModelSpec::defaults`]).
    ///
    /// # Errors
    /// If a model of another crate has defaults that are no settings.
    pub fn suiting(mut self, model: ModelSpec) -> Result<Self, TestbedError> {
        for (key, text) in model.defaults() {
            let setting = Setting::named(key).ok_or("there is no such setting".to_owned());
            setting.and_then(|setting| self.set(setting, &[*text])).map_err(|reason| {
                TestbedError::Config(format!(
                    "the model {model} has the default {key} = '{text}', but {reason}; correct its entry"
                ))
            })?;
        }
        self.model = model;
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::known;

    #[test]
    fn language_models_have_settings_of_their_own() {
        let experiment = Experiment::default().suiting(known("wordlstm")).unwrap();
        assert!(experiment.check().is_ok());
        assert_eq!((experiment.batch, experiment.clip), (5, Some(5.0)));
        // 0.8 at iteration 24000 + 1200·n of 60000.
        let rate = |step| experiment.learning_rate.at(step, 60_000, 4);
        let near = |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9);
        near(rate(23_999), 1.0);
        near(rate(24_000), 0.8);
        near(rate(25_199), 0.8);
        near(rate(25_200), 0.64);
        near(rate(59_999), 0.8f64.powi(30));
        let experiment = Experiment::default().suiting(known("charlstm:hidden=64")).unwrap();
        let rate = &experiment.learning_rate;
        let falls: Vec<u64> =
            (1..16_000).filter(|&s| rate.at(s, 16_000, 4) < rate.at(s - 1, 16_000, 4)).collect();
        assert_eq!(falls, [5_000, 8_000, 10_000, 12_000, 14_000]);
    }
}
