//! Checkpoints by hand, patched on disk: whole files are compared.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::in_place::patch_on;
use super::*;
use crate::files::disk::faults::Failing;
use crate::files::disk::{Disk, System};
use crate::part::PART;
use crate::safetensors::Checkpoint;
use crate::safetensors::tests::{contents, file, folder};
use crate::{
    Absent, Buffer, DiffOptions, ElementType, Error, Mirror, RunId, Sender, Share, Slices, Tensor,
    Workers, join,
};

/// A folder for the files of a test.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// Writes a delta between two checkpoints, and returns its bytes.
    fn delta(&self, old: &str, new: &str, portable: bool, threads: usize) -> Vec<u8> {
        let [old, new] = [old, new].map(|name| Checkpoint::open(&self.at(name)).unwrap());
        let mut bytes = Vec::new();
        let mut sink = |frame: &[u8]| {
            bytes.extend_from_slice(frame);
            Ok(())
        };
        delta(&old, &new, portable, &mut Workers::new(threads), &mut sink).unwrap();
        bytes
    }

    fn patch(&self, old: &str, deltas: &[&[u8]], new: &str) -> Result<crate::State, Error> {
        let old = Checkpoint::open(&self.at(old)).unwrap();
        patch(&old, &inputs(deltas), &self.at(new), None, &mut Workers::new(2))
    }
}

fn inputs(deltas: &[&[u8]]) -> Vec<Input> {
    deltas.iter().map(|bytes| Input::Bytes("d.gwd".into(), bytes.to_vec())).collect()
}

/// Bytes that look random.
fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let next = |_| {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 56) as u8
    };
    (0..len).map(next).collect()
}

/// A file with a large tensor of two parts and small ones, in an order that is not by name.
fn model(path: &Path, change: impl Fn(&mut [u8])) {
    let large = 2 * (PART + 1000);
    let ends = [large, large + 80, large + 96];
    let json = format!(
        r#"{{"__metadata__":{{"format":"pt"}},"large":{{"dtype":"BF16","shape":[{},1],"data_offsets":[0,{}]}},"bias":{{"dtype":"F32","shape":[20],"data_offsets":[{},{}]}},"ids":{{"dtype":"I64","shape":[2],"data_offsets":[{},{}]}}}} "#,
        PART + 1000,
        ends[0],
        ends[0],
        ends[1],
        ends[1],
        ends[2],
    );
    let mut data = noise(ends[2], 7);
    change(&mut data);
    fs::write(path, file(&json, &data)).unwrap();
}

/// Changes some bytes, as many as `step` divides into the length.
fn every(step: usize, add: u8) -> impl Fn(&mut [u8]) {
    move |data| data.iter_mut().step_by(step).for_each(|byte| *byte = byte.wrapping_add(add))
}

#[test]
fn files_come_back_byte_for_byte() {
    let place = Place::new();
    model(&place.at("a"), |_| {});
    for (step, add) in [(997, 1), (2, 3), (1, 8), (usize::MAX, 0)] {
        model(&place.at("b"), every(step, add));
        for portable in [false, true] {
            let bytes = place.delta("a", "b", portable, 1);
            assert_eq!(place.delta("a", "b", portable, 3), bytes);
            place.patch("a", &[&bytes], "c").unwrap();
            assert!(fs::read(place.at("c")).unwrap() == fs::read(place.at("b")).unwrap());
            fs::copy(place.at("a"), place.at("d")).unwrap();
            patch_in_place(&place.at("d"), &inputs(&[&bytes]), &mut Workers::new(1)).unwrap();
            assert!(fs::read(place.at("d")).unwrap() == fs::read(place.at("b")).unwrap());
        }
    }
    assert_eq!(place.names(), ["a", "b", "c", "d", "gradwire.lock"]);
}

