//! The cost and the content of a reducer's last messages, and the arrays that it keeps.

use gradwire::{Kept, Spec};

use super::Reducer;
use crate::codecs::SentElements;
use crate::error::refuse;
use crate::{Result, StepReport};

impl Reducer {
    /// The cost of the step in progress so far; its `update` is 0.
    pub fn report(&self) -> StepReport {
        self.report
    }

    /// The length in bytes of this rank's messages for its gradients, of the step in progress; a
    /// message to several ranks counts once. Averages that an owner or a leader sends on are not
    /// included; [`report`](Self::report) has all traffic.
    pub fn message_bytes(&self) -> usize {
        self.message_bytes
    }

    /// The compressor of the tensor at this place of the model, at a step.
    ///
    /// # Panics
    /// If the model has fewer tensors.
    pub fn spec_at(&self, index: usize, step: u64) -> &Spec {
        self.codecs.spec_at(index, step)
    }

    /// The length in bytes of this rank's last messages for the tensor at this place of the model;
    /// 0 before the first.
    ///
    /// # Panics
    /// If the model has fewer tensors.
    pub fn message_bytes_of(&self, index: usize) -> usize {
        self.codecs.sent_elements(index).bytes
    }

    /// The elements of a tensor that this rank's last message carried; see
    /// [`DistributedOptimizer::sent`](crate::DistributedOptimizer::sent).
    pub fn sent(&self, name: &str) -> Option<&[u32]> {
        self.sent_elements(*self.by_name.get(name)?).positions()
    }

    /// The elements of a tensor that this rank's last messages carried.
    pub(crate) fn sent_elements(&self, index: usize) -> &SentElements {
        self.codecs.sent_elements(index)
    }

    /// Swaps the elements that this rank's last messages carried with `carried`.
    pub(crate) fn swap_sent_elements(&mut self, index: usize, sent_elements: &mut SentElements) {
        self.codecs.swap_sent_elements(index, sent_elements);
    }

    /// The array of this kind kept for a tensor of the model; `None` if there is none yet.
    pub fn array(&self, name: &str, kind: Kept) -> Option<&[f32]> {
        self.codecs.array(name, kind)
    }

    /// Replaces the array of this kind kept for a tensor. For arrays that a device keeps.
    ///
    /// # Errors
    /// `Config` for a tensor that the model does not have, or an array of another length.
    pub fn set_array(&mut self, name: &str, kind: Kept, values: Option<Vec<f32>>) -> Result<()> {
        let Some(&at) = self.by_name.get(name) else {
            return refuse(format!("there is no tensor '{name}' in this model"));
        };
        let elements = self.config.tensors[at].elements();
        if values.as_ref().is_some_and(|values| values.len() != elements) {
            return refuse(format!(
                "'{name}' has {elements} elements, but the array has another length; give one number per element"
            ));
        }
        self.codecs.set_array(at, kind, values);
        Ok(())
    }

    /// Calls `show` with this rank's residual of a tensor, slice by slice.
    pub(crate) fn residual(&self, index: usize, show: &mut dyn FnMut(&[f32])) {
        self.codecs.residual(index, show);
    }

    pub(crate) fn needs_squares(&self) -> bool {
        self.codecs.needs_squares()
    }
}
