//! What models of images minimise.

use super::maps::Maps;

/// A loss of the scores of images or pixels: the mean over them of a loss of each.
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
    /// If there is not one label for each row, or a label is no class.
    pub(super) fn mean(self, mut scores: Maps, labels: &[u16]) -> (f64, Maps) {
        let classes = scores.image();
        assert_eq!(scores.batch(), labels.len(), "a label for each row of scores");
        let mean = 1.0 / labels.len() as f32;
        let mut loss = 0.0;
        for (row, &label) in scores.values_mut().chunks_exact_mut(classes).zip(labels) {
            self.prepare(row);
            loss += self.of(row, label);
            for (class, value) in row.iter_mut().enumerate() {
                let chosen = class == usize::from(label);
                *value = mean
                    * match self {
                        Loss::CrossEntropy => value.exp() - if chosen { 1.0 } else { 0.0 },
                        Loss::SquaredError => *value - target(chosen),
                    };
            }
        }
        (loss / labels.len() as f64, scores)
    }

    /// Replaces a row of scores by the values that [`of`](Self::of) takes; the highest stays the highest.
    pub(super) fn prepare(self, row: &mut [f32]) {
        if self == Loss::CrossEntropy {
            let most = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            // The highest score first: together with the logarithm, it would absorb it.
            row.iter_mut().for_each(|score| *score -= most);
            let total = row.iter().map(|score| score.exp()).sum::<f32>().ln();
            row.iter_mut().for_each(|score| *score -= total);
        }
    }

    /// The loss of one image or pixel, from its [prepared](Self::prepare) row.
    pub(super) fn of(self, row: &[f32], label: u16) -> f64 {
        let label = usize::from(label);
        match self {
            Loss::CrossEntropy => -f64::from(row[label]),
            Loss::SquaredError => {
                let distance = |(class, &value): (usize, &f32)| {
                    (f64::from(value) - f64::from(target(class == label))).powi(2) / 2.0
                };
                row.iter().enumerate().map(distance).sum()
            }
        }
    }
}

/// The target of squared errors for the label's class and for the others.
fn target(chosen: bool) -> f32 {
    if chosen { 1.0 } else { -1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_huge_scores_are_exact() {
        let scores = Maps::new(vec![6e10, 6e10, -6e10, -6e10], [4, 1, 1]);
        let (loss, gradient) = Loss::CrossEntropy.mean(scores, &[1]);
        assert!((loss - f64::ln(2.0)).abs() < 1e-6, "{loss}");
        assert_eq!(gradient.values(), [0.5, -0.5, 0.0, 0.0]);
    }
}
