//! What can go wrong: each case is refused before a weight changes, with an error that names the
//! remedy, or is harmless.

mod common;

use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use common::*;
use gradwire_delta::{
    Absent, Buffer, DiffOptions, ElementType, Error, Mirror, Receiver, RunId, Sender, SlicesMut,
    Source, Tensor, Tensors, check_ending, fold,
};

fn refused(receiver: &Receiver<Mirror>, stream: &[u8]) -> Error {
    let before = (content(receiver.tensors()), receiver.state());
    let error = receiver.stage([stream]).unwrap_err();
    assert_eq!((content(receiver.tensors()), receiver.state()), before);
    error
}

/// The links between `models`, of versions 0, 1, …
fn chain(models: &[Model]) -> Vec<Vec<u8>> {
    let mut sender = sender(&models[0], DiffOptions::default(), 1);
    let links = models[1..].iter().map(|model| {
        let link = diff(&mut sender, model);
        sender.commit().unwrap();
        link
    });
    links.collect()
}

fn three_versions() -> [Model; 3] {
    let first = model(1);
    let second = step(&first, 1, 50);
    let third = step(&second, 2, 50);
    [first, second, third]
}

#[test]
fn a_missing_link_is_named() {
    let models = three_versions();
    let links = chain(&models);
    let receiver = receiver(&models[0]);
    let error = refused(&receiver, &links[1]);
    assert!(matches!(error, Error::MissingLink { base: 1, target: 2, .. }), "{error}");
}

#[test]
fn the_same_delta_twice_does_nothing_and_says_so() {
    let models = three_versions();
    let links = chain(&models);
    let mut receiver = receiver(&models[0]);
    apply(&mut receiver, &links[0]).unwrap();
    let update = receiver.stage([&links[0][..]]).unwrap();
    assert!(update.is_applied());
    assert_eq!(update.patches().len(), 0);
    apply(&mut receiver, &links[0]).unwrap();
    assert!(has(&receiver, &models[1]));
    // A delta from the past is not the last one.
    apply(&mut receiver, &links[1]).unwrap();
    let error = refused(&receiver, &links[0]);
    assert!(matches!(error, Error::Outdated { base: 0, target: 1, .. }), "{error}");
}

#[test]
fn another_run_is_refused() {
    let models = three_versions();
    let links = chain(&models);
    let mut receiver = receiver(&models[0]);
    apply(&mut receiver, &links[0]).unwrap();
    let mut other =
        Sender::new(mirror(&models[1]), RunId([8; 16]), DiffOptions::default(), 1).unwrap();
    let stream = diff(&mut other, &models[2]);
    // Even though the weights are the same.
    let error = refused(&receiver, &stream);
    assert!(matches!(error, Error::OtherRun { .. }), "{error}");
    // Its snapshot starts the receiver again.
    let snapshot = snapshot(&mut other);
    assert_eq!(apply(&mut receiver, &snapshot).unwrap().run, Some(RunId([8; 16])));
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &models[2]));
}

#[test]
fn every_flipped_bit_of_the_base_is_found() {
    let tensor = tensor("t", ElementType::Bf16, &[11]);
    let old = vec![(tensor.clone(), (0..22).collect::<Vec<u8>>())];
    let stream = delta(&old, &step(&old, 1, 3));
    for bit in 0..8 * 22 {
        let mut damaged = old.clone();
        damaged[0].1[bit / 8] ^= 1 << (bit % 8);
        let error = refused(&receiver(&damaged), &stream);
        assert!(matches!(error, Error::WrongBase { .. }), "{error}");
    }
}

