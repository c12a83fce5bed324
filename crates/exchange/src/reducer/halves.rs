//! Averages of values of 16 bits in place.

use gradwire::Dtype;

use super::scaled::divides;
use super::{OnNonFinite, Outcome, Reducer};
use crate::error::refuse;
use crate::mean::ARE_MESSAGES;
use crate::{Exchange, Result, elements};

impl Reducer {
    /// Whether [`average_halves`](Self::average_halves) takes a group at a step: all-reduce sends
    /// all its tensors as they are, in the group's [element type](Self::form_of) of 16 bits, and
    /// does not [multiply](Self::multiply_by) means.
    pub fn takes_halves(&self, group: usize, step: u64) -> bool {
        let sent_as_they_are = |&index: &usize| self.codecs.spec_at(index, step).sends_gradients();
        ARE_MESSAGES
            && self.factor == 1.0
            && self.exchange_at(step) == Exchange::AllReduce
            && self.participation.plain()
            && self.groups.get(group).is_some_and(|group| {
                group.dtype != Dtype::F32 && group.indices.iter().all(sent_as_they_are)
            })
    }

    /// As [`average_converted`](Self::average_converted), for values that stay in their type: their
    /// patterns are replaced by the patterns of their means.
    ///
    /// # Errors
    /// As for [`average_scaled`](Self::average_scaled); `Config` unless the group is
    /// [taken](Self::takes_halves).
    pub fn average_halves(
        &mut self,
        group: usize,
        step: u64,
        scale: f32,
        values: &mut [u16],
    ) -> Result<Outcome> {
        self.within(step, |reducer| reducer.try_average_halves(group, step, scale, values))
    }

    fn try_average_halves(
        &mut self,
        at: usize,
        step: u64,
        scale: f32,
        values: &mut [u16],
    ) -> Result<Outcome> {
        let dtype = self.check_len(at, values.len())?.dtype;
        if !self.takes_halves(at, step) {
            return refuse(format!(
                "the values of group {at} do not travel as numbers of 16 bits at step {step}; use average_converted"
            ));
        }
        self.check_scale(scale)?;
        let skips = self.config.on_non_finite == OnNonFinite::Skip;
        let finite = || divides(scale) && elements::are_finite(values, dtype);
        if skips && self.skips(step, finite())? {
            values.fill(elements::nan_of(dtype));
            return Ok(Outcome::Skipped);
        }
        self.reduce(at, step, None, |collective, step| collective.reduce_halves(step, values))?;
        Ok(Outcome::Averaged)
    }
}
