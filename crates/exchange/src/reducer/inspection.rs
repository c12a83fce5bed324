//! The cost and the content of a reducer's last messages, and the arrays that it keeps.

use gradwire::Spec;

use super::Reducer;
use crate::codecs::{KeptArray, SentElements};
use crate::error::refuse;
use crate::state::read_slice;
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

    /// A kept array of a tensor of the model, or of a slice of one; `None` if there is none yet.
    pub fn array(&self, array: KeptArray<'_>) -> Option<&[f32]> {
        self.codecs.array(array)
    }

    /// Replaces a kept array. For arrays that a device keeps.
    ///
    /// # Errors
    /// `Config` for a tensor or slice that this rank does not encode, or an array of another
    /// length.
    pub fn set_array(&mut self, array: KeptArray<'_>, values: Option<Vec<f32>>) -> Result<()> {
        let (name, slice) = (array.name, read_slice(array.name));
        let tensors = &self.config.tensors;
        let of = |whole: &str| tensors.iter().position(|tensor| tensor.whole().name() == whole);
        let found = self.by_name.get(name).copied().or_else(|| of(slice.as_ref()?.0));
        let Some(at) = found else {
            return refuse(format!("there is no tensor '{name}' in this model"));
        };
        let tensor = &tensors[at];
        let of_slice = slice.filter(|_| tensor.name() != name).map(|(_, range)| range.len());
        let elements = of_slice.unwrap_or(tensor.elements());
        if values.as_ref().is_some_and(|values| values.len() != elements) {
            return refuse(format!(
                "'{name}' has {elements} elements, but the array has another length; give one number per element"
            ));
        }
        match self.codecs.set_array(at, array, values) {
            true => Ok(()),
            false => {
                refuse(format!("'{name}' is not sent in this exchange, which has other slices"))
            }
        }
    }

    /// Selects the exchange and the compressors of a step, as its averages do. For averages that a
    /// device makes by itself: a saved state names the compressors of the last step.
    ///
    /// # Errors
    /// If a kept array does not fit the slices of the exchange.
    pub fn enter(&mut self, step: u64) -> Result<()> {
        self.enter_exchange(step)?;
        self.codecs.enter_all(step);
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
