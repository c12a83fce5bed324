//! A trainer that publishes, receivers that follow, and what may go wrong between them.

mod refused;

use std::fs;
use std::path::Path;
use std::time::Instant;

use super::*;
use crate::frame::{FrameReader, FrameWriter};
use crate::{
    Buffer, DiffOptions, ElementType, Mirror, Receiver, RunId, Sender, Share, Slices, Tensor,
};

const RUN: RunId = RunId([7; 16]);

fn tensor() -> Tensor {
    Tensor::new("w", ElementType::Bf16, [50]).unwrap()
}

/// The weights of a version: one element differs from the version before.
fn weights(version: u64) -> Vec<u8> {
    let mut bytes = vec![0; 100];
    (1..=version as usize).for_each(|step| bytes[2 * (step % 50)] = step as u8);
    bytes
}

fn mirror(version: u64) -> Mirror {
    Mirror::new([(tensor(), Buffer::from(&weights(version)[..]))]).unwrap()
}

fn sender() -> Sender {
    Sender::new(mirror(0), RUN, DiffOptions::default(), 1).unwrap()
}

fn receiver(version: u64) -> Receiver<Mirror> {
    Receiver::new(mirror(version), 1).unwrap().with_version(RUN, version)
}

/// The delta to the next version; the sender commits it.
fn next(sender: &mut Sender) -> Vec<u8> {
    let bytes = weights(sender.state().version + 1);
    let new = Slices::new([(tensor(), &bytes[..])]).unwrap();
    let mut delta = Vec::new();
    let mut sink = |frame: &[u8]| {
        delta.extend_from_slice(frame);
        Ok(())
    };
    sender.diff(&new, &mut sink).unwrap();
    sender.commit().unwrap();
    delta
}

/// Publishes the next version.
fn publish(folder: &Folder, sender: &mut Sender, keep: Keep) -> Result<State, Error> {
    let delta = next(sender);
    folder.publish(&delta[..], keep, |sink| sender.snapshot(sink).map(drop))
}

fn names(folder: &Folder) -> Vec<String> {
    let entries = fs::read_dir(folder.path()).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.retain(|name| name.ends_with(".gwd"));
    names.sort();
    names
}

fn new() -> (tempfile::TempDir, Folder) {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path().join("run"));
    (place, folder)
}

/// Leads a receiver to the newest version, and compares its weights with the sender's by hand.
fn follows(folder: &Folder, mut receiver: Receiver<Mirror>, version: u64) {
    let state = receiver.follow(folder).unwrap();
    assert_eq!((state.version, state.run), (version, Some(RUN)));
    assert_eq!(receiver.tensors().get("w").unwrap(), weights(version));
    receiver.verify().unwrap();
}

const ALL: Keep = Keep { versions: u64::MAX, snapshot_every: 0 };

#[test]
fn receivers_at_any_version_follow() {
    let (_place, folder) = new();
    let mut sender = sender();
    let error = receiver(0).follow(&folder).unwrap_err().to_string();
    assert!(error.contains("nothing"), "{error}");
    let keep = Keep { versions: 6, snapshot_every: 4 };
    for version in 1..=19 {
        assert_eq!(publish(&folder, &mut sender, keep).unwrap().version, version);
        follows(&folder, receiver(0), version);
        follows(&folder, receiver(version), version);
    }
    // Snapshots at 4, 8, 12, 16: the newest at least six versions old is that of 12.
    let names = names(&folder);
    assert_eq!(names.len(), 7 + 2, "{names:?}");
    assert_eq!(names[0], "delta-0000000012-0000000013.gwd");
    (0..19).for_each(|version| follows(&folder, receiver(version), 19));
    // Weights of another run, and another base model, start from the snapshot.
    let other = Receiver::new(mirror(5), 1).unwrap();
    follows(&folder, other.with_version(RunId([1; 16]), 13), 19);
    follows(&folder, Receiver::new(mirror(40), 1).unwrap().with_version(RUN, 17), 19);
}

#[test]
fn a_missing_link_is_named_with_the_snapshot_that_helps() {
    let (_place, folder) = new();
    let mut sender = sender();
    (0..8).for_each(|_| _ = publish(&folder, &mut sender, ALL).unwrap());
    fs::remove_file(folder.path().join("delta-0000000004-0000000005.gwd")).unwrap();
    let mut behind = receiver(2);
    let error = behind.follow(&folder).unwrap_err().to_string();
    assert!(error.contains("from version 4 to 5"), "{error}");
    // Nothing was applied: the gap is found before the chain starts.
    assert_eq!(behind.tensors().get("w").unwrap(), weights(2));
    follows(&folder, receiver(5), 8);
    // A snapshot of the newest version helps.
    let mut publication = folder.begin().unwrap();
    sender.snapshot(&mut |frame| io::Write::write_all(&mut publication, frame)).unwrap();
    publication.finish().unwrap();
    follows(&folder, receiver(2), 8);
}

