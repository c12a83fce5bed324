//! The corpus of the fuzz target for deltas, replayed, and the golden files as seeds.
//!
//! `GRADWIRE_WRITE_CORPUS=1` adds the seeds that are absent.

#[path = "../../../fuzz/deltas.rs"]
mod deltas;

use std::fs;
use std::path::PathBuf;

use gradwire_delta::{
    Absent, Buffer, DiffOptions, ElementType, Mirror, RunId, Sender, Source, Tensor,
};

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/deltas")
}

/// The model after a step; `rarity` elements lie between two changed ones.
fn stepped(rarity: usize) -> Mirror {
    let model = deltas::model();
    let step = |(tensor, bytes): (&Tensor, &[u8])| {
        let mut buffer = Buffer::from(bytes);
        let width = tensor.element().width();
        for element in buffer.chunks_exact_mut(width).step_by(rarity) {
            element[0] = element[0].wrapping_add(1);
        }
        (tensor.clone(), buffer)
    };
    Mirror::new(model.iter().map(step)).unwrap()
}

/// The model with other tensors.
fn rebuilt() -> Mirror {
    let model = stepped(7);
    let mut pairs: Vec<(Tensor, Buffer)> =
        model.iter().skip(1).map(|(tensor, bytes)| (tensor.clone(), Buffer::from(bytes))).collect();
    pairs[0].0 = Tensor::new("byte", ElementType::U8, [131, 129]).unwrap();
    pairs.push((Tensor::new("x", ElementType::F16, [2]).unwrap(), Buffer::zeros(4)));
    Mirror::new(pairs).unwrap()
}

fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let delta = |new: &Mirror, portable: bool| {
        let options = DiffOptions { portable, absent: Absent::Remove, ..DiffOptions::default() };
        let mut sender = Sender::new(deltas::model(), RunId([7; 16]), options, 1).unwrap();
        let mut stream = Vec::new();
        let mut sink = |frame: &[u8]| {
            stream.extend_from_slice(frame);
            Ok(())
        };
        sender.diff(new, &mut sink).unwrap();
        stream
    };
    let mut sender =
        Sender::new(deltas::model(), RunId([7; 16]), DiffOptions::default(), 1).unwrap();
    let mut snapshot = Vec::new();
    let mut sink = |frame: &[u8]| {
        snapshot.extend_from_slice(frame);
        Ok(())
    };
    sender.snapshot(&mut sink).unwrap();
    vec![
        ("rare", delta(&stepped(100), false)),
        ("portable", delta(&stepped(100), true)),
        ("half", delta(&stepped(2), false)),
        ("all", delta(&stepped(1), false)),
        ("rebuilt", delta(&rebuilt(), false)),
        ("snapshot", snapshot),
    ]
}

#[test]
fn inputs_are_refused_or_give_the_weights_that_they_state() {
    if std::env::var_os("GRADWIRE_WRITE_CORPUS").is_some_and(|set| set == "1") {
        fs::create_dir_all(folder()).unwrap();
        for (name, seed) in seeds() {
            fs::write(folder().join(name), seed).unwrap();
        }
    }
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder()).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "there is no corpus; set GRADWIRE_WRITE_CORPUS=1");
    for file in files {
        eprintln!("{}", file.display());
        deltas::stage(&fs::read(file).unwrap());
    }
}

#[test]
fn damaged_seeds_are_refused_or_give_the_weights_that_they_state() {
    for (name, mut seed) in seeds() {
        assert!(deltas::model().tensors().len() == 6 && !seed.is_empty());
        let step = 1 + seed.len() / 400;
        for place in (0..seed.len()).step_by(step).chain(0..seed.len().min(200)) {
            eprintln!("{name}, byte {place}");
            for damage in [1, 0x40, 0xff] {
                seed[place] ^= damage;
                deltas::stage(&seed);
                seed[place] ^= damage;
            }
        }
    }
}
