//! The arrays that an encoder keeps for a tensor from step to step.

use crate::{Compressor, NonFinite, Residual, StateError, Tensor};

/// The kind of a compressor's own array.
pub(super) const KEPT: &str = "kept";

/// The kinds of arrays in saved states: the residual, a running sum or mean of gradients, and the
/// compressor's own array.
pub(super) const KINDS: [&str; 3] = ["residual", "velocity", KEPT];

/// A kind of array that is kept for a tensor from step to step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// The part of the gradients that messages have not carried yet.
    Residual = 0,
    /// A running sum or mean of gradients.
    Velocity = 1,
}

/// The arrays of one tensor, in the order of [`KINDS`]; `None` until they are first needed.
#[derive(Debug, Default)]
pub(super) struct KeptArrays(pub(super) [Option<Vec<f32>>; 3]);

/// The arrays that one step needs; the others are empty.
pub(super) struct Arrays<'a> {
    pub(super) feedback: Option<(Residual, &'a mut [f32])>,
    pub(super) velocity: &'a mut [f32],
    pub(super) kept: &'a mut [f32],
}

impl KeptArrays {
    /// The residual.
    pub(super) fn residual(&self) -> Option<&[f32]> {
        self.0[0].as_deref()
    }

    /// Refuses a velocity with an element that is not finite. Encoding does not check it: with
    /// finite gradients a finite velocity stays finite.
    pub(super) fn check_velocity(&self) -> Result<(), NonFinite> {
        let velocity = self.0[Kept::Velocity as usize].as_deref().unwrap_or_default();
        let bad = velocity.iter().position(|x| !x.is_finite());
        bad.map_or(Ok(()), |index| Err(NonFinite { index, value: velocity[index] }))
    }

    /// The arrays for a step of a tensor: the residual with these weights, if there is error
    /// feedback; the velocity, if needed; and the compressor's own array. New arrays are zero.
    pub(super) fn arrays_of(
        &mut self,
        tensor: &Tensor,
        feedback: Option<Residual>,
        velocity: bool,
        compressor: &dyn Compressor,
    ) -> Result<Arrays<'_>, StateError> {
        let kept_len = kept_len(compressor, tensor);
        let needed = [feedback.is_some(), velocity, kept_len > 0];
        let lens = [tensor.elements(), tensor.elements(), kept_len];
        let mut slices = [&mut [][..], &mut [], &mut []];
        for (kind, array) in self.0.iter_mut().enumerate().filter(|(kind, _)| needed[*kind]) {
            let values = array.get_or_insert_with(|| vec![0.0; lens[kind]]);
            if values.len() != lens[kind] {
                return Err(StateError::WrongSize {
                    entry: format!("{}/{}", KINDS[kind], tensor.name()),
                    found: values.len(),
                    expected: lens[kind],
                });
            }
            slices[kind] = values;
        }
        let [residual, velocity, kept] = slices;
        Ok(Arrays { feedback: feedback.map(|weights| (weights, residual)), velocity, kept })
    }

    /// Which arrays there are.
    pub(super) fn present(&self) -> [bool; 3] {
        self.0.each_ref().map(Option::is_some)
    }

    /// Drops the arrays that were not [`present`](Self::present) before.
    pub(super) fn drop_new(&mut self, present: [bool; 3]) {
        for (array, present) in self.0.iter_mut().zip(present) {
            if !present {
                *array = None;
            }
        }
    }
}

/// The number of elements of a compressor's own array for a tensor.
fn kept_len(compressor: &dyn Compressor, tensor: &Tensor) -> usize {
    match compressor.rounds() {
        Some(rounds) => rounds.kept().map_or(0, |kept| kept.len(tensor.shape())),
        None if compressor.keeps_squares() => tensor.elements(),
        None => 0,
    }
}
