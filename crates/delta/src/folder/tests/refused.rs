//! Streams that receivers refuse while others help.

use super::*;

const SHORT_CUT: &str = "delta-0000000001-0000000006.gwd";

/// A stream with the header and the end of another, and without its records.
fn emptied(stream: &[u8]) -> Vec<u8> {
    let (mut frames, mut emptied) = (FrameReader::new(stream).unwrap(), Vec::new());
    while frames.records(&mut Vec::new()).unwrap() {}
    let mut sink = |frame: &[u8]| {
        emptied.extend_from_slice(frame);
        Ok(())
    };
    let end = frames.end().unwrap();
    FrameWriter::new(frames.header()).end(end.target_hash, &mut sink).unwrap();
    emptied
}

#[test]
fn a_wrong_short_cut_or_a_damaged_snapshot_blocks_nobody() {
    let (_place, folder) = new();
    let mut sender = sender();
    (0..6).for_each(|_| _ = publish(&folder, &mut sender, ALL).unwrap());
    // Its ends are right, so it is published; but it has no changes.
    let right = folded(&folder, &mirror(1), 1..6);
    let wrong = emptied(&right);
    let mut update = crate::Update::default();
    let mut behind = receiver(1);
    let error = behind.stage_into([&wrong[..]], &mut update).unwrap_err();
    assert!(matches!(error, Error::WrongResult { .. }), "{error}");
    assert!(matches!(behind.commit(&mut update), Err(Error::NotStaged)));
    folder.publish(&wrong[..], ALL, |_| unreachable!()).unwrap();
    follows(&folder, receiver(0), 6);
    follows(&folder, receiver(1), 6);
    let refused = folder.refused();
    assert_eq!(refused.len(), 1, "{refused:?}");
    assert!(refused[0].contains(SHORT_CUT), "{refused:?}");
    // If nothing else helps, the error names the stream. A right one is taken as soon as it is
    // there.
    fs::remove_file(folder.path().join("delta-0000000003-0000000004.gwd")).unwrap();
    let error = receiver(1).follow(&Folder::new(folder.path())).unwrap_err();
    assert!(
        matches!(&error, Error::Input { path, source }
            if path.ends_with(SHORT_CUT)
                && matches!(**source, Error::WrongResult { .. })),
        "{error}"
    );
    folder.publish(&right[..], ALL, |_| unreachable!()).unwrap();
    follows(&folder, receiver(1), 6);
    // The shortest way to the newest version begins with a snapshot.
    let mut publication = folder.begin().unwrap();
    sender.snapshot(&mut |frame| io::Write::write_all(&mut publication, frame)).unwrap();
    publication.finish().unwrap();
    let path = folder.path().join("snapshot-0000000006.gwd");
    let mut bytes = fs::read(&path).unwrap();
    bytes[90] ^= 1;
    fs::write(&path, bytes).unwrap();
    let error = receiver(3).follow(&folder).unwrap_err();
    assert!(error.to_string().contains("snapshot-0000000006.gwd"), "{error}");
    follows(&folder, receiver(1), 6);
    follows(&folder, receiver(0), 6);
}

#[test]
fn refused_streams_are_forgotten_once_their_files_are_gone() {
    let (_place, folder) = new();
    let mut sender = sender();
    (0..6).for_each(|_| _ = publish(&folder, &mut sender, ALL).unwrap());
    let right = folded(&folder, &mirror(1), 1..6);
    let path = folder.path().join(SHORT_CUT);
    for _ in 0..2 {
        fs::write(&path, emptied(&right)).unwrap();
        follows(&folder, receiver(1), 6);
        assert_eq!(folder.refused().len(), 1);
        fs::remove_file(&path).unwrap();
        assert!(folder.refused().is_empty());
    }
    fs::write(&path, emptied(&right)).unwrap();
    follows(&folder, receiver(1), 6);
    // Another stream under the same name is taken.
    folder.publish(&right[..], ALL, |_| unreachable!()).unwrap();
    fs::remove_file(folder.path().join("delta-0000000003-0000000004.gwd")).unwrap();
    follows(&folder, receiver(1), 6);
    assert!(folder.refused().is_empty());
}

#[test]
fn a_repaired_file_of_the_same_length_is_read() {
    let (place, folder) = new();
    let mut sender = sender();
    (0..6).for_each(|_| _ = publish(&folder, &mut sender, ALL).unwrap());
    let right = folded(&folder, &mirror(1), 1..6);
    let mut damaged = right.clone();
    damaged[90] ^= 1;
    let path = folder.path().join(SHORT_CUT);
    let next = |version| {
        let mut update = crate::Update::default();
        receiver(version).stage_next(&folder, &mut update).unwrap();
        update.target().version
    };
    for is_replaced in [false, true] {
        fs::write(&path, &damaged).unwrap();
        // The single updates are taken, and the file is not read again as long as it is the same.
        assert_eq!([next(1), next(1)], [2; 2]);
        assert_eq!(folder.refused().len(), 1);
        if is_replaced {
            let other = place.path().join("other");
            fs::write(&other, &right).unwrap();
            fs::rename(&other, &path).unwrap();
        } else {
            // Clocks of file systems advance in steps.
            std::thread::sleep(Duration::from_millis(50));
            #[cfg(unix)]
            let written = fs::metadata(&path).unwrap().modified().unwrap();
            fs::write(&path, &right).unwrap();
            // As copies do that keep the time.
            #[cfg(unix)]
            fs::File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
        }
        assert_eq!(next(1), 6);
        assert!(folder.refused().is_empty());
    }
}
