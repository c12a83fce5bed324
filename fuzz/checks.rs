//! Checks that must hold for any bytes. The fuzz targets run them on generated inputs, and
//! `crates/core/tests/registry/corpus.rs` runs them on the corpus.

use std::sync::OnceLock;

use gradwire::frame::{Budget, FrameError, Item};
use gradwire::registry::REGISTRY;
use gradwire::{Decoder, Encoder, Entry, Floats, Spec, State, Tensor};

/// Small shapes of every kind; the first is that of the golden files.
const SHAPES: [&[usize]; 8] = [&[20, 30], &[], &[0], &[7], &[33], &[6, 7], &[3, 4, 5], &[1023]];

const MARK: f32 = -7.25;

/// The configurations of a compressor: the defaults, then the examples of its entry. An input
/// chooses one by its index.
fn specs(id: &str) -> &'static [Spec] {
    static ALL: OnceLock<Vec<(&str, Vec<Spec>)>> = OnceLock::new();
    let all = ALL.get_or_init(|| {
        let specs = |entry: &&'static Entry| {
            let texts = [""].iter().chain(entry.examples);
            let spec = |text: &&str| Spec::with_parameters(entry, text).expect("it is an example");
            (entry.id, texts.map(spec).collect())
        };
        REGISTRY.iter().map(specs).collect()
    });
    all.iter().find(|(name, _)| *name == id).map_or(&[], |(_, specs)| specs)
}

/// The input for a message of a tensor with the shape of the golden files. A configuration that is
/// not an example is replaced by the defaults, which decode most other messages too.
pub(crate) fn input(spec: &Spec, message: &[u8]) -> Vec<u8> {
    let listed = specs(spec.entry().id).iter().position(|listed| listed == spec);
    let choice = listed.unwrap_or(0) * SHAPES.len();
    [&[u8::try_from(choice).expect("a byte chooses")], message].concat()
}

/// Decodes a bare message after a byte that chooses configuration and shape. The message must give
/// the same values each time, or be refused and change nothing.
///
/// # Panics
/// If that does not hold, or there is no compressor of this name.
pub(crate) fn message(id: &str, input: &[u8]) {
    let specs = specs(id);
    assert!(!specs.is_empty(), "there is no compressor '{id}'");
    let Some((&choice, message)) = input.split_first() else { return };
    let choice = usize::from(choice);
    let (shape, spec) =
        (SHAPES[choice % SHAPES.len()], &specs[choice / SHAPES.len() % specs.len()]);
    let tensor = Tensor::new("t", shape);
    let mut decoder = Decoder::new(spec, 11);
    let mut decode = || {
        let mut out = vec![MARK; tensor.elements()];
        let result = decoder.decode_add(&tensor, 3, 2, message, 1.0, &mut out);
        let bits: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
        (result.is_ok(), bits)
    };
    let (accepted, bits) = decode();
    if accepted {
        // The second time, the decoder's buffers are not empty.
        assert_eq!(decode(), (accepted, bits), "{spec}, {shape:?}");
        let most = spec.compressor().max_elements(message.len());
        assert!(tensor.elements() <= most, "{spec}, {shape:?}: {most} elements at most");
    } else {
        let untouched = bits.iter().all(|&bits| bits == MARK.to_bits());
        assert!(untouched, "{spec}, {shape:?}: a refused message was added in part");
    }
    if spec.compressor().device_form().is_some() {
        let unpacked = decoder.unpack(&tensor, 3, 2, message, &mut Vec::new());
        assert_eq!(unpacked.is_ok(), accepted, "{spec}, {shape:?}: the form for a device");
    }
    if spec.compressor().rounds().is_some() {
        rounds(spec, &tensor, message);
    }
}

/// Decodes bytes as the means of a method's rounds. They must decode, or be refused and change
/// nothing.
fn rounds(spec: &Spec, tensor: &Tensor, bytes: &[u8]) {
    let (words, _) = bytes.as_chunks();
    let mut means = words.iter().map(|word| f32::from_le_bytes(*word));
    let mut encoder = Encoder::new(spec, 11, 2);
    let gradient = vec![0.5; tensor.elements()];
    // The second step starts from what the first one left behind.
    for step in 3..5 {
        let (mut so_far, mut addend) = (Vec::new(), Vec::new());
        for round in 0.. {
            let gradient = Floats::F32(&gradient);
            let more = encoder.contribute(tensor, step, round, gradient, &so_far, &mut addend);
            // Hostile means may leave a residual that makes the corrected gradient infinite.
            match more {
                Ok(Some(_)) => so_far.extend(addend.iter().map(|own| means.next().unwrap_or(*own))),
                Ok(None) => break,
                Err(_) => return,
            }
        }
        let mut out = vec![MARK; tensor.elements()];
        if encoder.conclude(tensor, step, &so_far, &mut out).is_err() {
            assert!(out.iter().all(|x| *x == MARK), "{spec}: refused means were added in part");
        }
    }
}

/// Reads consecutive frames. A frame must be read as the same frame after it is written again, or
/// be refused without consuming input. Decoding may fail, but not panic.
///
/// # Panics
/// If that does not hold.
pub(crate) fn frames(input: &[u8]) {
    let mut input = input.to_vec();
    // Corrects checksums; otherwise every frame with a changed byte would be refused.
    while let Err(FrameError::Checksum { expected, found }) = walk(&input) {
        let wrong = expected.to_le_bytes();
        let Some(at) = input.windows(4).rposition(|bytes| bytes == wrong) else { return };
        input[at..at + 4].copy_from_slice(&found.to_le_bytes());
        // The corrected bytes may be part of the bytes that the checksum covers.
        if matches!(walk(&input), Err(FrameError::Checksum { .. })) {
            return;
        }
    }
}

fn walk(mut rest: &[u8]) -> Result<(), FrameError> {
    while !rest.is_empty() {
        let before = rest;
        let item = Item::read(&mut rest).inspect_err(|_| assert_eq!(before, rest))?;
        assert!(rest.len() < before.len());
        if let Item::Message(frame) = &item {
            let _ = frame.decode(&mut Budget::new(4 * 4096));
        }
        let mut written = Vec::new();
        item.write(&mut written).expect("what was read can be written");
        assert_eq!(Item::read(&mut &written[..]).as_ref(), Ok(&item));
    }
    Ok(())
}

/// Reads a state file. It must be read as the same state after it is written again, or be refused.
///
/// # Panics
/// If that does not hold.
pub(crate) fn state(input: &[u8]) {
    let Ok(state) = State::from_bytes(input) else { return };
    let written = state.to_bytes().expect("what was read can be written");
    let again = State::from_bytes(&written).expect("what was written can be read");
    assert_eq!(again.to_bytes().expect("it was written before"), written);
}