#[test]
fn chains_and_deltas_applied_twice() {
    let place = Place::new();
    for (name, add) in [("a", 0), ("b", 1), ("c", 5), ("d", 4)] {
        model(&place.at(name), every(1001, add));
    }
    let links = [("a", "b"), ("b", "c"), ("c", "d")].map(|(a, b)| place.delta(a, b, false, 1));
    let links: Vec<&[u8]> = links.iter().map(Vec::as_slice).collect();
    let same = |a: &str, b: &str| fs::read(place.at(a)).unwrap() == fs::read(place.at(b)).unwrap();
    place.patch("a", &links, "x").unwrap();
    assert!(same("x", "d"));
    let old = Checkpoint::open(&place.at("a")).unwrap();
    let mut folded = Vec::new();
    let mut sink = |frame: &[u8]| {
        folded.extend_from_slice(frame);
        Ok(())
    };
    let mut workers = Workers::new(1);
    fold(&old, &inputs(&links), &place.at("x"), false, None, &mut workers, &mut sink).unwrap();
    place.patch("a", &[&folded], "x").unwrap();
    assert!(same("x", "d"));
    assert!(folded.len() < links.iter().map(|link| link.len()).sum::<usize>());
    // One that was applied already has no effect.
    place.patch("b", &links[..2], "x").unwrap();
    assert!(same("x", "c"));
    let twice = [links[0], links[0], links[1], links[1]];
    fs::copy(place.at("a"), place.at("y")).unwrap();
    patch_in_place(&place.at("y"), &inputs(&twice), &mut Workers::new(1)).unwrap();
    assert!(same("y", "c"));
    // Out of order, or of another base: refused, and nothing is written.
    for (old, deltas) in [("a", &links[1..]), ("d", &links[..1])] {
        let before = place.names();
        let error = place.patch(old, deltas, "z").unwrap_err().to_string();
        assert!(error.contains("d.gwd") && error.contains("hash"), "{error}");
        fs::copy(place.at(old), place.at("y")).unwrap();
        patch_in_place(&place.at("y"), &inputs(deltas), &mut Workers::new(1)).unwrap_err();
        assert!(same("y", old));
        assert_eq!(place.names(), before);
    }
}

#[test]
fn folders_with_new_removed_and_reshaped_tensors() {
    let place = Place::new();
    folder(&place.at("a"));
    // `b` has another shape, `c` is gone, `d` is new, and the metadata differs.
    fs::create_dir(place.at("b")).unwrap();
    let write = |name: &str, bytes: &[u8]| fs::write(place.at("b").join(name), bytes).unwrap();
    let one = r#"{"__metadata__":{"format":"np"},"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"BF16","shape":[3],"data_offsets":[4,10]}}"#;
    let two = r#"{"d":{"dtype":"F4","shape":[2,2],"data_offsets":[0,2]}}"#;
    write("x-1.safetensors", &file(one, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]));
    write("x-2.safetensors", &file(two, &[11, 12]));
    let index =
        r#"{"weight_map":{"a":"x-1.safetensors","b":"x-1.safetensors","d":"x-2.safetensors"}}"#;
    write("x.safetensors.index.json", index.as_bytes());
    let there = place.delta("a", "b", false, 1);
    let back = place.delta("b", "a", false, 1);
    place.patch("a", &[&there], "c").unwrap();
    assert_eq!(contents(&place.at("c")), contents(&place.at("b")));
    place.patch("a", &[&there, &back], "d").unwrap();
    let mut old = contents(&place.at("a"));
    old.retain(|(name, _)| name != "config.json");
    assert_eq!(contents(&place.at("d")), old);
    let error = patch_in_place(&place.at("a"), &inputs(&[&there]), &mut Workers::new(1));
    assert!(error.unwrap_err().to_string().contains("another place"));
    let error = place.patch("a", &[&there], "c").unwrap_err().to_string();
    assert!(error.contains("not empty"), "{error}");
}

#[test]
fn snapshots_restore_files_and_folders() {
    let place = Place::new();
    model(&place.at("a"), |_| {});
    folder(&place.at("b"));
    for (name, is_folder) in [("a", false), ("b", true)] {
        let checkpoint = Checkpoint::open(&place.at(name)).unwrap();
        let mut bytes = Vec::new();
        pack(&checkpoint, &mut Workers::new(1), &mut |frame| {
            bytes.extend_from_slice(frame);
            Ok(())
        })
        .unwrap();
        let input = inputs(&[&bytes]).remove(0);
        let out = place.at(&format!("{name}2"));
        unpack(&input, &out, None, &mut Workers::new(2)).unwrap();
        if is_folder {
            let mut old = contents(&place.at(name));
            old.retain(|(name, _)| name != "config.json");
            assert_eq!(contents(&out), old);
        } else {
            assert!(fs::read(&out).unwrap() == fs::read(place.at(name)).unwrap());
        }
        let error = unpack(&input, &place.at("c"), Some(10), &mut Workers::new(1)).unwrap_err();
        assert!(error.to_string().contains("10 bytes"), "{error}");
        let error = place.patch(name, &[&bytes], "c").unwrap_err().to_string();
        assert!(error.contains("unpack"), "{error}");
        for cut in [0, 9, bytes.len() / 2, bytes.len() - 1] {
            let input = inputs(&[&bytes[..cut]]).remove(0);
            unpack(&input, &place.at("c"), None, &mut Workers::new(1)).unwrap_err();
            fs::write(place.at("cut.gwd"), &bytes[..cut]).unwrap();
            let input = Input::File(place.at("cut.gwd"));
            let error = unpack(&input, &place.at("c"), None, &mut Workers::new(1)).unwrap_err();
            assert!(error.to_string().contains("cut.gwd"), "{error}");
            fs::remove_file(place.at("cut.gwd")).unwrap();
        }
    }
    assert_eq!(place.names(), ["a", "a2", "b", "b2"]);
}

