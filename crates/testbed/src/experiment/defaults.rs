//! Default settings for each model.

use gradwire_models::TaskKind;
use gradwire_models::models::ModelKind;
use gradwire_models::schedule::LearningRate;

use super::{Experiment, known};

impl Experiment {
    /// The default learning rate of a model. Models with batch normalisation use the rate of the
    /// 3LC paper, scaled by the number of workers, with a warm-up. Models without it use a lower
    /// one. The rate of language models falls in steps, as in Sattler et al., Table III.
    pub fn learning_rate_for(model: ModelKind) -> LearningRate {
        match model {
            ModelKind::ResNet { .. }
            | ModelKind::ResNet9
            | ModelKind::DenseNet40
            | ModelKind::ResNet18
            | ModelKind::ResNet50 => known("cosine:from=0.1,to=0.001,scale=on,warmup=0.05"),
            ModelKind::CharLstm(_) => {
                known("step:from=1,factor=0.8,at=0.3125+0.5+0.625+0.75+0.875")
            }
            ModelKind::WordLstm(_) => known("step:from=1,factor=0.8,after=0.4,every=0.02"),
            ModelKind::Mlp { .. }
            | ModelKind::LeNet5 { .. }
            | ModelKind::CifarCnn
            | ModelKind::Vgg16
            | ModelKind::Vgg19
            | ModelKind::AlexNet
            | ModelKind::UNet { .. } => known("cosine:from=0.01,to=0.0001"),
            ModelKind::Ncf => known("0.001"),
            ModelKind::Gpt(_) => known("cosine:from=0.001,to=0.0001,warmup=0.05"),
        }
    }

    /// The same experiment with another model and its default settings. Transformers are trained as
    /// nanoGPT does on a CPU: AdamW with β₂ = 0.99, a weight decay of 0.1, 12 windows a worker,
    /// gradients clipped to a norm of 1. LSTMs are trained as in the paper on sparse binary
    /// compression (Sattler et al., arXiv:1805.08768, Table III): plain SGD at a learning rate that
    /// begins with 1, five streams a worker, gradients clipped to a norm of 5, no weight decay. The
    /// model of ratings is trained with Adam, as He et al. do ("Neural collaborative filtering",
    /// WWW 2017), on 64 ratings a worker and step, each with four negative samples. Models of
    /// images keep all settings but the learning rate.
    pub fn suiting(mut self, model: ModelKind) -> Self {
        self.model = model;
        self.learning_rate = Self::learning_rate_for(model);
        match model.task() {
            TaskKind::Images | TaskKind::Segmentation => {}
            TaskKind::Ratings => {
                self.optimizer = known("adam");
                self.batch = 64;
                self.weight_decay = 0.0;
            }
            TaskKind::Text if matches!(model, ModelKind::Gpt(_)) => {
                self.batch = 12;
                self.optimizer = known("adamw:beta2=0.99");
                self.weight_decay = 0.1;
                self.clip = Some(1.0);
                self.evaluate_at_most = 20_000;
            }
            TaskKind::Text => {
                self.batch = 5;
                self.optimizer = known("sgd");
                self.weight_decay = 0.0;
                self.clip = Some(5.0);
                self.evaluate_at_most = 20_000;
            }
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn language_models_have_settings_of_their_own() {
        let experiment = Experiment::default().suiting(known("wordlstm"));
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
        let rate = Experiment::learning_rate_for(known("charlstm:hidden=64"));
        let falls: Vec<u64> =
            (1..16_000).filter(|&s| rate.at(s, 16_000, 4) < rate.at(s - 1, 16_000, 4)).collect();
        assert_eq!(falls, [5_000, 8_000, 10_000, 12_000, 14_000]);
    }
}
