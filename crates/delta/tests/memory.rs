//! Updates from a sender in memory to receivers in memory.

mod common;

use common::*;
use gradwire_delta::part::Content;
use gradwire_delta::{
    Absent, Buffer, DiffOptions, ElementType, Error, Kind, Mirror, Receiver, Slices, Update, fold,
};

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

#[test]
fn any_number_of_threads_writes_and_reads_the_same() {
    let mut old = model(1);
    let large = tensor("large", ElementType::Bf16, &[3, 1 << 20]);
    old.push((large, (0..6 << 20).map(|i: u32| (i.wrapping_mul(i) >> 9) as u8).collect()));
    old.sort_by(|a, b| a.0.name().cmp(b.0.name()));
    let new = step(&old, 3, 300);
    let one = delta(&old, &new);
    for threads in 2..=8 {
        let mut sender = sender(&old, DiffOptions::default(), threads);
        assert!(diff(&mut sender, &new) == one, "{threads} threads");
        sender.commit().unwrap();
        assert!(content(sender.tensors()) == new, "{threads} threads");
        let mut receiver = Receiver::new(mirror(&old), threads).unwrap();
        apply(&mut receiver, &one).unwrap();
        assert!(has(&receiver, &new), "{threads} threads");
    }
}

#[test]
fn tensors_may_come_one_by_one() {
    let (old, new) = (model(1), step(&model(1), 1, 50));
    let (mut sender, mut stream) = (sender(&old, DiffOptions::default(), 1), Vec::new());
    sender.begin().unwrap();
    for (tensor, bytes) in &new {
        let one = Slices::new([(tensor.clone(), &bytes[..])]).unwrap();
        sender.add(&one, &mut collect(&mut stream)).unwrap();
    }
    sender.finish(&mut collect(&mut stream)).unwrap();
    assert_eq!(stream, delta(&old, &new));
    sender.rollback();
    // Each of them once.
    let one = mirror(&new[..1].to_vec());
    sender.begin().unwrap();
    sender.add(&one, &mut |_| Ok(())).unwrap();
    let twice = sender.add(&one, &mut |_| Ok(())).unwrap_err();
    assert!(matches!(&twice, Error::Twice { name } if name == new[0].0.name()), "{twice}");
}

#[test]
fn a_record_holds_64_mebibytes_at_most() {
    let tensor = tensor("large", ElementType::U8, &[(64 << 20) + 5]);
    let old = vec![(tensor.clone(), vec![0; tensor.byte_len()])];
    let mut new = old.clone();
    for place in [3, (64 << 20) - 1, 64 << 20, (64 << 20) + 4] {
        new[0].1[place] = 9;
    }
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let mut stream = Vec::new();
    let summary = sender.diff(&mirror(&new), &mut collect(&mut stream)).unwrap();
    assert_eq!(summary.records, 2);
    assert_eq!(summary.len, stream.len() as u64);
    let mut receiver = receiver(&old);
    apply(&mut receiver, &stream).unwrap();
    assert!(content(receiver.tensors()) == new);
}

#[test]
fn long_chains_with_folds_arrive() {
    let mut random = Random(5);
    let first = vec![
        (tensor("a", ElementType::Bf16, &[150, 130]), vec![0x3c; 39_000]),
        (tensor("b", ElementType::F32, &[9]), vec![1; 36]),
    ];
    let mut versions = vec![first];
    let mut links = Vec::new();
    let mut sender = sender(&versions[0], DiffOptions::default(), 1);
    for version in 1..=300 {
        let new = step(&versions[version - 1], version as u64, 1 + random.below(3000));
        links.push(diff(&mut sender, &new));
        sender.commit().unwrap();
        versions.push(new);
    }
    let mut receiver = receiver(&versions[0]);
    let mut at = 0;
    while at < links.len() {
        let to = links.len().min(at + 1 + random.below(20) as usize);
        let mut folded = Vec::new();
        let chain = links[at..to].iter().map(|link| &link[..]);
        let options = DiffOptions::default();
        fold(&mirror(&versions[at]), chain, &options, None, 1, &mut collect(&mut folded)).unwrap();
        let state = apply(&mut receiver, &folded).unwrap();
        assert_eq!(state.version, to as u64);
        assert!(has(&receiver, &versions[to]));
        at = to;
    }
    assert_eq!(receiver.state(), sender.state());
}

#[test]
fn nan_payloads_and_signed_zeros_arrive() {
    let patterns: [u32; 6] = [0x7fc0_0001, 0xffc0_1234, 0x7f80_0001, 0x8000_0000, 0, 0xff80_0000];
    let bytes = |patterns: &[u32]| patterns.iter().flat_map(|bits| bits.to_le_bytes()).collect();
    let tensor = tensor("t", ElementType::F32, &[6]);
    let mut turned = patterns;
    for _ in 0..6 {
        turned.rotate_left(1);
        let old = vec![(tensor.clone(), bytes(&patterns))];
        let new = vec![(tensor.clone(), bytes(&turned))];
        let mut receiver = receiver(&old);
        apply(&mut receiver, &delta(&old, &new)).unwrap();
        assert!(has(&receiver, &new));
    }
}

#[test]
fn staging_again_reuses_memory() {
    let old = model(1);
    let new = step(&old, 1, 20);
    let stream = delta(&old, &new);
    let receiver = receiver(&old);
    let mut update = receiver.stage([&stream[..]]).unwrap();
    let changed = update.changed_elements();
    let address = |update: &Update| match update.patches().next().unwrap().content {
        Content::Changes { positions, .. } => positions.as_ptr(),
        other => panic!("{other:?}"),
    };
    let before = address(&update);
    receiver.stage_into([&stream[..]], &mut update).unwrap();
    assert_eq!((address(&update), update.changed_elements()), (before, changed));
}

#[test]
fn an_update_shows_whole_new_tensors() {
    let old = model(1);
    let mut new = step(&old, 1, 5);
    new[0].1.clone_from(&old[0].1);
    let receiver = receiver(&old);
    let update = receiver.stage([&delta(&old, &new)[..]]).unwrap();
    let changed: Vec<usize> = (0..old.len()).filter(|&index| old[index] != new[index]).collect();
    assert!(!changed.contains(&0) && changed.len() > 3);
    assert_eq!(update.patched(), changed);
    let mut out = Buffer::default();
    for (index, (_, bytes)) in new.iter().enumerate() {
        update.read_new(receiver.tensors(), index, &mut out).unwrap();
        assert_eq!(out[..], bytes[..]);
    }
}
