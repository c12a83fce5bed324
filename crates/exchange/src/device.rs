//! Groups of tensors that a device compresses, such as a GPU.

use std::ops::Range;

use crate::Result;
use crate::error::refuse;

/// A group of tensors on a device, such as a GPU, which computes and adds [device
/// forms](gradwire::device) of messages.
///
/// The device keeps the residuals; the reducer keeps the
/// [arrays](gradwire::multi_round::KeptValues) of multi-round methods. In each step,
/// [`forms`](Self::forms) is called first. With all-gather, [`add`](Self::add) follows for each
/// rank; with all-reduce, [`addends`](Self::addends) for each round, and then
/// [`add_means`](Self::add_means).
pub trait DeviceGroup {
    /// This rank's device form of each tensor, in the order of the group, once the device has
    /// computed them. A tensor that all-reduce averages in [rounds](gradwire::MultiRound) has no
    /// bytes here.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn forms(&mut self) -> Result<DeviceForms<'_>>;

    /// Rolls the residuals back to the beginning of the step, and makes all values NaN. Messages of
    /// some ranks may have been [added](Self::add) before. No other call follows in this step.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn skip(&mut self) -> Result<()>;

    /// Adds `weight` times the messages of a rank to the means, which are zeros before rank 0.
    /// `ranges` has the bytes of each tensor's form. Called once for each rank, in order; this
    /// rank's own messages are among them.
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

    /// This rank's addends of a round, as little-endian `f32`, once the device has computed them.
    /// `forms` has the forms that the host computed for them; `tensors` has the places of the form
    /// and the addend of each tensor with this round. Called once for each round that some tensor
    /// has, in order.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn addends(
        &mut self,
        round: usize,
        forms: &[u8],
        tensors: &[Option<RoundForm>],
    ) -> Result<&[u8]>;

    /// Adds the means of messages and of rounds to the group's means, which are zeros before.
    /// `ranges` has the bytes of each tensor's form. Called once, last.
    ///
    /// # Errors
    /// Any; the exchange ends.
    fn add_means(&mut self, forms: &[u8], ranges: &[Range<usize>]) -> Result<()>;
}

/// The place of a tensor in the buffers of a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoundForm {
    /// The bytes of the tensor's form, which the host has computed. They start at a multiple of
    /// four.
    pub form: Range<usize>,
    /// The bytes of the tensor's addend, which the device returns. Addends follow each other
    /// without gaps.
    pub addend: Range<usize>,
}

/// The forms that a device computed for a group's tensors.
#[derive(Debug)]
pub struct DeviceForms<'a> {
    /// All forms.
    pub bytes: &'a [u8],
    /// The bytes of each tensor's form.
    pub ranges: &'a [Range<usize>],
    /// An element that is not finite, if there is one; the forms are then useless.
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

/// The values of a group, in this process or on a device.
pub(crate) enum Values<'a> {
    /// The gradients, which the means replace.
    Host(&'a mut [f32]),
    /// A device that compresses the gradients and adds to the means.
    Device(&'a mut dyn DeviceGroup),
}

impl<'a> Values<'a> {
    /// The values in this process, for an exchange that does not support devices.
    ///
    /// # Errors
    /// `Config` if they are on a device.
    pub(crate) fn on_host(self) -> Result<&'a mut [f32]> {
        match self {
            Self::Host(values) => Ok(values),
            Self::Device(_) => refuse(
                "a device can compress only for all-gather and all-reduce; use one of them, or compress on the host",
            ),
        }
    }
}

/// The forms of a group's tensors, as a device gets them.
#[derive(Default)]
pub(crate) struct Forms {
    pub(crate) bytes: Vec<u8>,
    /// The bytes of each tensor's form.
    pub(crate) ranges: Vec<Range<usize>>,
}

impl Forms {
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.ranges.clear();
    }

    /// Adds the form that `write` appends.
    pub(crate) fn push<E>(
        &mut self,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        // Forms are aligned to four bytes.
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        let start = self.bytes.len();
        write(&mut self.bytes)?;
        self.ranges.push(start..self.bytes.len());
        Ok(())
    }
}