/// The links of a folder from one version to another as one delta.
fn folded(folder: &Folder, base: &Mirror, versions: std::ops::Range<u64>) -> Vec<u8> {
    let links = versions.map(|version| {
        let name = format!("delta-{version:010}-{:010}.gwd", version + 1);
        fs::File::open(folder.path().join(name)).unwrap()
    });
    let mut delta = Vec::new();
    let mut sink = |frame: &[u8]| {
        delta.extend_from_slice(frame);
        Ok(())
    };
    crate::fold(base, links, &DiffOptions::default(), None, 1, &mut sink).unwrap();
    delta
}

#[test]
fn folded_deltas_are_short_cuts() {
    let (_place, folder) = new();
    let mut sender = sender();
    (0..9).for_each(|_| _ = publish(&folder, &mut sender, ALL).unwrap());
    let newest = folded(&folder, &mirror(5), 5..9);
    let inner = folded(&folder, &mirror(1), 1..4);
    for (delta, from) in [(&newest, 5), (&inner, 1)] {
        let publish = |_| folder.publish(&delta[..], ALL, |_| unreachable!());
        assert_eq!([0, 1].map(|again| publish(again).unwrap().version), [9, 9]);
        // Without a link the way leads over the folded delta.
        let link = format!("delta-{:010}-{:010}.gwd", from + 1, from + 2);
        fs::remove_file(folder.path().join(link)).unwrap();
        follows(&folder, receiver(from), 9);
        assert!(receiver(from + 1).follow(&folder).is_err());
    }
    // Ends that no link has: another base, and a target that is not the newest.
    let mut other = Sender::new(mirror(3), RUN, DiffOptions::default(), 1).unwrap();
    let unknown = next(&mut other);
    let error = folder.publish(&unknown[..], ALL, |_| unreachable!()).unwrap_err();
    assert!(matches!(error, Error::OtherPublisher { .. }), "{error}");
    publish(&folder, &mut sender, ALL).unwrap();
    follows(&folder, receiver(5), 10);
}

#[test]
fn only_a_publisher_whose_stream_fits_removes_others() {
    let (_place, folder) = new();
    let mut first = sender();
    let keep = Keep { versions: 100, snapshot_every: 2 };
    (0..9).for_each(|_| _ = publish(&folder, &mut first, keep).unwrap());
    let before = names(&folder);
    let all = Keep { versions: 0, snapshot_every: 0 };
    let write = |stream: &[u8]| {
        let mut publication = folder.begin().unwrap();
        io::Write::write_all(&mut publication, stream).unwrap();
        publication.finish_and_prune(all)
    };
    let mut other = Sender::new(mirror(9), RunId([9; 16]), DiffOptions::default(), 1).unwrap();
    let error = write(&next(&mut other)).unwrap_err();
    assert!(matches!(error, Error::OtherPublisher { .. }), "{error}");
    assert_eq!(names(&folder), before);
    // Nor anybody while another one publishes.
    let open = folder.begin().unwrap();
    let error = folder.clone().with_patience(Duration::ZERO).prune(all).unwrap_err();
    assert!(matches!(error, Error::Busy { .. }), "{error}");
    assert_eq!(names(&folder), before);
    drop(open);
    // A receiver that has staged an update before.
    let (mut staged, mut update) = (receiver(3), crate::Update::default());
    assert!(staged.stage_next(&folder, &mut update).unwrap());
    // What was older than version 9 minus 0 goes; the newest snapshot is that of version 8.
    write(&next(&mut first)).unwrap();
    let left =
        ["delta-0000000008-0000000009", "delta-0000000009-0000000010", "snapshot-0000000008"];
    assert_eq!(names(&folder), left.map(|name| format!("{name}.gwd")));
    staged.commit(&mut update).unwrap();
    follows(&folder, staged, 10);
    follows(&folder, receiver(1), 10);
}

#[test]
fn a_publisher_that_waits_can_be_stopped() {
    let (_place, folder) = new();
    let open = folder.begin().unwrap();
    let progress = crate::Progress::default();
    let patient = folder.clone().with_patience(Duration::from_secs(3600));
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| progress.watch(|| patient.begin()));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!waiting.is_finished());
        progress.stop();
        assert!(matches!(waiting.join().unwrap(), Err(Error::Stopped)));
    });
    drop(open);
    folder.begin().unwrap();
}

