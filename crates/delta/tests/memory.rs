//! Updates from a sender in memory to receivers in memory.

mod common;

use common::*;
use gradwire_delta::{Absent, DiffOptions, ElementType, Error, Kind, Mirror, Receiver};

#[test]
fn a_chain_arrives_bit_for_bit() {
    let mut current = model(1);
    let mut sender = sender(&current, DiffOptions::default(), 1);
    let mut receiver = receiver(&current);
    for (version, rarity) in [1, 2, 30, 1000, 100_000].into_iter().enumerate() {
        let new = step(&current, version as u64, rarity);
        let stream = diff(&mut sender, &new);
        let update = receiver.stage([&stream[..]]).unwrap();
        assert!(has(&receiver, &current), "staging changes nothing");
        assert_eq!((update.kind(), update.target().version), (Kind::Delta, version as u64 + 1));
        let state = apply(&mut receiver, &stream).unwrap();
        assert_eq!(sender.commit().unwrap(), state);
        assert!(has(&receiver, &new));
        assert_eq!(content(sender.tensors()), new);
        current = new;
    }
}

#[test]
fn a_snapshot_needs_no_base() {
    let old = model(1);
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let new = step(&old, 1, 50);
    diff(&mut sender, &new);
    sender.commit().unwrap();
    let stream = snapshot(&mut sender);
    let mut empty = Receiver::new(Mirror::default(), 1).unwrap();
    let state = apply(&mut empty, &stream).unwrap();
    assert!(has(&empty, &new));
    assert_eq!(state, sender.state());
    // And it replaces whatever is there.
    let mut other = receiver(&model(2));
    assert_eq!(apply(&mut other, &stream).unwrap(), state);
    assert!(has(&other, &new));
}

#[test]
fn tensors_come_go_and_change_shape_and_type() {
    let old = model(1);
    let mut new = step(&old, 1, 50);
    new.remove(0);
    new[0].0 = tensor("layer.0.bias", ElementType::F16, &[33]);
    new[1].0 = tensor("layer.0.weight", ElementType::Bf16, &[129, 130]);
    new.push((tensor("zz", ElementType::Bf16, &[2, 2]), vec![1, 2, 3, 4, 5, 6, 7, 8]));
    let mut strict = sender(&old, DiffOptions::default(), 1);
    let refused = strict.diff(&mirror(&new), &mut |_| Ok(())).unwrap_err();
    assert!(matches!(&refused, Error::Absent { name, more: 0 } if name == "embed"), "{refused}");
    let options = DiffOptions { absent: Absent::Remove, ..DiffOptions::default() };
    let mut sender = sender(&old, options, 1);
    let stream = diff(&mut sender, &new);
    let mut receiver = receiver(&old);
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &new));
    sender.commit().unwrap();
    // The next link counts tensors of the new list.
    let next = step(&new, 2, 50);
    let stream = diff(&mut sender, &next);
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &next));
}

#[test]
fn a_sender_rolls_back() {
    let old = model(1);
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let lost = step(&old, 1, 50);
    diff(&mut sender, &lost);
    let pending = sender.diff(&mirror(&lost), &mut |_| Ok(()));
    assert!(matches!(pending, Err(Error::Pending)));
    sender.rollback();
    assert!(matches!(sender.commit(), Err(Error::NothingPending)));
    assert_eq!(content(sender.tensors()), old);
    let new = step(&old, 2, 50);
    let stream = diff(&mut sender, &new);
    let mut receiver = receiver(&old);
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &new));
}
