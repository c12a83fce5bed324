//! Checks that must hold for any bytes that are staged as a delta. The fuzz target runs them on
//! generated inputs, and `crates/delta/tests/corpus.rs` runs them on the corpus.

use gradwire_delta::{Buffer, ElementType, Error, Mirror, Receiver, RunId, State, Survey, Tensor};

/// The run and version of the model, so the weights need not be those of version 0.
const RUN: RunId = RunId([7; 16]);
const MAX_BYTES: u64 = 1 << 20;

/// Tensors of each width, small and large ones; also the base of the seeds.
pub(crate) fn model() -> Mirror {
    let shapes: [(&str, ElementType, &[u64]); 6] = [
        ("bias", ElementType::Bf16, &[33]),
        ("byte", ElementType::F8E4m3, &[129, 131]),
        ("float", ElementType::F32, &[5, 3]),
        ("none", ElementType::U8, &[0, 4]),
        ("wide", ElementType::F64, &[3, 3]),
        ("word", ElementType::Bf16, &[130, 129]),
    ];
    let make = |(name, element, shape): (&str, ElementType, &[u64])| {
        let tensor = Tensor::new(name, element, shape).expect("it is a tensor");
        let byte = |i: usize| ((i * i + 3 * i) >> 4) as u8;
        let bytes: Vec<u8> = (0..tensor.byte_len()).map(byte).collect();
        (tensor, Buffer::from(&bytes[..]))
    };
    Mirror::new(shapes.map(make)).expect("the tensors differ")
}

/// Lists the records, and stages the bytes, with correct checksums, over a model and over nothing.
/// They must be refused and change nothing, or give the weights whose hash they state.
///
/// # Panics
/// If that does not hold.
pub(crate) fn stage(input: &[u8]) {
    let mut input = input.to_vec();
    correct_checksums(&mut input);
    let _ = Survey::of(&input[..]);
    for base in [Mirror::default(), model()] {
        let receiver = Receiver::new(base, 1).expect("memory can be read");
        check(receiver.with_version(RUN, 0).with_max_bytes(MAX_BYTES), &input);
    }
}

fn check(mut receiver: Receiver<Mirror>, input: &[u8]) {
    let before = receiver.state();
    let staged = receiver.stage([input]);
    receiver.verify().expect("staging changes nothing");
    assert_eq!(receiver.state(), before);
    let Ok(mut update) = staged else { return };
    let target: State = update.target();
    let result: Result<State, Error> = receiver.commit(&mut update);
    assert_eq!(result.expect("memory can be written"), target);
    receiver.verify().expect("the hash follows the changes");
    let sum = Receiver::new(receiver.into_tensors(), 1).expect("memory can be read").state().hash;
    assert_eq!(sum, target.hash);
}

/// Corrects the checksums of all frames; otherwise inputs with a changed byte would be refused
/// before anything is decoded.
fn correct_checksums(input: &mut [u8]) {
    const PREFIX: usize = 9;
    let mut rest = input.get_mut(8..).unwrap_or_default();
    while let Some((prefix, payload)) = rest.split_at_mut_checked(PREFIX) {
        let len = u32::from_le_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]);
        let Some((payload, more)) = payload.split_at_mut_checked(len as usize) else { return };
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&prefix[..5]);
        hasher.update(payload);
        prefix[5..].copy_from_slice(&hasher.finalize().to_le_bytes());
        rest = more;
    }
}
