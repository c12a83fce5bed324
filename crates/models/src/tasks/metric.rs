//! The measures of a model's quality.

use serde::{Deserialize, Serialize};

use crate::models::Score;

/// A measure of a model's quality.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Metric {
    /// The fraction of test images whose class had the highest score, 0 to 1; more is better.
    #[default]
    Accuracy,
    /// e to the power of the mean cross-entropy of a test token, from 1 on; less is better. A
    /// choice among N equally likely tokens has the perplexity N.
    Perplexity,
    /// Intersection over union of the second class: among test pixels of this class or predicted as
    /// such, the fraction that is both, 0 to 1; more is better.
    Iou,
    /// Hit rate at 10: the fraction of users whose held-out item is among the ten highest scores,
    /// ranked with 99 items new to the user, 0 to 1; more is better.
    HitRate,
}

impl Metric {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Accuracy => "accuracy",
            Metric::Perplexity => "perplexity",
            Metric::Iou => "IoU",
            Metric::HitRate => "hit rate",
        }
    }

    /// Whether a quality is a fraction, 0 to 1, and more is better. For a perplexity less is
    /// better.
    pub fn is_fraction(self) -> bool {
        self != Metric::Perplexity
    }

    /// The quality from an evaluation.
    pub fn quality(self, score: &Score) -> f64 {
        let examples = score.examples as f64;
        match self {
            Metric::Accuracy | Metric::HitRate => score.correct as f64 / examples,
            Metric::Iou if score.either == 0 => 1.0,
            Metric::Iou => score.both as f64 / score.either as f64,
            // JSON has no infinite numbers.
            Metric::Perplexity => (score.loss / examples).exp().min(f64::MAX),
        }
    }

    /// A quality for readers: `91.05 %`, or `3.635`.
    pub fn show(self, quality: f64) -> String {
        match self {
            Metric::Accuracy | Metric::Iou | Metric::HitRate => format!("{:.2} %", quality * 100.0),
            Metric::Perplexity if quality < 10.0 => format!("{quality:.3}"),
            // The largest number stands for an infinite perplexity; records keep six digits of it.
            Metric::Perplexity if quality >= 1e300 => "diverged".to_owned(),
            Metric::Perplexity if quality >= 1e6 => format!("{quality:.1e}"),
            Metric::Perplexity => format!("{quality:.2}"),
        }
    }
}
