use std::path::{Path, PathBuf};

use tempfile::tempdir;

use super::{gzip, idx, image_set, write};
use crate::data::catalogue::{Known, KnownFile, Verdict, catalogue, first_of, places_under};
use crate::data::{DataError, embedded_sized, find};

#[test]
fn names_are_looked_for_in_order() {
    let places = places_under("mnist", None, Some(Path::new("/root")));
    assert_eq!(places, [PathBuf::from("/root/mnist"), PathBuf::from("data/mnist")]);
    assert_eq!(places_under("mnist", None, None), [PathBuf::from("data/mnist")]);
    let places = places_under("mnist", Some(Path::new("here")), Some(Path::new("/root")));
    assert_eq!(places, [PathBuf::from("here/mnist"), PathBuf::from("here")]);
}

#[test]
fn an_explicit_folder_may_hold_the_set_or_a_folder_of_its_name() {
    let dir = tempdir().unwrap();
    idx::write_set(&dir.path().join("mnist"));
    idx::write_set(&dir.path().join("fashion"));
    assert_eq!(find("fashion", Some(dir.path())).unwrap().name, "fashion");
    assert_eq!(find("mnist", Some(&dir.path().join("fashion"))).unwrap().name, "fashion");
}

#[test]
fn a_data_set_that_is_nowhere_lists_the_places() {
    let places = vec![PathBuf::from("/nowhere/mnist"), PathBuf::from("/never/mnist")];
    let error = first_of("mnist", places).unwrap_err();
    assert!(matches!(error, DataError::NotFound { .. }));
    let message = error.to_string();
    for word in ["'mnist'", "'/nowhere/mnist' or '/never/mnist'", "digits, frames, mnist, cifar10"]
    {
        assert!(message.contains(word), "{word}: {message}");
    }
    assert!(!message.contains("did you mean"), "{message}");
    let message = first_of("mnst", Vec::new()).unwrap_err().to_string();
    assert!(message.contains("'mnst' (did you mean 'mnist'"), "{message}");
}

#[test]
fn the_generated_set_needs_no_place() {
    let found = find("digits", None).unwrap();
    let expected = embedded_sized(0, 100, 0);
    assert_eq!(image_set(&found).train.image(99), image_set(&expected).train.image(99));
}

#[test]
fn names_are_unique_and_checksums_well_formed() {
    let mut names: Vec<_> = catalogue().iter().map(|known| known.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), catalogue().len());
    for file in catalogue().iter().flat_map(|known| known.files) {
        let hexadecimal = |sum: &str| sum.len() == 64 && sum.bytes().all(|b| b.is_ascii_hexdigit());
        assert!(file.sha256.is_none_or(hexadecimal), "{}", file.name);
    }
}

#[test]
fn files_are_compared_with_their_checksums() {
    // The published SHA-256 of the three bytes "abc" (FIPS 180-2, appendix B.1).
    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const fn file(name: &'static str) -> KnownFile {
        KnownFile { name, sha256: Some(ABC) }
    }
    const FILES: &[KnownFile] = &[
        file("plain"),
        file("zipped"),
        file("other"),
        KnownFile { name: "unsummed", sha256: None },
        file("absent"),
    ];
    let dir = tempdir().unwrap();
    write(dir.path(), "plain", b"abc");
    write(dir.path(), "zipped.gz", &gzip(b"abc"));
    write(dir.path(), "other", b"abd");
    write(dir.path(), "unsummed", b"abc");
    let known = Known { name: "test", summary: "", files: FILES, generate: None };
    let verdicts = known.verify(dir.path()).unwrap();
    assert_eq!(verdicts[0], ("plain", Verdict::Matches));
    assert_eq!(verdicts[1], ("zipped", Verdict::Matches));
    assert!(matches!(&verdicts[2], ("other", Verdict::Differs(sum)) if sum != ABC));
    assert_eq!(verdicts[3], ("unsummed", Verdict::Unknown(ABC.to_owned())));
    assert_eq!(verdicts[4], ("absent", Verdict::Missing));
}
