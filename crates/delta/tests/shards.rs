//! Ranks that hold shards of the tensors, and receivers of whole tensors and of shards.

mod common;

use common::*;
use gradwire_delta::{DiffOptions, ElementType, Error, Mirror, Receiver, Sender, Share, Tensor};

/// What rank `rank` of `ranks` holds of a model: as many rows of each tensor as FSDP2 gives it, or
/// the whole tensor if rows cannot be cut, on rank 0.
fn shards(model: &Model, rank: u64, ranks: u64) -> Model {
    let shard = |(tensor, bytes): &(Tensor, Vec<u8>)| {
        let (rows, shape) = (tensor.rows().end, tensor.shape());
        let chunk = rows.div_ceil(ranks);
        let own = (rank * chunk).min(rows)..((rank + 1) * chunk).min(rows);
        let all: Result<Vec<Tensor>, Error> = (0..ranks)
            .map(|rank| {
                let own = (rank * chunk).min(rows)..((rank + 1) * chunk).min(rows);
                Tensor::shard(tensor.name(), tensor.element(), shape, own)
            })
            .collect();
        if all.is_err() || shape.is_empty() {
            return (rank == 0).then(|| (tensor.clone(), bytes.clone()));
        }
        let shard = Tensor::shard(tensor.name(), tensor.element(), shape, own.clone()).unwrap();
        let row = bytes.len() / rows.max(1) as usize;
        let bytes = bytes[own.start as usize * row..own.end as usize * row].to_vec();
        (!own.is_empty() || rank == 0).then_some((shard, bytes))
    };
    model.iter().filter_map(shard).collect()
}

fn senders(model: &Model, ranks: u64) -> Vec<Sender> {
    let sender = |rank| {
        let share = Share { index: rank, count: ranks };
        sender(&shards(model, rank, ranks), DiffOptions { share, ..DiffOptions::default() }, 1)
    };
    (0..ranks).map(sender).collect()
}

fn diffs(senders: &mut [Sender], new: &Model) -> Vec<Vec<u8>> {
    let ranks = senders.len() as u64;
    let diff =
        |(rank, sender): (usize, &mut Sender)| diff(sender, &shards(new, rank as u64, ranks));
    senders.iter_mut().enumerate().map(diff).collect()
}

#[test]
fn shards_of_ranks_make_up_the_update() {
    let old = model(1);
    for ranks in [1, 2, 3, 5] {
        let new = step(&old, ranks, 40);
        let mut senders = senders(&old, ranks);
        let streams = diffs(&mut senders, &new);
        let mut receiver = receiver(&old);
        // In any order.
        let mut update = receiver.stage(streams.iter().rev().map(|stream| &stream[..])).unwrap();
        receiver.commit(&mut update).unwrap();
        assert!(has(&receiver, &new), "{ranks} ranks");
        for sender in &mut senders {
            sender.commit().unwrap();
        }
        // Snapshots of the ranks are joined to whole tensors.
        let snapshots: Vec<_> = senders.iter_mut().map(snapshot).collect();
        let mut empty = Receiver::new(Mirror::default(), 1).unwrap();
        let mut update = empty.stage(snapshots.iter().map(|stream| &stream[..])).unwrap();
        empty.commit(&mut update).unwrap();
        assert!(has(&empty, &new), "{ranks} ranks");
        assert_eq!(empty.state().hash, receiver.state().hash);
    }
}

#[test]
fn a_rank_that_holds_the_same_shards_needs_its_share_only() {
    let (old, new) = (model(1), step(&model(1), 1, 40));
    let streams = diffs(&mut senders(&old, 3), &new);
    for (rank, stream) in streams.iter().enumerate() {
        let mut receiver = receiver(&shards(&old, rank as u64, 3));
        apply(&mut receiver, stream).unwrap();
        assert!(has(&receiver, &shards(&new, rank as u64, 3)));
    }
}

#[test]
fn a_missing_share_is_refused() {
    let (old, new) = (model(1), step(&model(1), 1, 40));
    let streams = diffs(&mut senders(&old, 3), &new);
    let receiver = receiver(&old);
    let error = receiver.stage([&streams[0][..], &streams[2][..]]).unwrap_err();
    assert!(matches!(error, Error::MissingShares { expected: 3, found: 2 }), "{error}");
    let error = receiver.stage([&streams[0][..], &streams[0][..]]).unwrap_err();
    assert!(matches!(error, Error::MixedShares(_)), "{error}");
    let other = diffs(&mut senders(&old, 2), &new);
    let error = receiver.stage([&streams[0][..], &other[1][..]]).unwrap_err();
    assert!(matches!(error, Error::MixedShares(_)), "{error}");
}

