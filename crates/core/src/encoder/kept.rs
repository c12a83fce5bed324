//! The arrays that are kept for a tensor from step to step.

use crate::{Compressor, Residual, StateError, Tensor};

/// The arrays of one tensor; `None` before they are needed first.
#[derive(Debug, Default)]
pub(super) struct KeptArrays {
    /// What messages left out so far.
    pub(super) residual: Option<Vec<f32>>,
    /// A running sum or mean of gradients.
    velocity: Option<Vec<f32>>,
    /// What the compressor keeps for itself.
    kept: Option<Vec<f32>>,
}

/// The arrays that one step needs, the rest empty.
pub(super) struct Arrays<'a> {
    pub(super) feedback: Option<(Residual, &'a mut [f32])>,
    pub(super) velocity: &'a mut [f32],
    pub(super) kept: &'a mut [f32],
}

impl KeptArrays {
    /// The arrays for a step of a tensor: a residual with these weights, where there is error feedback, a velocity or
    /// not, and what the compressor keeps for itself. Those that are new are zeros.
    pub(super) fn arrays_of(
        &mut self,
        tensor: &Tensor,
        feedback: Option<Residual>,
        velocity: bool,
        compressor: &dyn Compressor,
    ) -> Result<Arrays<'_>, StateError> {
        let elements = tensor.elements();
        let feedback = match feedback {
            None => None,
            Some(weights) => {
                Some((weights, array(&mut self.residual, "residual", tensor, elements)?))
            }
        };
        let velocity = match velocity {
            false => &mut [][..],
            true => array(&mut self.velocity, "velocity", tensor, elements)?,
        };
        let kept = match kept_len(compressor, tensor) {
            0 => &mut [][..],
            len => array(&mut self.kept, "kept", tensor, len)?,
        };
        Ok(Arrays { feedback, velocity, kept })
    }

    /// Which arrays there are.
    pub(super) fn present(&self) -> [bool; 3] {
        self.named().map(|(_, array)| array.is_some())
    }

    /// Drops the arrays that were not [`present`](Self::present) before.
    pub(super) fn drop_new(&mut self, present: [bool; 3]) {
        for (array, present) in self.named_mut().into_iter().zip(present) {
            if !present {
                *array = None;
            }
        }
    }

    /// All arrays, with their names in saved states.
    pub(super) fn named(&self) -> [(&'static str, &Option<Vec<f32>>); 3] {
        [("residual", &self.residual), ("velocity", &self.velocity), ("kept", &self.kept)]
    }

    /// All arrays, in the order of [`named`](Self::named).
    pub(super) fn named_mut(&mut self) -> [&mut Option<Vec<f32>>; 3] {
        [&mut self.residual, &mut self.velocity, &mut self.kept]
    }
}

/// How many numbers a compressor keeps for itself for a tensor.
fn kept_len(compressor: &dyn Compressor, tensor: &Tensor) -> usize {
    match compressor.rounds() {
        Some(rounds) => rounds.kept_len(tensor.shape()),
        None if compressor.keeps_squares() => tensor.elements(),
        None => 0,
    }
}

fn array<'a>(
    array: &'a mut Option<Vec<f32>>,
    kind: &str,
    tensor: &Tensor,
    len: usize,
) -> Result<&'a mut [f32], StateError> {
    let values = array.get_or_insert_with(|| vec![0.0; len]);
    if values.len() != len {
        return Err(StateError::WrongSize {
            entry: format!("{kind}/{}", tensor.name()),
            found: values.len(),
            expected: len,
        });
    }
    Ok(values)
}
