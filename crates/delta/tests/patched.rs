//! Weights of which only the changes are given: the stream is that of the whole weights.

mod common;

use common::*;
use gradwire_delta::part::PART;
use gradwire_delta::{Changes, DiffOptions, ElementType, NewElements, Patched, Sender, Tensor};

/// The changed elements of a tensor, compared one by one.
struct Found {
    ends: Vec<usize>,
    positions: Vec<u32>,
    values: Vec<u8>,
}

fn compare(tensor: &Tensor, old: &[u8], new: &[u8]) -> Found {
    let width = tensor.element().width();
    let mut found = Found { ends: Vec::new(), positions: Vec::new(), values: Vec::new() };
    for (old, new) in old.chunks(PART * width).zip(new.chunks(PART * width)) {
        for (at, (old, new)) in old.chunks(width).zip(new.chunks(width)).enumerate() {
            if old != new {
                found.positions.push(at as u32);
                found.values.extend_from_slice(new);
            }
        }
        found.ends.push(found.positions.len());
    }
    found
}

impl Found {
    fn changes(&self) -> NewElements<'_> {
        let ends = self.ends.clone();
        NewElements::Changes(Changes { ends, positions: &self.positions, values: &self.values })
    }
}

/// The usual model, and a tensor of three parts, of which one changes.
fn models() -> [Model; 3] {
    let mut old = model(3);
    let large = tensor("large", ElementType::U8, &[5, PART as u64 / 2]);
    let bytes = vec![1; large.byte_len()];
    old.push((large, bytes));
    let mut models = [old.clone(), step(&old, 4, 30), step(&old, 5, 3)];
    for model in &mut models[1..] {
        let large = &mut model.last_mut().unwrap().1;
        large[..PART].fill(1);
        large[2 * PART..].fill(1);
    }
    models
}

fn patched(
    sender: &mut Sender,
    old: &Model,
    new: &Model,
    whole: impl Fn(usize) -> bool,
) -> Vec<u8> {
    let found: Vec<Found> =
        old.iter().zip(new).map(|((tensor, old), (_, new))| compare(tensor, old, new)).collect();
    let pairs = new.iter().zip(&found).enumerate().map(|(index, ((tensor, bytes), found))| {
        let elements = if whole(index) { NewElements::Whole(bytes) } else { found.changes() };
        (tensor.clone(), elements)
    });
    let patched = Patched::new(pairs).unwrap();
    let mut stream = Vec::new();
    sender.begin().unwrap();
    sender.add_patched(&patched, &mut collect(&mut stream)).unwrap();
    sender.finish(&mut collect(&mut stream)).unwrap();
    stream
}

#[test]
fn the_stream_is_that_of_whole_weights() {
    let [old, ..] = models();
    for threads in [1, 3] {
        for whole in [|_| false, |_| true, |index| index % 3 == 1] {
            let mut one = sender(&old, DiffOptions::default(), threads);
            let mut other = sender(&old, DiffOptions::default(), 1);
            for pair in models().windows(2) {
                let found = patched(&mut one, &pair[0], &pair[1], whole);
                assert_eq!(found, diff(&mut other, &pair[1]));
                one.commit().unwrap();
                other.commit().unwrap();
            }
        }
    }
}

#[test]
fn changes_that_cannot_be_are_refused() {
    let tensor = tensor("w", ElementType::Bf16, &[PART as u64 + 10]);
    let refused = |ends: &[usize], positions: &[u32], values: usize| {
        let values = vec![7; values];
        let changes = Changes { ends: ends.to_vec(), positions, values: &values };
        let new = (tensor.clone(), NewElements::Changes(changes));
        Patched::new([new]).unwrap_err().to_string()
    };
    let last = PART as u32 - 1;
    assert!(refused(&[2], &[0, last], 4).contains("count all parts"));
    assert!(refused(&[2, 1], &[0], 2).contains("counts of changes"));
    assert!(refused(&[1, 3], &[0, 1], 4).contains("counts of changes"));
    assert!(refused(&[1, 2], &[0, 1], 3).contains("each position its value"));
    for (ends, positions) in [([2, 2], [4, 4]), ([2, 2], [5, 4]), ([2, 2], [0, last + 1])] {
        assert!(refused(&ends, &positions, 4).contains("sort them"));
    }
    assert!(refused(&[1, 2], &[last, 10], 4).contains("sort them"));
}

#[test]
fn changes_need_their_base() {
    let old = model(6);
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let others = [
        tensor("other", ElementType::Bf16, &[33]),
        tensor("layer.0.bias", ElementType::F16, &[33]),
        tensor("layer.0.bias", ElementType::Bf16, &[34]),
    ];
    for other in others {
        let changes = Changes { ends: vec![1], positions: &[0], values: &[1, 2] };
        let new = Patched::new([(other, NewElements::Changes(changes))]).unwrap();
        sender.begin().unwrap();
        let error = sender.add_patched(&new, &mut |_| Ok(())).unwrap_err();
        assert!(error.to_string().contains("give all elements"), "{error}");
    }
}
