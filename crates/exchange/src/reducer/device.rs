//! Averages of tensors that a device compresses.

use super::{OnNonFinite, Outcome, Reducer};
use crate::device::Values;
use crate::error::refuse;
use crate::{DeviceGroup, ExchangeError, Result};

impl Reducer {
    /// Averages a group that a device compresses, as [`average`](Self::average) does. Messages have
    /// the same layout as the host's, so some ranks may use devices and others not. Supports
    /// all-gather with compressors that have a [device form](gradwire::Compressor::device_form).
    /// Supports all-reduce with multi-round methods that have [device
    /// rounds](gradwire::MultiRound::device_rounds), and with linear compressors whose residual
    /// does not depend on the returned message. With all-gather the device must apply a vote
    /// ([`gradwire::Aggregation::Vote`]) to the mean itself. If a later group of the step is
    /// skipped, the device must roll back the residuals that earlier groups of the step have
    /// changed.
    ///
    /// # Errors
    /// As for [`average`](Self::average).
    pub fn average_device(
        &mut self,
        group: usize,
        step: u64,
        device: &mut dyn DeviceGroup,
    ) -> Result<Outcome> {
        self.within(step, |reducer| reducer.try_average_device(group, step, device))
    }

    fn try_average_device(
        &mut self,
        at: usize,
        step: u64,
        device: &mut dyn DeviceGroup,
    ) -> Result<Outcome> {
        let Some(group) = self.groups.get(at) else {
            return refuse(format!("there is no group {at}; form it first"));
        };
        // The step has not begun, so the codecs may still have the compressors of the previous
        // step.
        let changes = |index: usize| self.codecs.spec_at(index, step).sends_changes();
        if let Some(&index) = group.indices.iter().find(|&&index| changes(index)) {
            return refuse(format!(
                "'{}' has ef=ef21, and the host keeps its sum of changes; average the group with `average`",
                self.config.tensors[index].name()
            ));
        }
        let bad = device.forms()?.non_finite;
        let skips = self.config.on_non_finite == OnNonFinite::Skip;
        let tells = skips && self.collective.tells_non_finite();
        match bad {
            Some(bad) if !skips => {
                let tensor = self.groups[at].tensors[bad.tensor].name().to_owned();
                let error =
                    gradwire::Error::NonFinite { tensor, index: bad.index, value: bad.value };
                return Err(ExchangeError::from(error));
            }
            _ if tells && !self.skipping => self.copy_state(),
            _ if skips => _ = self.skips(step, bad.is_none())?,
            _ => {}
        }
        if !self.skipping {
            self.reduce(at, step, None, |collective, step| {
                (step.tells, step.finite) = (tells, bad.is_none());
                collective.reduce(step, Values::Device(device))
            })?;
        }
        if self.skipping {
            device.skip()?;
            return Ok(Outcome::Skipped);
        }
        Ok(Outcome::Averaged)
    }
}
