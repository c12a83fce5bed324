//! Averages of tensors that a device compresses.

use std::ops::Range;

use super::{OnNonFinite, Outcome, Reducer};
use crate::error::refuse;
use crate::{ExchangeError, Result};

/// A group of tensors on a device, such as a GPU, which computes and adds [device forms](gradwire::device) of messages.
///
/// The device keeps the residuals, and the reducer what is [kept](gradwire::MultiRound::kept) by methods in rounds. In a
/// step it is asked for its forms first. With all-gather [`add`](Self::add) follows for each rank; with all-reduce
/// [`addends`](Self::addends) for each round, and then [`add_means`](Self::add_means).
pub trait DeviceGroup {
    /// This rank's device form of each tensor, in the order of the group, once the device has computed them. A tensor that
    /// all-reduce averages in [rounds](gradwire::MultiRound) has no bytes here.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn forms(&mut self) -> Result<DeviceForms<'_>>;

    /// Rolls the residuals back to the beginning of the step, and makes all values NaN. Nothing follows in this step.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn skip(&mut self) -> Result<()>;

    /// Adds `weight` times the messages of a rank to the means, which are zeros before rank 0. `ranges` has the bytes of
    /// each tensor's form. Called once for each rank, in order; this rank's own messages are among them.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn add(
        &mut self,
        rank: usize,
        weight: f32,
        forms: &[u8],
        ranges: &[Range<usize>],
    ) -> Result<()>;

    /// This rank's addends of a round, as little-endian `f32`, once the device has computed them. `forms` has what the host
    /// computed for them, and `tensors`, for each tensor that has this round, where both are. Called once for each round, in
    /// order, if any tensor has it.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn addends(
        &mut self,
        round: usize,
        forms: &[u8],
        tensors: &[Option<RoundForm>],
    ) -> Result<&[u8]>;

    /// Adds means of messages and of rounds to the means, which are zeros before. `ranges` has the bytes of each tensor's
    /// form. Called once, last.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn add_means(&mut self, forms: &[u8], ranges: &[Range<usize>]) -> Result<()>;
}

/// Where a tensor's part of a round is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundForm {
    /// The bytes of what the host computed, in the forms. They start at a multiple of four.
    pub form: Range<usize>,
    /// The bytes of the addend, in what the device returns. Addends follow each other without gaps.
    pub addend: Range<usize>,
}

/// What a device computed of a group's tensors.
#[derive(Debug)]
pub struct DeviceForms<'a> {
    /// All forms.
    pub bytes: &'a [u8],
    /// The bytes of each tensor's form.
    pub ranges: &'a [Range<usize>],
    /// An element that is not finite, if there is one; the forms are of no use then.
    pub non_finite: Option<NonFiniteElement>,
}

/// An element of a group that is not finite.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NonFiniteElement {
    /// The tensor's place in the group.
    pub tensor: usize,
    /// The element's flat index.
    pub index: usize,
    /// Its value.
    pub value: f32,
}

impl Reducer {
    /// Averages a group that a device compresses, as [`average`](Self::average) does. Messages have the same layout as those
    /// of the host, so some ranks may use devices and others not. For all-gather with compressors that have a
    /// [device form](gradwire::Compressor::device_form), and for all-reduce with methods in rounds that have
    /// [theirs](gradwire::MultiRound::device_rounds), and linear compressors whose residual does not depend on the message
    /// that comes back. With all-gather the device must apply a vote ([`gradwire::Aggregation::Vote`]) to the mean itself.
    /// If a later group of the step is skipped, the device must roll back the residuals that earlier groups of the step have
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
        // The step has not begun, so the codecs may still have the compressors of the step before.
        let changes = |index: usize| self.codecs.spec_at(index, step).sends_changes();
        if let Some(&index) = group.indices.iter().find(|&&index| changes(index)) {
            return refuse(format!(
                "'{}' has ef=ef21, whose sum of changes the host keeps; average the group with `average`",
                self.config.tensors[index].name()
            ));
        }
        if self.config.on_non_finite == OnNonFinite::Skip {
            let finite = device.forms()?.non_finite.is_none();
            if self.skips(step, finite)? {
                device.skip()?;
                return Ok(Outcome::Skipped);
            }
        } else if let Some(bad) = device.forms()?.non_finite {
            let tensor = self.groups[at].tensors[bad.tensor].name().to_owned();
            let error = gradwire::Error::NonFinite { tensor, index: bad.index, value: bad.value };
            return Err(ExchangeError::from(error));
        }
        self.reduce(at, step, None, |collective, reduction| {
            collective.reduce_device(reduction, device)
        })?;
        Ok(Outcome::Averaged)
    }
}
