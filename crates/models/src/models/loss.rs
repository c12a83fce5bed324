//! The loss of models of images.

use super::maps::Maps;
use super::pointwise::cross_entropy;

/// A loss of the scores of images or pixels: the mean of their losses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Cross-entropy of the softmax.
    CrossEntropy,
    /// Half of the squared distance from 1 for the label and −1 for the other classes.
    SquaredError,
}

impl Loss {
    /// The mean over the rows of `scores`, and its gradient.
    ///
    /// # Panics
    /// If there is not one label for each row, or a label is not a class.
    pub(super) fn mean(self, mut scores: Maps, labels: &[u16]) -> (f64, Maps) {
        let classes = scores.image_len();
        assert_eq!(scores.batch(), labels.len(), "a label for each row of scores");
        let mut loss = 0.0;
        for (row, &label) in scores.values_mut().chunks_exact_mut(classes).zip(labels) {
            loss += self.loss_and_gradient(row, label);
        }
        let weight = 1.0 / labels.len() as f32;
        scores.values_mut().iter_mut().for_each(|gradient| *gradient *= weight);
        (loss / labels.len() as f64, scores)
    }

    /// The loss of one image or pixel, whose scores become its gradient.
    pub(super) fn loss_and_gradient(self, scores: &mut [f32], label: u16) -> f64 {
        let label = usize::from(label);
        assert!(label < scores.len(), "label {label} is no class of {}", scores.len());
        match self {
            Loss::CrossEntropy => {
                let loss = cross_entropy(scores, label);
                scores[label] -= 1.0;
                loss
            }
            Loss::SquaredError => {
                let target = |class: usize| if class == label { 1.0 } else { -1.0 };
                let differences = scores.iter_mut().enumerate().map(|(class, score)| {
                    *score -= target(class);
                    f64::from(*score)
                });
                differences.map(|difference| difference * difference / 2.0).sum()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_huge_scores_are_exact() {
        let scores = Maps::new(vec![6e10, 6e10, -6e10, -6e10], [4, 1, 1]);
        let (loss, gradient) = Loss::CrossEntropy.mean(scores, &[1]);
        assert!((loss - f64::ln(2.0)).abs() < 1e-6, "{loss}");
        assert!((gradient.values()[0] - 0.5).abs() < 1e-6, "{gradient:?}");
        assert!((gradient.values()[1] + 0.5).abs() < 1e-6, "{gradient:?}");
    }
}