#[test]
fn a_flipped_bit_anywhere_is_refused() {
    let place = Place::new();
    folder(&place.at("a"));
    folder(&place.at("b"));
    let path = place.at("b").join("m-2.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 0x10;
    fs::write(&path, bytes).unwrap();
    let whole = place.delta("a", "b", false, 1);
    for bit in 0..8 * whole.len() {
        let mut bad = whole.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(place.patch("a", &[&bad], "c").is_err(), "bit {bit}");
    }
    // A flipped bit of the base.
    let path = place.at("a").join("m-1.safetensors");
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = place.patch("a", &[&whole], "c").unwrap_err().to_string();
    assert!(error.contains("hash"), "{error}");
    assert_eq!(place.names(), ["a", "b"]);
}

#[test]
fn a_crash_at_any_operation_of_a_patch_in_place_leaves_an_old_or_a_new_file() {
    let place = Place::new();
    model(&place.at("a"), |_| {});
    model(&place.at("b"), every(100_003, 1));
    let delta = place.delta("a", "b", false, 1);
    let [old, new] = ["a", "b"].map(|name| fs::read(place.at(name)).unwrap());
    let mut outcomes = Vec::new();
    for operations in 0.. {
        fs::write(place.at("x"), &old).unwrap();
        let disk = Failing::after(operations);
        let result = patch_on(&disk, &place.at("x"), &inputs(&[&delta]), &mut Workers::new(1));
        // Opening completes the patch.
        Checkpoint::open(&place.at("x")).unwrap();
        let found = fs::read(place.at("x")).unwrap();
        assert!(found == old || found == new, "after {operations} operations: a mixture");
        assert_eq!(place.names().len(), 4 + usize::from(place.at("gradwire.redo.tmp").exists()));
        outcomes.push(found == new);
        if result.is_ok() {
            break;
        }
        assert!(operations < 50, "{result:?}");
    }
    // Once it is new it stays new, and both happen.
    assert!(outcomes.is_sorted() && !outcomes[0] && *outcomes.last().unwrap());
    assert!(outcomes.len() > 8, "{outcomes:?}");
}

/// A disk on which another process tries to patch the same file after each step.
struct Rivalled<'a> {
    path: &'a Path,
    deltas: &'a [Input],
    tries: std::cell::Cell<usize>,
}

impl Rivalled<'_> {
    fn refused(&self) {
        let error = patch_in_place(self.path, self.deltas, &mut Workers::new(1)).unwrap_err();
        assert!(error.to_string().contains("another process"), "{error}");
        self.tries.set(self.tries.get() + 1);
    }
}

impl Disk for Rivalled<'_> {
    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        System.write_at(file, bytes, offset).inspect(|()| self.refused())
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        System.sync(file).inspect(|()| self.refused())
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        System.rename(from, to).inspect(|()| self.refused())
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        System.remove(path).inspect(|()| self.refused())
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        System.sync_folder(folder).inspect(|()| self.refused())
    }
}

#[test]
fn a_patch_in_place_locks_the_folder_for_the_whole_chain() {
    let place = Place::new();
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        model(&place.at(name), every(100_003, at as u8));
    }
    let links = [("a", "b"), ("b", "c")].map(|(old, new)| place.delta(old, new, false, 1));
    let deltas = inputs(&[&links[0], &links[1]]);
    let path = place.at("a");
    let disk = Rivalled { path: &path, deltas: &deltas, tries: Default::default() };
    patch_on(&disk, &path, &deltas, &mut Workers::new(1)).unwrap();
    assert!(fs::read(&path).unwrap() == fs::read(place.at("c")).unwrap());
    // Both deltas, each with a log and a write, two syncs, a rename and a removal at least.
    assert!(disk.tries.get() >= 2 * 6, "{}", disk.tries.get());
    // Weights are not even read while another process has the lock.
    let lock = crate::redo::Lock::take(place.0.path()).unwrap();
    let error = patch_in_place(&path, &[], &mut Workers::new(1)).unwrap_err().to_string();
    assert!(error.contains("another process"), "{error}");
    drop(lock);
    patch_in_place(&path, &[], &mut Workers::new(1)).unwrap();
}

