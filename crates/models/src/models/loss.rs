//! What models of images minimise.

use crate::burn::tensor::Tensor;
use crate::burn::tensor::activation::log_softmax;

/// A loss of the scores of images or pixels: the mean over them of a loss of each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Cross-entropy of the softmax.
    CrossEntropy,
    /// Half of the squared distance from 1 for the label and −1 for the other classes.
    SquaredError,
}

impl Loss {
    /// The targets for the label and for the other classes.
    pub(super) fn targets(self) -> [f32; 2] {
        match self {
            Loss::CrossEntropy => [1.0, 0.0],
            Loss::SquaredError => [1.0, -1.0],
        }
    }

    /// The mean over the rows of `scores`, with targets of the same shape.
    pub(super) fn mean(self, scores: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
        let [rows, _] = scores.dims();
        match self {
            Loss::CrossEntropy => (log_softmax(scores, 1) * targets).sum() / -(rows as f32),
            Loss::SquaredError => {
                let differences = scores - targets;
                (differences.clone() * differences).sum() / (2.0 * rows as f32)
            }
        }
    }

    /// The values that [`of`](Self::of) takes; the highest of a row is at the highest score.
    pub(super) fn values(self, scores: Tensor<2>) -> Tensor<2> {
        match self {
            Loss::CrossEntropy => log_softmax(scores, 1),
            Loss::SquaredError => scores,
        }
    }

    /// The loss of one image or pixel, from its row of [values](Self::values).
    pub(super) fn of(self, row: &[f32], label: usize) -> f64 {
        match self {
            Loss::CrossEntropy => -f64::from(row[label]),
            Loss::SquaredError => {
                let [of_label, of_others] = self.targets().map(f64::from);
                let target = |class: usize| if class == label { of_label } else { of_others };
                let values = row.iter().enumerate();
                values.map(|(class, &value)| (f64::from(value) - target(class)).powi(2) / 2.0).sum()
            }
        }
    }
}