#[test]
fn a_snapshot_with_missing_shares_is_refused_unless_the_weights_are_that_share() {
    let (old, new) = (model(1), step(&model(1), 1, 40));
    let snapshots: Vec<_> = senders(&new, 3).iter_mut().map(snapshot).collect();
    for given in [&snapshots[..1], &snapshots[1..], &snapshots[..2]] {
        for receiver in [receiver(&old), receiver(&Model::new()), receiver(&shards(&old, 0, 2))] {
            let error = receiver.stage(given.iter().map(|stream| &stream[..])).unwrap_err();
            assert!(matches!(error, Error::MissingShares { expected: 3, .. }), "{error}");
        }
    }
    for (rank, stream) in snapshots.iter().enumerate() {
        let mut receiver = receiver(&shards(&old, rank as u64, 3));
        apply(&mut receiver, stream).unwrap();
        assert!(has(&receiver, &shards(&new, rank as u64, 3)));
    }
}

#[test]
fn shares_are_all_portable_or_none() {
    let (old, new) = (model(1), step(&model(1), 1, 40));
    let streams: Vec<_> = [true, false]
        .into_iter()
        .zip(0..)
        .map(|(portable, index)| {
            let share = Share { index, count: 2 };
            let options = DiffOptions { share, portable, ..DiffOptions::default() };
            diff(&mut sender(&shards(&old, index, 2), options, 1), &shards(&new, index, 2))
        })
        .collect();
    let error = receiver(&old).stage(streams.iter().map(|stream| &stream[..])).unwrap_err();
    assert!(matches!(error, Error::MixedShares(_)), "{error}");
}

#[test]
fn whole_tensors_do_not_fit_shards() {
    let (old, new) = (model(1), step(&model(1), 1, 40));
    let stream = delta(&old, &new);
    // Both halves here: the same weights, and the same hash.
    let mut halves = shards(&old, 0, 2);
    halves.extend(shards(&old, 1, 2));
    let receiver = Receiver::new(mirror(&halves), 1).unwrap();
    let error = receiver.stage([&stream[..]]).unwrap_err();
    assert!(matches!(error, Error::ShardsHere), "{error}");
    let shard = Tensor::shard("w", ElementType::U8, [16], 0..8).unwrap();
    let alone = sender(&old, DiffOptions::default(), 1)
        .diff(&mirror(&vec![(shard, vec![0; 8])]), &mut |_| Ok(()));
    assert!(matches!(alone, Err(Error::InvalidTensor { .. })), "{alone:?}");
}

#[test]
fn ranks_reshape_and_add_tensors() {
    let old = model(1);
    let mut new = step(&old, 1, 40);
    new[0].0 = tensor("embed", ElementType::F16, &[600, 50]);
    new.push((tensor("zz", ElementType::U8, &[24, 8]), vec![5; 192]));
    for ranks in [1, 3] {
        let mut senders = senders(&old, ranks);
        let streams = diffs(&mut senders, &new);
        let mut receiver = receiver(&old);
        let mut update = receiver.stage(streams.iter().map(|stream| &stream[..])).unwrap();
        receiver.commit(&mut update).unwrap();
        assert!(has(&receiver, &new), "{ranks} ranks");
        for (rank, sender) in senders.iter_mut().enumerate() {
            sender.commit().unwrap();
            assert_eq!(content(sender.tensors()), shards(&new, rank as u64, ranks));
        }
    }
}

#[test]
fn other_rows_of_a_tensor_are_refused() {
    let rows = |rows: std::ops::Range<u64>| {
        let bytes = vec![1; 2 * (rows.end - rows.start) as usize];
        vec![(Tensor::shard("w", ElementType::U8, [32, 2], rows).unwrap(), bytes)]
    };
    for other in [rows(0..20), rows(16..32)] {
        let mut sender = sender(&rows(0..16), DiffOptions::default(), 1);
        let error = sender.diff(&mirror(&other), &mut |_| Ok(())).unwrap_err();
        assert!(matches!(error, Error::InvalidTensor { .. }), "{error}");
    }
}
