//! Weights in memory that others write to.

mod common;

use std::ops::Range;
use std::sync::Mutex;

use common::*;
use gradwire_delta::{Buffer, Error, Receiver, Source, Tensor, Tensors};

#[test]
fn weights_that_change_behind_the_receiver_are_found() {
    let old = small()[0].clone();
    let mut new = old.clone();
    new.iter_mut().for_each(|(_, bytes)| bytes[3] ^= 0x80);
    // One stream changes all tensors, of which two make up a pool; the others change one tensor.
    let all = delta(&old, &new);
    let mut receiver = Receiver::new(Locked::new(&old), 1).unwrap();
    for (index, (tensor, _)) in old.iter().enumerate() {
        let mut one = old.clone();
        one[index] = new[index].clone();
        let one = delta(&old, &one);
        receiver.verify().unwrap();
        // Another element of the word that changes: all are decoded, but the hash differs.
        receiver.tensors().flip(index);
        let error = receiver.verify().unwrap_err();
        assert!(matches!(&error, Error::Changed { name } if name == tensor.name()), "{error}");
        let error = receiver.stage([&one[..]]).unwrap_err();
        assert!(matches!(&error, Error::WrongChange { name } if name == tensor.name()), "{error}");
        let error = receiver.stage([&all[..]]).unwrap_err();
        assert!(matches!(error, Error::WrongChange { .. }), "{error}");
        receiver.tensors().flip(index);
    }
    let mut update = receiver.stage([&all[..]]).unwrap();
    receiver.commit(&mut update).unwrap();
    receiver.verify().unwrap();
}

/// Tensors that others can write to.
struct Locked {
    tensors: Vec<Tensor>,
    bytes: Mutex<Vec<Vec<u8>>>,
}

impl Locked {
    fn new(model: &Model) -> Self {
        let (tensors, bytes) = model.iter().cloned().unzip();
        Self { tensors, bytes: Mutex::new(bytes) }
    }

    /// Flips a bit of the mantissa of the element in byte 4.
    fn flip(&self, tensor: usize) {
        self.bytes.lock().unwrap()[tensor][4] ^= 0x40;
    }
}

impl Source for Locked {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        buffer.clear();
        buffer.extend(&self.bytes.lock().unwrap()[tensor][bytes]);
        Ok(buffer)
    }
}

impl Tensors for Locked {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        Ok(self.bytes.get_mut().unwrap().iter_mut().map(|bytes| &mut bytes[..]).collect())
    }
}
