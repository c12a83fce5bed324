//! How far operations are, and that they can be stopped.

mod common;

use common::*;
use gradwire_delta::{Absent, DiffOptions, Error, Mirror, Progress, Receiver, Update, fold};

fn bytes(model: &Model) -> u64 {
    model.iter().map(|(_, bytes)| bytes.len() as u64).sum()
}

/// The bytes that an operation reports, of how many, and its result.
fn watched<R>(operation: impl FnOnce() -> Result<R, Error>) -> (R, [u64; 2]) {
    let progress = Progress::default();
    let result = progress.watch(operation).unwrap();
    (result, [progress.done(), progress.total()])
}

/// Runs an operation that is to stop at its first report.
fn stopped<R>(operation: impl FnOnce() -> Result<R, Error>) {
    let progress = Progress::default();
    progress.stop();
    let result = progress.watch(operation);
    assert!(matches!(result, Err(Error::Stopped)), "{:?}", result.err());
}

#[test]
fn operations_report_all_their_bytes() {
    let old = model(1);
    let (size, new) = (bytes(&old), step(&old, 1, 50));
    for threads in [1, 3] {
        let (base, seen) = watched(|| Mirror::copy_of(&mirror(&old)));
        assert_eq!(seen, [size; 2]);
        let (mut receiver, seen) = watched(|| Receiver::new(base, threads));
        assert_eq!(seen, [size; 2]);
        assert_eq!(watched(|| receiver.verify()).1, [size; 2]);
        let (mut sender, mut stream) = (sender(&old, DiffOptions::default(), threads), Vec::new());
        let diff = || sender.diff(&mirror(&new), &mut collect(&mut stream));
        let (summary, seen) = watched(diff);
        assert_eq!((summary.len, seen), (stream.len() as u64, [size; 2]));
        let (mut update, seen) = watched(|| receiver.stage([&stream[..]]));
        assert_eq!(seen, [summary.len; 2]);
        // It reports nothing, and nothing stops it.
        let progress = Progress::default();
        progress.stop();
        progress.watch(|| receiver.commit(&mut update)).unwrap();
        assert_eq!(progress.done(), 0);
        assert_eq!(watched(|| sender.commit()).1, [summary.len; 2]);
        let mut dense = Vec::new();
        assert_eq!(watched(|| sender.snapshot(&mut collect(&mut dense))).1, [size; 2]);
        let links = [&stream[..]];
        let options = DiffOptions::default();
        let fold = || fold(&mirror(&old), links, &options, None, threads, &mut |_| Ok(()));
        assert_eq!(watched(fold).1[0], 3 * size + summary.len);
    }
}

#[test]
fn tensors_that_are_removed_count() {
    let old = model(1);
    let (size, new) = (bytes(&old), old[1..].to_vec());
    let options = DiffOptions { absent: Absent::Remove, ..DiffOptions::default() };
    let mut sender = sender(&old, options, 1);
    let (stream, seen) = watched(|| {
        let mut stream = Vec::new();
        let written = sender.diff(&mirror(&new), &mut collect(&mut stream));
        written.map(|_| stream)
    });
    assert_eq!(seen, [size; 2]);
    let removed = old[0].1.len() as u64;
    let seen = watched(|| receiver(&old).stage([&stream[..]])).1;
    assert_eq!(seen, [size + removed + stream.len() as u64; 2]);
}

#[test]
fn operations_that_are_stopped_change_nothing() {
    let old = model(1);
    let new = step(&old, 1, 50);
    let stream = delta(&old, &new);
    stopped(|| Mirror::copy_of(&mirror(&old)));
    stopped(|| Receiver::new(mirror(&old), 2));
    let mut receiver = receiver(&old);
    stopped(|| receiver.verify());
    let mut update = Update::default();
    stopped(|| receiver.stage_into([&stream[..]], &mut update));
    assert!(matches!(receiver.commit(&mut update), Err(Error::NotStaged)));
    assert!(has(&receiver, &old));
    let mut sender = sender(&old, DiffOptions::default(), 1);
    stopped(|| sender.diff(&mirror(&new), &mut |_| Ok(())));
    // It is rolled back, and so another one may begin.
    assert_eq!(diff(&mut sender, &new), stream);
    stopped(|| sender.commit());
    assert_eq!((sender.state().version, content(sender.tensors())), (0, old.clone()));
    stopped(|| sender.snapshot(&mut |_| Ok(())));
    sender.commit().unwrap();
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &new) && content(sender.tensors()) == new);
    // An update that is applied is only read.
    stopped(|| receiver.stage_into([&stream[..]], &mut update));
    assert_eq!(watched(|| receiver.stage([&stream[..]])).1, [stream.len() as u64; 2]);
    let options = DiffOptions::default();
    stopped(|| fold(&mirror(&old), [&stream[..]], &options, None, 1, &mut |_| Ok(())));
}
