//! New weights at addresses, for a sender.

use gradwire_delta::{Changes, Error, NewElements, Patched, Tensor};
use pyo3::prelude::*;

use super::memory::Described;
use crate::buffer::Bytes;
use crate::errors::Failure;

/// The changes of a tensor: its description with the address of the new values, the address of the
/// positions as int32, and for each part the number of changes up to its end; see
/// [`gradwire_delta::Changes`].
#[derive(FromPyObject)]
pub(super) struct DescribedChanges(Described, usize, Vec<usize>);

/// New weights at addresses: whole tensors, and changes.
pub(super) struct NewWeights {
    whole: Vec<(Tensor, Bytes)>,
    changed: Vec<Changed>,
}

struct Changed {
    tensor: Tensor,
    ends: Vec<usize>,
    positions: Bytes,
    values: Bytes,
}

impl NewWeights {
    /// Takes tensors that are given whole, and others that are given by their changes.
    pub(super) fn new(
        whole: Vec<Described>,
        changed: Vec<DescribedChanges>,
    ) -> Result<Self, Failure> {
        Ok(Self {
            whole: whole.into_iter().map(Described::whole).collect::<Result<_, _>>()?,
            changed: changed.into_iter().map(changes).collect::<Result<_, _>>()?,
        })
    }

    /// The weights as the sender takes them.
    pub(super) fn patched(&self) -> Result<Patched<'_>, Error> {
        let whole =
            self.whole.iter().map(|(tensor, bytes)| (tensor, NewElements::Whole(bytes.get())));
        let changed = self.changed.iter().map(|changed| {
            let Changed { tensor, ends, positions, values } = changed;
            let (ends, positions) = (ends.clone(), words(positions));
            (tensor, NewElements::Changes(Changes { ends, positions, values: values.get() }))
        });
        Patched::new(whole.chain(changed).map(|(tensor, new)| (tensor.clone(), new)))
    }
}

fn changes(
    DescribedChanges(described, positions, ends): DescribedChanges,
) -> Result<Changed, Failure> {
    let count = ends.last().copied().unwrap_or(0);
    let (tensor, values) = described.some(count)?;
    if !positions.is_multiple_of(4) {
        return Err(Failure::config(format!("{positions:#x} is not an address of an int32")));
    }
    Ok(Changed { tensor, ends, positions: Bytes::new(positions, 4 * count), values })
}

fn words(bytes: &Bytes) -> &[u32] {
    match bytes.get() {
        [] => &[],
        bytes => bytemuck::cast_slice(bytes),
    }
}