#[test]
fn two_trainers_cannot_publish_to_one_folder() {
    let (_place, folder) = new();
    let mut first = sender();
    publish(&folder, &mut first, ALL).unwrap();
    // Another run; and the same run from an older version.
    let mut other = Sender::new(mirror(1), RunId([9; 16]), DiffOptions::default(), 1).unwrap();
    let mut old = sender();
    for trainer in [&mut other, &mut old] {
        let before = names(&folder);
        let error = publish(&folder, trainer, ALL).unwrap_err();
        assert!(matches!(error, Error::OtherPublisher { .. }), "{error}");
        assert_eq!((names(&folder), folder.latest().unwrap().unwrap().version), (before, 1));
    }
    publish(&folder, &mut first, ALL).unwrap();
    // At the same time.
    let open = folder.begin().unwrap();
    let error = folder.clone().with_patience(Duration::ZERO).begin().unwrap_err();
    let own = format!("process {}", std::process::id());
    assert!(matches!(&error, Error::Busy { holder, .. } if holder.starts_with(&own)), "{error}");
    // A publisher that waits begins when the other one ends.
    let (waiting, pause) = (folder.clone(), Duration::from_millis(50));
    let (has_started, started) = std::sync::mpsc::channel();
    let waiting = std::thread::spawn(move || {
        let start = Instant::now();
        has_started.send(()).unwrap();
        waiting.begin().map(|_| start.elapsed())
    });
    started.recv().unwrap();
    std::thread::sleep(pause);
    drop(open);
    assert!(waiting.join().unwrap().unwrap() >= pause);
    publish(&folder, &mut first, ALL).unwrap();
    follows(&folder, receiver(0), 3);
}

#[cfg(unix)]
#[test]
fn a_lock_that_is_a_link_is_not_written() {
    let (place, folder) = new();
    let other = place.path().join("other");
    fs::write(&other, "text").unwrap();
    fs::create_dir(folder.path()).unwrap();
    std::os::unix::fs::symlink(&other, folder.path().join("lock")).unwrap();
    assert!(folder.begin().unwrap_err().to_string().contains("link"));
    assert_eq!(fs::read_to_string(other).unwrap(), "text");
}

#[test]
fn a_trainer_that_crashed_before_it_published_resumes() {
    let (_place, folder) = new();
    let mut trainer = sender();
    (0..3).for_each(|_| _ = publish(&folder, &mut trainer, ALL).unwrap());
    // An update is written and lost; part of another is left in the folder.
    next(&mut trainer);
    let mut publication = folder.begin().unwrap();
    io::Write::write_all(&mut publication, b"\x89GWD").unwrap();
    std::mem::forget(publication);
    // A stream that was renamed, but not yet pointed to.
    fs::write(folder.path().join("delta-0000000003-0000000004.gwd"), b"lost").unwrap();
    drop(trainer);
    let mut base = receiver(0);
    base.follow(&folder).unwrap();
    let mut trainer = Sender::resume(base, DiffOptions::default(), 1);
    assert_eq!((trainer.state().version, trainer.state().run), (3, Some(RUN)));
    // A process that ended has no lock.
    let lock = folder.path().join("lock");
    fs::remove_file(lock).unwrap();
    assert_eq!(publish(&folder, &mut trainer, ALL).unwrap().version, 4);
    follows(&folder, receiver(0), 4);
}

#[test]
fn damaged_and_unfinished_streams_are_not_published() {
    let (_place, folder) = new();
    let mut sender = sender();
    publish(&folder, &mut sender, ALL).unwrap();
    let delta = next(&mut sender);
    let before = names(&folder);
    for cut in 0..delta.len() {
        assert!(folder.publish(&delta[..cut], ALL, |_| Ok(())).is_err(), "{cut} bytes");
    }
    let mut bad = delta.clone();
    bad[delta.len() / 2] ^= 1;
    assert!(folder.publish(&bad[..], ALL, |_| Ok(())).is_err());
    let longer = [&delta[..], &[0]].concat();
    let error = folder.publish(&longer[..], ALL, |_| Ok(())).unwrap_err().to_string();
    assert!(error.contains("bytes follow"), "{error}");
    let share = Share { index: 0, count: 2 };
    let options = DiffOptions { share, ..DiffOptions::default() };
    let mut one = Sender::new(mirror(1), RUN, options, 1).unwrap();
    let error = folder.publish(&next(&mut one)[..], ALL, |_| Ok(())).unwrap_err();
    assert!(matches!(error, Error::OneShare { count: 2 }), "{error}");
    assert_eq!((names(&folder), leftovers(folder.path())), (before, 0));
    folder.publish(&delta[..], ALL, |_| Ok(())).unwrap();
    follows(&folder, receiver(0), 2);
}