#[test]
fn every_truncation_is_refused() {
    let models = three_versions();
    for stream in
        [&chain(&models)[0], &snapshot(&mut sender(&models[0], DiffOptions::default(), 1))]
    {
        let receiver = receiver(&models[0]);
        let step = 1 + stream.len() / 3000;
        for len in (0..stream.len()).step_by(step).chain(stream.len() - 60..stream.len()) {
            let error = refused(&receiver, &stream[..len]);
            let expected = matches!(error, Error::Truncated(_)) || len == 0;
            assert!(expected, "{len} of {} bytes: {error}", stream.len());
            if let Some((_, ending)) = stream[..len].split_last_chunk() {
                assert!(check_ending(*ending, len as u64).is_err());
            }
        }
        let ending = stream.last_chunk().unwrap();
        check_ending(*ending, stream.len() as u64).unwrap();
        check_ending(*ending, stream.len() as u64 + 1).unwrap_err();
    }
}

#[test]
fn every_damaged_byte_is_refused() {
    let [old, new] = small();
    let mut stream = delta(&old, &new);
    let receiver = receiver(&old);
    for place in 0..stream.len() {
        for damage in [1, 0x80, 0xff] {
            stream[place] ^= damage;
            refused(&receiver, &stream);
            stream[place] ^= damage;
        }
    }
    receiver.stage([&stream[..]]).unwrap();
}

/// The payloads of a stream's frames.
fn payloads(stream: &[u8]) -> Vec<Range<usize>> {
    let (mut all, mut start) = (Vec::new(), 8);
    while start < stream.len() {
        let len = u32::from_le_bytes(stream[start + 1..start + 5].try_into().unwrap());
        let payload = start + 9..start + 9 + len as usize;
        start = payload.end;
        all.push(payload);
    }
    all
}

/// Damage with correct checksums, as of a writer with a bug: it is refused, or the result is that
/// of the sender.
#[test]
fn damage_with_correct_checksums_gives_no_other_weights() {
    let [old, new] = small();
    let stream = delta(&old, &new);
    let mut accepted = 0;
    for payload in payloads(&stream) {
        for place in payload.clone() {
            for damage in [1, 2, 0x10, 0x80, 0xff] {
                let mut stream = stream.clone();
                stream[place] ^= damage;
                let start = payload.start - 9;
                let checksum = {
                    let mut hasher = crc32fast::Hasher::new();
                    hasher.update(&stream[start..start + 5]);
                    hasher.update(&stream[payload.clone()]);
                    hasher.finalize()
                };
                stream[start + 5..start + 9].copy_from_slice(&checksum.to_le_bytes());
                let mut receiver = receiver(&old);
                match apply(&mut receiver, &stream) {
                    Ok(_) => {
                        assert!(has(&receiver, &new), "byte {place}");
                        accepted += 1;
                    }
                    Err(_) => assert!(has(&receiver, &old), "byte {place}"),
                }
            }
        }
    }
    // Run, versions and share are not part of the weights.
    assert!(accepted <= 5 * (16 + 8 + 8 + 1 + 1), "{accepted}");
}

/// Tensors whose memory is not there for some calls.
struct Failing {
    mirror: Mirror,
    /// How many commits fail from now on.
    failures: AtomicU32,
}

impl Source for Failing {
    fn tensors(&self) -> &[Tensor] {
        self.mirror.tensors()
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        self.mirror.read(tensor, bytes, buffer)
    }
}

impl Tensors for Failing {
    fn slices_mut(&mut self) -> Result<Vec<&mut [u8]>, Error> {
        let failures = self.failures.get_mut();
        if *failures > 0 {
            *failures -= 1;
            // Part of the memory has been written.
            self.mirror.slices_mut()?[0][..100].fill(0xee);
            return Err(std::io::Error::other("the device is gone").into());
        }
        self.mirror.slices_mut()
    }
}

