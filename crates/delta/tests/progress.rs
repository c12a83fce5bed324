//! How far operations are, and that they can be stopped.

mod common;

use common::*;
use gradwire_delta::folder::{Folder, Keep};
use gradwire_delta::on_disk::{self, Input};
use gradwire_delta::safetensors::Checkpoint;
use gradwire_delta::{
    Absent, Buffer, DiffOptions, ElementType, Error, Mirror, Progress, Receiver, Update, Workers,
    fold,
};

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

/// Runs an operation of `end` again and again, stopped at the first of its reports, at the second,
/// and so on, and checks `end` each time, until it ends by itself. Returns the number of stops.
fn stopped_everywhere<T, R>(
    end: &mut T,
    mut operation: impl FnMut(&mut T) -> Result<R, Error>,
    mut check: impl FnMut(&mut T),
) -> usize {
    let mut after = 1;
    for stops in 0.. {
        let progress = Progress::default();
        progress.stop_at(after);
        match progress.watch(|| operation(end)) {
            Err(Error::Stopped) => assert!(progress.done() >= after),
            ended => {
                ended.unwrap();
                assert!(progress.done() < after);
                return stops;
            }
        }
        check(end);
        after = progress.done() + 1;
    }
    unreachable!("an operation ends")
}

/// A version of a model that is so large that each operation reports several times.
fn large(seed: u64) -> Model {
    let mut random = Random(seed);
    let mut noise = || (0..3 << 18).flat_map(|_| random.next().to_le_bytes()).collect();
    let shape = [3 << 19];
    vec![
        (tensor("a", ElementType::F32, &shape), noise()),
        (tensor("b", ElementType::F32, &shape), noise()),
        // Small tensors are read one by one.
        (tensor("c", ElementType::F32, &[2]), vec![seed as u8; 8]),
        (tensor("d", ElementType::F32, &[2]), vec![seed as u8; 8]),
    ]
}

#[test]
fn a_sender_that_is_stopped_anywhere_is_as_before() {
    let [old, new] = [1, 2].map(large);
    let mut sender = sender(&old, DiffOptions::default(), 1);
    let is_old = |sender: &gradwire_delta::Sender| {
        sender.state().version == 0 && content(sender.tensors()) == old
    };
    let stops = stopped_everywhere(
        &mut sender,
        |sender| sender.diff(&mirror(&new), &mut |_| Ok(())).map(|_| sender.rollback()),
        // It is rolled back, so another update begins.
        |sender| {
            assert!(is_old(sender));
            sender.begin().unwrap();
            sender.rollback();
        },
    );
    assert!(stops > 2, "{stops}");
    let stream = diff(&mut sender, &new);
    // An update that is stopped while it is proven stays complete.
    let stops =
        stopped_everywhere(&mut sender, |sender| sender.commit(), |sender| assert!(is_old(sender)));
    assert!(stops > 2, "{stops}");
    assert_eq!((sender.state().version, content(sender.tensors())), (1, new.clone()));
    let mut receiver = receiver(&old);
    apply(&mut receiver, &stream).unwrap();
    assert!(has(&receiver, &new));
}

#[test]
fn a_snapshot_can_be_stopped_in_the_middle() {
    let zeros = || Buffer::zeros(40 << 20);
    let names = ["a", "b", "c"].map(|name| tensor(name, ElementType::U8, &[40 << 20]));
    let base = Mirror::new(names.map(|tensor| (tensor, zeros()))).unwrap();
    let options = DiffOptions::default();
    let stops = stopped_everywhere(
        &mut gradwire_delta::Sender::new(base.clone(), RUN, options, 1).unwrap(),
        |sender| sender.snapshot(&mut |_| Ok(())),
        |sender| assert_eq!(sender.state().version, 0),
    );
    assert!(stops > 1, "{stops}");
    let copied = stopped_everywhere(&mut (), |()| Mirror::copy_of(&base), |()| {});
    let hashed = stopped_everywhere(&mut (), |()| Receiver::new(base.clone(), 1), |()| {});
    let verified = stopped_everywhere(
        &mut Receiver::new(base.clone(), 1).unwrap(),
        |receiver| receiver.verify(),
        |receiver| assert_eq!(receiver.state().version, 0),
    );
    assert!(copied > 2 && hashed > 1 && verified > 1, "{copied} {hashed} {verified}");
}

