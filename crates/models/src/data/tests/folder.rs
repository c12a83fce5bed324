use std::fs;
use std::path::Path;

use png::{BitDepth, ColorType};
use tempfile::tempdir;

use super::pictures::{jpeg_of, png_of, png_with};
use super::{gzip, image_set, refused, write};
use crate::data::folder::check_count;
use crate::data::{DataError, load};

/// A PNG of 2 columns and 1 row: `value`, 1, 2 on the left, 3, 4, 5 on the right.
fn png(value: u8) -> Vec<u8> {
    png_of((2, 1), 3, &[value, 1, 2, 3, 4, 5])
}

/// Three training images in two classes, and one test image of each, by path.
fn files() -> Vec<(String, Vec<u8>)> {
    let paths = [
        "train/cat/b.png",
        "train/cat/a.png",
        "train/ant/z.PNG",
        "test/cat/1.png",
        "test/ant/1.png",
    ];
    paths.iter().zip(10..).map(|(path, value)| ((*path).to_owned(), png(value))).collect()
}

pub(super) fn write_set(dir: &Path) {
    files().iter().for_each(|(path, bytes)| write(dir, path, bytes));
}

pub(super) fn tar(files: &[(String, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (path, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        if path.ends_with('/') {
            header.set_entry_type(tar::EntryType::Directory);
        }
        builder.append_data(&mut header, path, &bytes[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn folders_load_class_by_class_in_turn() {
    let dir = tempdir().unwrap();
    let dir = dir.path().join("pets");
    write_set(&dir);
    write(&dir, "train/cat/notes.txt", b"not an image");
    write(&dir, "train/cat/._a.png", b"not an image either");
    write(&dir, "val/other/1.png", b"ignored beside test");
    let data = load(&dir).unwrap();
    assert_eq!(data.name, "pets");
    assert_eq!((image_set(&data).train.shape(), image_set(&data).train.classes), ([3, 1, 2], 2));
    // ant's first, cat's first, cat's second; red plane first.
    assert_eq!(image_set(&data).train.labels, [0, 1, 1]);
    assert_eq!(image_set(&data).train.image(0), [12, 3, 1, 4, 2, 5]);
    assert_eq!(image_set(&data).train.image(1), [11, 3, 1, 4, 2, 5]);
    assert_eq!(image_set(&data).train.image(2), [10, 3, 1, 4, 2, 5]);
    assert_eq!(image_set(&data).test.labels, [0, 1]);
    assert_eq!(image_set(&data).test.image(0), [14, 3, 1, 4, 2, 5]);
}

/// A pipe would be read without end.
#[cfg(unix)]
#[test]
fn only_files_are_images() {
    let dir = tempdir().unwrap();
    write_set(dir.path());
    let expected = load(dir.path()).unwrap();
    let socket = dir.path().join("train/cat/c.png");
    let _listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    fs::create_dir(dir.path().join("train/cat/d.png")).unwrap();
    assert_eq!(load(dir.path()).unwrap().checksum, expected.checksum);
    // A dangling link is reported.
    std::os::unix::fs::symlink("nothing.png", dir.path().join("train/cat/e.png")).unwrap();
    refused(dir.path(), &["e.png"]);
}

#[test]
fn val_stands_in_for_test() {
    let dir = tempdir().unwrap();
    write_set(dir.path());
    fs::rename(dir.path().join("test"), dir.path().join("val")).unwrap();
    assert_eq!(image_set(&load(dir.path()).unwrap()).test.labels, [0, 1]);
}

#[test]
fn a_small_archive_does_not_fill_the_memory() {
    // 1100 times 8 MB of black, in 20 kB each.
    let bytes = png_of((4000, 2000), 1, &vec![0; 8_000_000]);
    let names = (0..1100).map(|at| format!("train/cat/{at}.png")).chain(["test/cat/0.png".into()]);
    let files: Vec<_> = names.map(|name| (name, bytes.clone())).collect();
    let dir = tempdir().unwrap();
    write(dir.path(), "a.tar", &tar(&files));
    refused(dir.path(), &["a.tar", "1100 images of 4000×2000×1 take more than 8 GiB"]);
}

#[test]
fn archives_load_as_the_folders_they_hold() {
    let dir = tempdir().unwrap();
    write_set(&dir.path().join("folders"));
    let expected = load(&dir.path().join("folders")).unwrap();

    let mut listed = files();
    listed.push(("README.md".to_owned(), b"read me".to_vec()));
    let below: Vec<_> =
        listed.iter().map(|(path, b)| (format!("pets/{path}"), b.clone())).collect();
    let archives =
        [("a.tar", tar(&listed)), ("b.tar.gz", gzip(&tar(&listed))), ("c.tgz", gzip(&tar(&below)))];
    for (name, bytes) in archives {
        let folder = dir.path().join(name.replace('.', "-"));
        write(&folder, name, &bytes);
        let data = load(&folder).unwrap();
        assert_eq!(
            (&image_set(&data).train, &image_set(&data).test),
            (&image_set(&expected).train, &image_set(&expected).test),
            "{name}"
        );
        assert_eq!(data.name, name.replace('.', "-"));
        let direct = load(&folder.join(name)).unwrap();
        assert_eq!(direct.name, &name[..1], "named by the archive when that is what was given");
        assert_eq!(direct.checksum, data.checksum);
    }
}

#[test]
fn grey_and_jpeg_images_load() {
    let dir = tempdir().unwrap();
    let flat = |value| jpeg_of((8, 8), 1, &[value; 64]);
    for (path, value) in
        [("train/a/1.jpg", 40), ("train/b/1.jpeg", 200), ("test/a/1.jpg", 90), ("test/b/1.JPG", 0)]
    {
        write(dir.path(), path, &flat(value));
    }
    let data = load(dir.path()).unwrap();
    assert_eq!(image_set(&data).train.shape(), [1, 8, 8]);
    let near = |pixel: &u8, value: u8| pixel.abs_diff(value) <= 2;
    assert!(image_set(&data).train.image(0).iter().all(|pixel| near(pixel, 40)));
    assert!(image_set(&data).train.image(1).iter().all(|pixel| near(pixel, 200)));
    assert!(image_set(&data).test.image(0).iter().all(|pixel| near(pixel, 90)));
}

/// After `change`, loading the usual files from folders and from an archive fails with `words`.
fn refused_after(change: impl Fn(&mut Vec<(String, Vec<u8>)>), words: &[&str]) -> DataError {
    let mut files = files();
    change(&mut files);
    let dir = tempdir().unwrap();
    write(dir.path(), "set.tar.gz", &gzip(&tar(&files)));
    refused(dir.path(), words);

    let dir = tempdir().unwrap();
    for (path, bytes) in &files {
        if path.ends_with('/') {
            fs::create_dir_all(dir.path().join(path)).unwrap();
        } else {
            write(dir.path(), path, bytes);
        }
    }
    refused(dir.path(), words)
}

#[test]
fn faulty_folders_are_refused() {
    let wide = || png_of((3, 1), 3, &[0; 9]);
    let error = refused_after(|files| files[0].1 = wide(), &["train/cat/b.png", "3×1×3", "2×1×3"]);
    assert!(matches!(error, DataError::ImageSize { .. }));
    let error = refused_after(|files| files[4].1 = wide(), &["test/ant/1.png", "3×1×3"]);
    assert!(matches!(error, DataError::ImageSize { .. }));
    // It cannot be decoded, but its header has another size.
    let huge = || png_with((1 << 15, 1 << 15), ColorType::Rgb, BitDepth::Eight, &[]);
    refused_after(|files| files[1].1 = huge(), &["train/cat/a.png", "32768×32768×3", "2×1×3"]);
    let grey = || png_of((2, 1), 1, &[0; 2]);
    refused_after(|files| files[1].1 = grey(), &["train/cat/a.png", "2×1×1", "2×1×3"]);

    let error =
        refused_after(|files| files[3].1 = b"text".to_vec(), &["test/cat/1.png", "decoded"]);
    assert!(matches!(error, DataError::Damaged { .. }));
    let error = refused_after(|files| files[2].1.truncate(30), &["train/ant/z.PNG", "decoded"]);
    assert!(matches!(error, DataError::Damaged { .. }));

    let error = refused_after(|files| files.truncate(3), &["test/<class>/*.jpg"]);
    assert!(matches!(error, DataError::MissingFile { .. }));
    let error =
        refused_after(|files| files.truncate(4), &["class 'ant'", "in train", "not in test"]);
    assert!(matches!(error, DataError::ClassMismatch { .. }));
    let extra = |files: &mut Vec<_>| files.push(("test/dog/1.png".to_owned(), png(0)));
    refused_after(extra, &["class 'dog'", "in test", "not in train"]);
    let empty = |files: &mut Vec<_>| files.push(("train/dog/".to_owned(), Vec::new()));
    let error = refused_after(empty, &["train/dog", "no .jpg"]);
    assert!(matches!(error, DataError::EmptyClass { .. }));
}

#[test]
fn a_split_without_classes_has_no_images() {
    let dir = tempdir().unwrap();
    fs::create_dir_all(dir.path().join("train")).unwrap();
    write(dir.path(), "test/cat/1.png", &png(0));
    let error = refused(dir.path(), &["train", "has no images"]);
    assert!(matches!(error, DataError::NoImages { .. }));
}

#[test]
fn more_classes_than_labels_are_refused() {
    let origin = std::path::Path::new("photos");
    assert!(check_count(origin, 1 << 16).is_ok());
    let error = check_count(origin, (1 << 16) + 1).unwrap_err();
    assert!(
        error.to_string().contains("'photos' has 65537 class folders, but at most 65536"),
        "{error}"
    );
}

#[test]
fn an_archive_of_something_else_is_not_recognised() {
    let dir = tempdir().unwrap();
    write(dir.path(), "notes.tar", &tar(&[("input.md".to_owned(), b"to be".to_vec())]));
    let error = refused(dir.path(), &["notes.tar", "train/<class>"]);
    assert!(matches!(error, DataError::Unrecognised { .. }));
}

#[test]
fn damaged_archives_are_refused() {
    let dir = tempdir().unwrap();
    let name = "set.tar.gz";
    let whole = gzip(&tar(&files()));
    for len in [0, 5, 20, whole.len() / 2, whole.len() - 9, whole.len() - 1] {
        write(dir.path(), name, &whole[..len]);
        let error = refused(dir.path(), &[name, "fetch"]);
        let expected = matches!(error, DataError::Damaged { .. });
        assert!(expected, "{len} bytes of {}: {error:?}", whole.len());
    }
    let mut flipped = whole.clone();
    flipped[whole.len() - 8] ^= 1;
    write(dir.path(), name, &flipped);
    refused(dir.path(), &[name, "cannot be unpacked"]);

    fs::remove_file(dir.path().join(name)).unwrap();
    let bare = tar(&files());
    // Without the last image's block and the two blocks of zeros after it.
    for len in (0..=bare.len() - 3 * 512).step_by(256) {
        write(dir.path(), "set.tar", &bare[..len]);
        let error = refused(dir.path(), &["set.tar", "fetch"]);
        assert!(matches!(error, DataError::Damaged { .. }), "{len} bytes: {error:?}");
    }
}
