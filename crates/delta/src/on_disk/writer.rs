//! Writing decoded parts into a checkpoint.

use crate::part::{Content, apply};
use crate::safetensors::Checkpoint;
use crate::update::Elements;
use crate::visit::Visitor;
use crate::{Buffer, Error, Source, Tensor};

/// Writes each part as it is decoded.
pub(super) struct Writer<'a> {
    to: &'a Checkpoint,
    /// For each tensor of the base the tensor that it becomes, if it stays.
    places: Vec<Option<usize>>,
    block: Buffer,
}

impl<'a> Writer<'a> {
    pub(super) fn new(base: &dyn Source, to: &'a Checkpoint) -> Self {
        let place = |tensor: &Tensor| {
            to.find(tensor.name()).filter(|&place| to.tensors()[place] == *tensor)
        };
        let places = base.tensors().iter().map(place).collect();
        Self { to, places, block: Buffer::default() }
    }
}

impl Visitor for Writer<'_> {
    fn changed(&mut self, elements: Elements, content: &Content<'_>) -> Result<(), Error> {
        let Some(place) = self.places[elements.tensor] else { return Ok(()) };
        let element = self.to.tensors()[place].element();
        let from = (elements.first * element.width()) as u64;
        match content {
            Content::Same => {}
            Content::Whole(new) => self.to.write(place, from, new)?,
            Content::Changes { .. } => {
                self.block.resize(elements.len * element.width());
                self.to.read_into(place, from, &mut self.block)?;
                apply(element, content, &mut self.block);
                self.to.write(place, from, &self.block)?;
            }
        }
        Ok(())
    }

    fn written(&mut self, tensor: &Tensor, first: usize, new: &[u8]) -> Result<(), Error> {
        let place = self.to.find(tensor.name());
        match place.filter(|&place| self.to.tensors()[place] == *tensor) {
            Some(place) => {
                Ok(self.to.write(place, (first * tensor.element().width()) as u64, new)?)
            }
            None => {
                let name = tensor.name();
                let reason =
                    format!("tensor {name:?} has no place in its files; write the stream again");
                Err(Error::Layout(reason))
            }
        }
    }
}
