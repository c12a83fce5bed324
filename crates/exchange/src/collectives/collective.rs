//! The trait of all collectives.

use super::reduction::Reduction;
use crate::error::refuse;
use crate::group::Group;
use crate::{DeviceGroup, Result};

/// Averages groups of tensors over all ranks.
pub(crate) trait Collective: Send {
    /// The number of values of a group.
    fn values(&self, group: &Group) -> usize {
        group.elements()
    }

    /// Averages one group of tensors.
    ///
    /// In: `values` holds this rank's gradients of the group's tensors, concatenated. Out: `values` holds their mean
    /// over all ranks, with the same bits on every rank. After an error the content is unspecified.
    fn reduce(&mut self, step: &mut Reduction<'_>, values: &mut [f32]) -> Result<()>;

    /// Averages one group of tensors that a device compresses.
    fn reduce_device(
        &mut self,
        _step: &mut Reduction<'_>,
        _device: &mut dyn DeviceGroup,
    ) -> Result<()> {
        refuse(
            "a device compresses for all-gather and all-reduce; use one of them, or compress on the host",
        )
    }
}