#[test]
fn a_failed_commit_is_repeated() {
    let [old, mut new] = small();
    new[2] = old[2].clone();
    new[0].1[..100].fill(7);
    let failing = Failing { mirror: mirror(&old), failures: AtomicU32::new(2) };
    let mut receiver = Receiver::new(failing, 1).unwrap();
    let before = receiver.state();
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let stream = diff(&mut sender, &new);
    let mut update = receiver.stage([&stream[..]]).unwrap();
    for _ in 0..2 {
        receiver.commit(&mut update).unwrap_err();
        assert_eq!(receiver.state(), before, "the version advances only after success");
        let error = receiver.stage([&stream[..]]).unwrap_err();
        assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    }
    assert_eq!(receiver.commit(&mut update).unwrap().version, 1);
    receiver.verify().unwrap();
    assert_eq!(content(&receiver.tensors().mirror), new);
}

#[test]
fn a_snapshot_repairs_an_interrupted_commit() {
    let [old, mut new] = small();
    new[2] = old[2].clone();
    let mut receiver =
        Receiver::new(Failing { mirror: mirror(&old), failures: AtomicU32::new(1) }, 1).unwrap();
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let stream = diff(&mut sender, &new);
    let mut update = receiver.stage([&stream[..]]).unwrap();
    receiver.commit(&mut update).unwrap_err();
    sender.commit().unwrap();
    let snapshot = snapshot(&mut sender);
    let mut update = receiver.stage([&snapshot[..]]).unwrap();
    receiver.commit(&mut update).unwrap();
    receiver.verify().unwrap();
    assert_eq!(content(&receiver.tensors().mirror), new);
}

#[test]
fn an_update_from_before_does_not_repair_an_interrupted_commit() {
    let [old, mut new] = small();
    new[2] = old[2].clone();
    new[0].1[..100].fill(7);
    let failing = Failing { mirror: mirror(&old), failures: AtomicU32::new(0) };
    let mut receiver = Receiver::new(failing, 1).unwrap();
    let mut before = receiver.stage([&first_snapshot(&old)[..]]).unwrap();
    receiver.commit(&mut before).unwrap();
    receiver.tensors().failures.store(1, Ordering::Relaxed);
    let mut update = receiver.stage([&delta(&old, &new)[..]]).unwrap();
    receiver.commit(&mut update).unwrap_err();
    let error = receiver.commit(&mut before).unwrap_err();
    assert!(matches!(error, Error::Interrupted { .. }), "{error}");
    receiver.commit(&mut update).unwrap();
    assert_eq!(content(&receiver.tensors().mirror), new);
}

#[test]
fn an_update_for_other_weights_is_stale() {
    let models = three_versions();
    let links = chain(&models);
    let mut receiver = receiver(&models[0]);
    let mut first = receiver.stage([&links[0][..]]).unwrap();
    let mut again = receiver.stage([&links[0][..]]).unwrap();
    receiver.commit(&mut first).unwrap();
    let error = receiver.commit(&mut again).unwrap_err();
    assert!(matches!(error, Error::Stale { .. }), "{error}");
    receiver.stage_into([&links[0][..50]], &mut again).unwrap_err();
    let error = receiver.commit(&mut again).unwrap_err();
    assert!(matches!(error, Error::NotStaged), "{error}");
    assert!(has(&receiver, &models[1]));
}

#[test]
fn a_second_commit_of_an_update_does_nothing() {
    let models = three_versions();
    let links = chain(&models);
    for stream in [&links[0], &first_snapshot(&models[1])] {
        let mut receiver = receiver(&models[0]);
        let mut update = receiver.stage([&stream[..]]).unwrap();
        assert!(!update.is_committed());
        let state = receiver.commit(&mut update).unwrap();
        assert!(update.is_committed());
        assert_eq!(receiver.commit(&mut update).unwrap(), state);
        assert!(has(&receiver, &models[1]));
        // Once the weights have moved on, it is of other weights.
        if state.version == 1 {
            apply(&mut receiver, &links[1]).unwrap();
        } else {
            apply(&mut receiver, &first_snapshot(&models[2])).unwrap();
        }
        let error = receiver.commit(&mut update).unwrap_err();
        assert!(matches!(error, Error::Stale { .. }), "{error}");
        assert!(has(&receiver, &models[2]));
    }
}

