//! Update rules, and the optimizer that applies one to each tensor of a model.

use gradwire::{State, StateError, Tensor};
use gradwire_exchange::Optimizer;

/// An update of one tensor.
#[derive(Debug, Clone, Copy)]
pub(super) struct Step {
    pub(super) learning_rate: f32,
    /// The weight decay of the tensor.
    pub(super) decay: f32,
    /// Updates of the tensor, this one included.
    pub(super) updates: u64,
    /// The rows and columns of the tensor, if the rule updates it as a matrix.
    pub(super) matrix: Option<[usize; 2]>,
}

/// An update rule for a single tensor: the settings of an optimizer.
pub(super) trait Rule: Send {
    /// The names of its vectors for each tensor, 0 at first.
    const STATE: &[&str];
    /// Whether the first of them is a momentum.
    const HAS_MOMENTUM: bool = false;
    /// Whether it depends on the number of updates, which is then part of the state.
    const COUNTS_UPDATES: bool = false;

    /// Whether weight decay applies to this tensor.
    fn decays(&self, tensor: &Tensor) -> bool {
        let _ = tensor;
        true
    }

    /// Whether a tensor has the vector with this place in [`STATE`](Self::STATE).
    fn keeps(&self, tensor: &Tensor, at: usize) -> bool {
        let _ = (tensor, at);
        true
    }

    /// The rows and columns of a tensor that the rule updates as a matrix; `None` if it treats
    /// elements one by one.
    fn matrix(&self, tensor: &Tensor) -> Option<[usize; 2]> {
        let _ = tensor;
        None
    }

    /// Whether ranks exchange gradients at every step.
    fn exchanges_gradients(&self) -> bool {
        true
    }

    /// Replaces a gradient by the values that ranks exchange in its place before the update `step`.
    fn to_exchange(
        &self,
        step: Step,
        parameters: &[f32],
        state: &[Vec<f32>],
        gradient: &mut [f32],
    ) {
        let _ = (step, parameters, state, gradient);
    }

    /// Updates parameters and state.
    fn update(&self, step: Step, gradient: &[f32], parameters: &mut [f32], state: &mut [Vec<f32>]);
}

/// One rule, with a state for each tensor of a model.
pub(super) struct PerTensor<R> {
    rule: R,
    tensors: Vec<TensorState>,
}

struct TensorState {
    name: String,
    decay: f32,
    matrix: Option<[usize; 2]>,
    vectors: Vec<Vec<f32>>,
    updates: u64,
}

impl TensorState {
    /// The next update.
    fn next(&self, learning_rate: f32) -> Step {
        let Self { decay, updates, matrix, .. } = *self;
        Step { learning_rate, decay, updates: updates + 1, matrix }
    }
}

impl<R: Rule> PerTensor<R> {
    /// The optimizer of these tensors before their first update.
    pub(super) fn new(rule: R, tensors: &[Tensor], decay: f32) -> Self {
        let vector = |tensor: &Tensor, at| match rule.keeps(tensor, at) {
            true => vec![0.0; tensor.elements()],
            false => Vec::new(),
        };
        let before = |tensor: &Tensor| TensorState {
            name: tensor.name().to_owned(),
            decay: if rule.decays(tensor) { decay } else { 0.0 },
            matrix: rule.matrix(tensor),
            vectors: (0..R::STATE.len()).map(|at| vector(tensor, at)).collect(),
            updates: 0,
        };
        Self { tensors: tensors.iter().map(before).collect(), rule }
    }
}

impl<R: Rule> Optimizer for PerTensor<R> {
    fn update(
        &mut self,
        index: usize,
        learning_rate: f32,
        gradient: &[f32],
        parameters: &mut [f32],
    ) {
        let tensor = &mut self.tensors[index];
        let step = tensor.next(learning_rate);
        tensor.updates = step.updates;
        self.rule.update(step, gradient, parameters, &mut tensor.vectors);
    }

    fn exchanges_gradients(&self) -> bool {
        self.rule.exchanges_gradients()
    }

    fn to_exchange(&self, index: usize, parameters: &[f32], gradient: &mut [f32]) {
        let tensor = &self.tensors[index];
        // The exchanged values do not depend on the learning rate.
        self.rule.to_exchange(tensor.next(0.0), parameters, &tensor.vectors, gradient);
    }

    /// Resets the momentum of these elements; scales, such as second moments, stay.
    fn mask(&mut self, index: usize, positions: &[u32]) {
        if R::HAS_MOMENTUM {
            let momentum = &mut self.tensors[index].vectors[0];
            positions.iter().for_each(|&position| momentum[position as usize] = 0.0);
        }
    }

    fn save(&self, prefix: &str, state: &mut State) {
        for TensorState { name, vectors, updates, .. } in &self.tensors {
            for (entry, vector) in R::STATE.iter().zip(vectors) {
                state.set_floats(&format!("{prefix}{name}/{entry}"), vector.clone());
            }
            if R::COUNTS_UPDATES {
                state.set_number(&format!("{prefix}{name}/updates"), *updates);
            }
        }
    }

    fn restore(&mut self, prefix: &str, state: &State) -> Result<(), StateError> {
        for TensorState { name, vectors, updates, .. } in &mut self.tensors {
            for (entry, vector) in R::STATE.iter().zip(vectors) {
                let entry = format!("{prefix}{name}/{entry}");
                *vector = state.floats_of(&entry, vector.len())?.to_vec();
            }
            if R::COUNTS_UPDATES {
                *updates = state.number(&format!("{prefix}{name}/updates"))?;
            }
        }
        Ok(())
    }
}
