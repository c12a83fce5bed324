//! Updates of a sender that fail, and that do not.

mod common;

use std::ops::Range;

use common::*;
use gradwire_delta::{
    Buffer, Changes, DiffOptions, ElementType, Error, Mirror, NewElements, Patched, Sender, Source,
    Tensor,
};

#[test]
fn a_failed_update_of_the_sender_is_rolled_back() {
    let [old, new] = small();
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let mut ignore = |_: &[u8]| Ok(());
    // The second source fails to be read, after its tensors have been noted.
    sender.begin().unwrap();
    sender.add(&mirror(&new[..2].to_vec()), &mut ignore).unwrap();
    sender.add(&Unreadable(mirror(&new[2..].to_vec())), &mut ignore).unwrap_err();
    let error = sender.finish(&mut ignore).unwrap_err();
    assert!(matches!(error, Error::NothingPending), "{error}");
    let error = sender.commit().unwrap_err();
    assert!(matches!(error, Error::NothingPending), "{error}");
    // Tensors are missing at the end; changes of no tensor of the base.
    sender.diff(&mirror(&new[..2].to_vec()), &mut ignore).unwrap_err();
    sender.begin().unwrap();
    let changes = Changes { ends: vec![1], positions: &[0], values: &[1] };
    let other = (tensor("x", ElementType::U8, &[3]), NewElements::Changes(changes));
    sender.add_patched(&Patched::new([other]).unwrap(), &mut ignore).unwrap_err();
    // A complete update stays if another one is begun or added to.
    let stream = diff(&mut sender, &new);
    sender.begin().unwrap_err();
    sender.add(&mirror(&new), &mut ignore).unwrap_err();
    sender.diff(&mirror(&new), &mut ignore).unwrap_err();
    sender.commit().unwrap();
    assert_eq!(content(sender.tensors()), new);
    assert_eq!(stream, delta(&old, &new));
}

/// Tensors that cannot be read.
struct Unreadable(Mirror);

impl Source for Unreadable {
    fn tensors(&self) -> &[Tensor] {
        self.0.tensors()
    }

    fn read<'a>(&'a self, _: usize, _: Range<usize>, _: &'a mut Buffer) -> Result<&'a [u8], Error> {
        Err(std::io::Error::other("the tensors are gone").into())
    }
}

#[test]
fn limits_of_the_receiver_do_not_bind_its_sender() {
    let [old, new] = small();
    let mut sender = Sender::resume(receiver(&old).with_max_bytes(1), DiffOptions::default(), 1);
    diff(&mut sender, &new);
    sender.commit().unwrap();
    assert_eq!(content(sender.tensors()), new);
}