#[test]
fn updates_of_a_trainer_patch_files() {
    let place = Place::new();
    folder(&place.at("a"));
    let base = Mirror::copy_of(&Checkpoint::open(&place.at("a")).unwrap()).unwrap();
    let options = DiffOptions { absent: Absent::Remove, ..DiffOptions::default() };
    let mut sender = Sender::new(base, RunId([1; 16]), options, 1).unwrap();
    let tensor = |name: &str, element, side| Tensor::new(name, element, [side]).unwrap();
    // `a` changes, `b` has another shape, `c` is gone, `e` is new.
    let tensors = [
        (tensor("a", ElementType::F32, 1), &[9, 9, 9, 9][..]),
        (tensor("b", ElementType::Bf16, 3), &[1, 2, 3, 4, 5, 6]),
        (tensor("e", ElementType::U8, 2), &[7, 8]),
    ];
    let (mut update, mut snapshot) = (Vec::new(), Vec::new());
    let new = Slices::new(tensors.clone()).unwrap();
    sender
        .diff(&new, &mut |frame| {
            update.extend_from_slice(frame);
            Ok(())
        })
        .unwrap();
    sender.commit().unwrap();
    sender
        .snapshot(&mut |frame| {
            snapshot.extend_from_slice(frame);
            Ok(())
        })
        .unwrap();
    assert_eq!(place.patch("a", &[&update], "b").unwrap(), sender.state());
    let input = inputs(&[&snapshot]).remove(0);
    unpack(&input, &place.at("c"), None, &mut Workers::new(1)).unwrap();
    for name in ["b", "c"] {
        let found = Mirror::copy_of(&Checkpoint::open(&place.at(name)).unwrap()).unwrap();
        assert!(found.iter().eq(tensors.iter().map(|(tensor, bytes)| (tensor, *bytes))));
    }
    // What the header says besides stays.
    let first = fs::read(place.at("b").join("m-1.safetensors")).unwrap();
    assert!(String::from_utf8_lossy(&first).contains(r#""__metadata__":{"format":"pt"}"#));
}

/// An update that two ranks wrote, joined: rank 0 has `v` and rows 0 and 1 of `w`, rank 1 the other
/// rows. Rank 0 then has these tensors, rank 1 none.
fn joined(new: &[(Tensor, &[u8])]) -> Vec<u8> {
    let shard = |rows| Tensor::shard("w", ElementType::U8, [4, 8], rows).unwrap();
    let v = Tensor::new("v", ElementType::U8, [2]).unwrap();
    let held = [
        vec![(v, Buffer::from(&[32, 33][..])), (shard(0..2), Buffer::from(&counted(0..16)[..]))],
        vec![(shard(2..4), Buffer::from(&counted(16..32)[..]))],
    ];
    let new = [new, &[]];
    let streams = held.into_iter().zip(0..).zip(new).map(|((held, index), new)| {
        let share = Share { index, count: 2 };
        let options = DiffOptions { share, absent: Absent::Remove, ..DiffOptions::default() };
        let mut sender =
            Sender::new(Mirror::new(held).unwrap(), RunId([1; 16]), options, 1).unwrap();
        let mut stream = Vec::new();
        let mut sink = |frame: &[u8]| {
            stream.extend_from_slice(frame);
            Ok(())
        };
        sender.diff(&Slices::new(new.iter().cloned()).unwrap(), &mut sink).unwrap();
        stream
    });
    let streams: Vec<_> = streams.collect();
    let mut joined = Vec::new();
    let mut sink = |frame: &[u8]| {
        joined.extend_from_slice(frame);
        Ok(())
    };
    join(streams.iter().map(|stream| &stream[..]), &mut sink).unwrap();
    joined
}

fn counted(range: std::ops::Range<u8>) -> Vec<u8> {
    range.collect()
}

#[test]
fn tensors_that_ranks_remove_in_shards_leave_their_file() {
    let place = Place::new();
    let json = r#"{"w":{"dtype":"U8","shape":[4,8],"data_offsets":[0,32]},"v":{"dtype":"U8","shape":[2],"data_offsets":[32,34]}}"#;
    fs::write(place.at("a"), file(json, &counted(0..34))).unwrap();
    let v = Tensor::new("v", ElementType::U8, [2]).unwrap();
    let update = joined(&[(v.clone(), &[32, 99])]);
    place.patch("a", &[&update], "b").unwrap();
    let found = Mirror::copy_of(&Checkpoint::open(&place.at("b")).unwrap()).unwrap();
    assert!(found.iter().eq([(&v, &[32, 99][..])]));
    // New tensors in shards have no place in files.
    let shard = Tensor::shard("n", ElementType::U8, [2, 8], 0..1).unwrap();
    let update = joined(&[(v, &[32, 33]), (shard, &[5; 8])]);
    let error = place.patch("a", &[&update], "c").unwrap_err().to_string();
    assert!(error.contains("write whole tensors"), "{error}");
}