/// A stream from the weights of version `base` of `run` with the bytes `old`; the next version has
/// the bytes `new`. Without these it is a snapshot.
fn stream(run: RunId, base: u64, old: &[u8], new: Option<&[u8]>) -> Vec<u8> {
    let mirror = Mirror::new([(tensor(), Buffer::from(old))]).unwrap();
    let receiver = Receiver::new(mirror, 1).unwrap().with_version(run, base);
    let mut sender = Sender::resume(receiver, DiffOptions::default(), 1);
    let mut stream = Vec::new();
    let mut sink = |frame: &[u8]| {
        stream.extend_from_slice(frame);
        Ok(())
    };
    match new {
        Some(new) => sender.diff(&Slices::new([(tensor(), new)]).unwrap(), &mut sink).unwrap(),
        None => sender.snapshot(&mut sink).unwrap(),
    };
    stream
}

/// A folder whose newest weights are version 5, of which only the pointer is there.
fn folder_at_five() -> (tempfile::TempDir, Folder) {
    let (place, folder) = new();
    fs::create_dir_all(folder.path()).unwrap();
    pointer::write(folder.path(), &receiver(5).state()).unwrap();
    (place, folder)
}

#[test]
fn following_ends_if_links_are_of_other_weights_than_the_snapshot() {
    let other = [9; 100];
    let put = |folder: &Folder, name: &str, stream: Vec<u8>| {
        fs::write(folder.path().join(name), stream).unwrap();
    };
    let (first, last) = ("delta-0000000003-0000000004.gwd", "delta-0000000004-0000000005.gwd");
    // The link after the snapshot is of another base.
    let (_place, folder) = folder_at_five();
    put(&folder, "snapshot-0000000004.gwd", stream(RUN, 4, &weights(4), None));
    put(&folder, last, stream(RUN, 4, &other, Some(&weights(5))));
    for version in [1, 4] {
        let mut receiver = receiver(version);
        let error = receiver.follow(&folder).unwrap_err();
        assert!(matches!(error, Error::NoChain { link: 5, snapshot: Some(4), .. }), "{error}");
        assert_eq!(receiver.tensors().get("w").unwrap(), weights(4));
    }
    // The second link after the snapshot is.
    let (_place, folder) = folder_at_five();
    put(&folder, "snapshot-0000000003.gwd", stream(RUN, 3, &weights(3), None));
    put(&folder, first, stream(RUN, 3, &weights(3), Some(&weights(4))));
    put(&folder, last, stream(RUN, 4, &other, Some(&weights(5))));
    let error = receiver(1).follow(&folder).unwrap_err();
    assert!(matches!(error, Error::NoChain { link: 5, snapshot: Some(3), .. }), "{error}");
    // The last link gives other weights than the newest.
    let (_place, folder) = folder_at_five();
    put(&folder, "snapshot-0000000004.gwd", stream(RUN, 4, &weights(4), None));
    put(&folder, last, stream(RUN, 4, &weights(4), Some(&other)));
    let error = receiver(1).follow(&folder).unwrap_err();
    assert!(matches!(error, Error::OtherStream { .. }), "{error}");
}

#[test]
fn snapshots_of_other_trainers_are_refused() {
    let other = RunId([9; 16]);
    // Of another run; of the newest version with other weights.
    for (run, version, bytes) in [(other, 4, weights(4)), (RUN, 5, weights(6))] {
        let (_place, folder) = folder_at_five();
        let link = stream(RUN, 4, &weights(4), Some(&weights(5)));
        fs::write(folder.path().join("delta-0000000004-0000000005.gwd"), link).unwrap();
        let name = format!("snapshot-{version:010}.gwd");
        fs::write(folder.path().join(name), stream(run, version, &bytes, None)).unwrap();
        let mut update = crate::Update::default();
        let mut receiver = receiver(1);
        let error = receiver.stage_next(&folder, &mut update).unwrap_err();
        assert!(matches!(error, Error::OtherStream { .. }), "{error}");
        let error = receiver.commit(&mut update).unwrap_err();
        assert!(matches!(error, Error::NotStaged), "{error}");
    }
}

#[test]
fn a_delta_that_leads_to_no_later_version_is_not_published() {
    let (_place, folder) = new();
    let mut header = FrameReader::new(&next(&mut sender())[..]).unwrap().header().clone();
    for (base, target, is_taken) in [(3, 3, false), (4, 3, false), (3, 4, true)] {
        (header.base, header.target) = (base, target);
        let mut delta = Vec::new();
        let mut sink = |frame: &[u8]| {
            delta.extend_from_slice(frame);
            Ok(())
        };
        FrameWriter::new(&header).end(header.base_hash, &mut sink).unwrap();
        let published = folder.publish(&delta[..], ALL, |_| Ok(()));
        assert_eq!(published.is_ok(), is_taken, "from {base} to {target}");
        assert_eq!(names(&folder).len(), usize::from(is_taken));
    }
}

/// The number of temporary files.
fn leftovers(folder: &Path) -> usize {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    entries.filter(|name| name.to_string_lossy().ends_with(".tmp")).count()
}