/// A snapshot of a base model.
fn first_snapshot(model: &Model) -> Vec<u8> {
    snapshot(&mut sender(model, DiffOptions::default(), 1))
}

#[test]
fn a_snapshot_for_other_weights_is_stale() {
    let [old, mut new] = small();
    new.push((tensor("d", ElementType::U8, &[5]), vec![4; 5]));
    let mut receiver = receiver(&old);
    let mut late = receiver.stage([&first_snapshot(&old)[..]]).unwrap();
    // The tensors to be removed are numbered, and there is one more of them now.
    apply(&mut receiver, &delta(&old, &new)).unwrap();
    let error = receiver.commit(&mut late).unwrap_err();
    assert!(matches!(error, Error::Stale { .. }), "{error}");
    assert!(has(&receiver, &new));
}

#[test]
fn tensors_of_the_caller_keep_their_shapes() {
    let [old, new] = small();
    let stream = delta(&old, &new);
    let mut memory = old.clone();
    let pairs = memory.iter_mut().map(|(tensor, bytes)| (tensor.clone(), &mut bytes[..]));
    let receiver = Receiver::new(SlicesMut::new(pairs).unwrap(), 1).unwrap();
    let error = receiver.stage([&stream[..]]).unwrap_err();
    assert!(matches!(&error, Error::FixedTensors { name } if name == "c"), "{error}");
    let fewer = old[..2].to_vec();
    let options = DiffOptions { absent: Absent::Remove, ..DiffOptions::default() };
    let stream = diff(&mut sender(&old, options, 1), &fewer);
    let error = receiver.stage([&stream[..]]).unwrap_err();
    assert!(matches!(&error, Error::FixedTensors { name } if name == "c"), "{error}");
}

#[test]
fn large_promises_are_refused() {
    // A snapshot whose zeros take few bytes.
    let zeros = vec![(tensor("z", ElementType::U8, &[1 << 20]), vec![0; 1 << 20])];
    let stream = snapshot(&mut sender(&zeros, DiffOptions::default(), 1));
    let empty = Receiver::new(Mirror::default(), 1).unwrap().with_max_bytes(1 << 19);
    let error = refused(&empty, &stream);
    assert!(matches!(error, Error::TooLarge { limit: 524_288 }), "{error}");
    // A delta that makes a tensor zeros.
    let mut random = Random(1);
    let bytes = (0..1 << 20).map(|_| random.next() as u8).collect();
    let noise = vec![(tensor("z", ElementType::U8, &[1 << 20]), bytes)];
    let stream = delta(&noise, &zeros);
    assert!(stream.len() < 300, "{}", stream.len());
    let error = refused(&receiver(&noise).with_max_bytes(1 << 19), &stream);
    assert!(matches!(error, Error::TooLarge { limit: 524_288 }), "{error}");
    let fold = |max_bytes| {
        let (options, mut folded) = (DiffOptions::default(), Vec::new());
        let links = [&stream[..]];
        fold(&mirror(&noise), links, &options, max_bytes, 1, &mut collect(&mut folded))?;
        Ok::<_, Error>(folded)
    };
    let error = fold(Some(1 << 19)).unwrap_err().to_string();
    assert!(error.contains("524288 bytes") && error.contains("max_bytes"), "{error}");
    for folded in [fold(None).unwrap(), fold(Some(1 << 20)).unwrap()] {
        let mut receiver = receiver(&noise);
        apply(&mut receiver, &folded).unwrap();
        assert!(has(&receiver, &zeros));
    }
}

#[test]
fn other_bytes_are_no_deltas() {
    let receiver = receiver(&model(1));
    for bytes in [&b""[..], b"{", b"PK\x03\x04 a zip file", b"\x89GWD\n\x1a\n"] {
        let error = refused(&receiver, bytes);
        assert!(matches!(error, Error::NotADelta), "{error}");
    }
    let error = refused(&receiver, b"\x89GWD\r\n");
    assert!(matches!(error, Error::Truncated(_)), "{error}");
}