#[test]
fn a_receiver_that_is_stopped_anywhere_holds_the_old_weights() {
    let [old, new] = [1, 2].map(large);
    let stream = delta(&old, &new);
    let mut pair = (receiver(&old), Update::default());
    let stops = stopped_everywhere(
        &mut pair,
        |(receiver, update)| receiver.stage_into([&stream[..]], update),
        |(receiver, update)| {
            assert!(has(receiver, &old));
            assert!(matches!(receiver.commit(update), Err(Error::NotStaged)));
        },
    );
    assert!(stops > 2, "{stops}");
    let (mut receiver, mut update) = pair;
    receiver.commit(&mut update).unwrap();
    assert!(has(&receiver, &new));
    let options = DiffOptions::default();
    let folded = stopped_everywhere(
        &mut (),
        |()| fold(&mirror(&old), [&stream[..]], &options, None, 1, &mut |_| Ok(())),
        |()| {},
    );
    assert!(folded > 4, "{folded}");
}

#[test]
fn following_that_is_stopped_anywhere_ends_at_a_version() {
    let place = tempfile::tempdir().unwrap();
    let folder = Folder::new(place.path());
    let versions = [1, 2, 3, 4].map(large);
    let mut sender = sender(&versions[0], DiffOptions::default(), 1);
    for new in &versions[1..] {
        let stream = diff(&mut sender, new);
        folder.publish(&stream[..], Keep::default(), |_| unreachable!()).unwrap();
        sender.commit().unwrap();
    }
    let (mut receiver, mut reached) = (receiver(&versions[0]), Vec::new());
    let stops = stopped_everywhere(
        &mut receiver,
        |receiver| receiver.follow(&folder),
        |receiver| {
            let version = receiver.state().version;
            assert!(has(receiver, &versions[version as usize]));
            reached.push(version);
            // Later it goes on from there.
            assert_eq!(receiver.follow(&folder).unwrap().version, 3);
            assert!(has(receiver, &versions[3]));
            *receiver = common::receiver(&versions[0]);
        },
    );
    assert!(has(&receiver, &versions[3]));
    assert!(stops > 6 && reached.is_sorted(), "{reached:?}");
    reached.dedup();
    assert_eq!(reached, [0, 1, 2]);
}

#[test]
fn files_whose_patch_is_stopped_anywhere_are_as_before() {
    let place = tempfile::tempdir().unwrap();
    let at = |name: &str| place.path().join(name);
    let mut workers = Workers::new(1);
    for (name, model) in ["old", "new"].iter().zip([1, 2].map(large)) {
        let stream = snapshot(&mut sender(&model, DiffOptions::default(), 1));
        let input = Input::Bytes(name.into(), stream);
        on_disk::unpack(&input, &at(name), None, &mut workers).unwrap();
    }
    std::fs::copy(at("old"), at("own")).unwrap();
    let [old, new] = ["old", "new"].map(|name| Checkpoint::open(&at(name)).unwrap());
    let mut stream = Vec::new();
    on_disk::delta(&old, &new, false, &mut workers, &mut collect(&mut stream)).unwrap();
    let input = [Input::Bytes("delta".into(), stream)];
    let is_as_before = |_: &mut _| {
        let names = std::fs::read_dir(place.path()).unwrap();
        let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        names.retain(|name| name != "gradwire.lock");
        names.sort();
        assert_eq!(names, ["new", "old", "own"]);
        assert!(std::fs::read(at("own")).unwrap() == std::fs::read(at("old")).unwrap());
    };
    let patch = |workers: &mut Workers| on_disk::patch(&old, &input, &at("out"), None, workers);
    let stops = stopped_everywhere(&mut workers, patch, is_as_before);
    assert!(std::fs::read(at("out")).unwrap() == std::fs::read(at("new")).unwrap());
    std::fs::remove_file(at("out")).unwrap();
    let in_place = |workers: &mut Workers| on_disk::patch_in_place(&at("own"), &input, workers);
    let stops_in_place = stopped_everywhere(&mut workers, in_place, is_as_before);
    assert!(stops > 2 && stops_in_place > 2, "{stops} {stops_in_place}");
    assert!(std::fs::read(at("own")).unwrap() == std::fs::read(at("new")).unwrap());
}
