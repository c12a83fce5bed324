//! Averages of gradients with the factor of a loss that is scaled up, of values of another type,
//! and multiples of means.

use gradwire::Dtype;

use super::{OnNonFinite, Outcome, Reducer};
use crate::{ExchangeError, Result};

impl Reducer {
    /// Multiplies the means of the averages from now on, for example by the number of ranks for
    /// sums; at first by 1. Most exchanges do so as they add messages, without a pass of its own.
    /// Averages of [devices](Self::average_device) and [of 16 bits in place](Self::average_halves)
    /// are not multiplied. The factor is no gradient: 0 gives zeros, and NaN or infinity gives
    /// means that are not finite, but no step is skipped and no exchange ends.
    pub fn multiply_by(&mut self, factor: f32) {
        self.factor = factor;
    }

    /// As [`average`](Self::average), for gradients times `scale`, the factor of a loss that is
    /// scaled up. Compressors see the gradients without the factor, so residuals do not depend on
    /// it; their means are multiplied by it. Tensors that `none` sends in the [element
    /// type](Self::form_of) of the group keep the factor, because gradients without it may not be
    /// numbers of this type.
    ///
    /// A `scale` of NaN says that the step is not finite, even if the group has no elements. So
    /// does a scale of 0 or infinity, from which no gradients can be computed.
    ///
    /// # Errors
    /// As for [`average`](Self::average); [`Scale`](ExchangeError::Scale) for such a scale, unless
    /// steps that are not finite are [skipped](OnNonFinite::Skip).
    pub fn average_scaled(
        &mut self,
        group: usize,
        step: u64,
        values: &mut [f32],
        scale: f32,
    ) -> Result<Outcome> {
        if scale == 1.0 {
            return self.average(group, step, values);
        }
        if let Err(refused) = self.check_scale(scale) {
            return self.within(step, |_| Err(refused));
        }
        let scale = if divides(scale) { scale } else { f32::NAN };
        self.each_scaled(group, step, values, |value| *value /= scale);
        self.told_non_finite = scale.is_nan();
        let outcome = self.average(group, step, values);
        self.told_non_finite = false;
        self.each_scaled(group, step, values, |value| *value *= scale);
        outcome
    }

    /// Averages a group whose values have another type: `read` fills a buffer with them as `f32`,
    /// and `write` receives the buffer with the means. The buffer is reused from call to call.
    /// `scale` is as for [`average_scaled`](Self::average_scaled).
    ///
    /// # Errors
    /// As for [`average_scaled`](Self::average_scaled); `write` is called also after an error.
    pub fn average_converted(
        &mut self,
        group: usize,
        step: u64,
        scale: f32,
        read: impl FnOnce(&mut Vec<f32>),
        write: impl FnOnce(&mut [f32]),
    ) -> Result<Outcome> {
        let mut wide = std::mem::take(&mut self.wide);
        read(&mut wide);
        let outcome = self.average_scaled(group, step, &mut wide, scale);
        write(&mut wide);
        self.wide = wide;
        outcome
    }

    /// Refuses a scale from which no gradients can be computed, unless the step is then skipped.
    pub(super) fn check_scale(&self, scale: f32) -> Result<()> {
        match divides(scale) || self.config.on_non_finite == OnNonFinite::Skip {
            true => Ok(()),
            false => Err(ExchangeError::Scale(scale)),
        }
    }

    /// Changes the values of a group whose compressors do not see the factor of the loss. Leaves
    /// values that [`average`](Self::average) refuses.
    fn each_scaled(&self, at: usize, step: u64, values: &mut [f32], change: impl Fn(&mut f32)) {
        let Ok(group) = self.check_len(at, values.len()) else { return };
        self.collective.each_place(group, &mut |tensor, place| {
            let spec = self.codecs.spec_at(group.indices[tensor], step);
            if group.dtype == Dtype::F32 || !spec.sends_gradients() {
                values[place].iter_mut().for_each(&change);
            }
        });
    }
}

/// Whether gradients can be computed from values that are multiplied by `scale`.
pub(super) fn divides(scale: f32) -> bool {
    scale.is_finite() && scale != 0.0
}
