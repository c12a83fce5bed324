//! Image folders: `train/<class>/*.jpg` and `test/<class>/*.jpg` (or `.jpeg`, `.png`), on disk or
//! inside one archive that is read in memory.
//!
//! Classes are numbered in the order of their names. Images alternate between the classes, each
//! class sorted by path, so every prefix of the data has about the same number of images of each
//! class.

use std::collections::BTreeMap;
use std::fs;
use std::num::NonZero;
use std::path::Path;
use std::thread;

use super::archive::MAX_ALL;
use super::files::{Checksums, names};
use super::{DataError, Images, archive, picture};

/// The splits' folders: training, test, and the alternative to `test`.
const SPLITS: [&str; 3] = ["train", "test", "val"];

/// Encoded images: by class, then by path.
type Classes = BTreeMap<String, BTreeMap<String, Vec<u8>>>;

/// Classes by the name of the split's folder.
type Splits = BTreeMap<String, Classes>;

/// Loads the folders `train` and `test` (or `val`) of `dir`.
pub(super) fn load_folders(
    dir: &Path,
    sums: &mut Checksums,
) -> Result<(Images, Images), DataError> {
    let mut splits = Splits::new();
    for split in SPLITS.into_iter().filter(|split| dir.join(split).is_dir()) {
        // `test` comes before `val`, so if there is a test set, the validation set is not read.
        if split == "val" && splits.contains_key("test") {
            continue;
        }
        let classes = splits.entry(split.to_owned()).or_default();
        for class in names(&dir.join(split))? {
            let folder = dir.join(split).join(&class);
            if !folder.is_dir() || class.starts_with('.') {
                continue;
            }
            let files = classes.entry(class.clone()).or_default();
            let is_image = |file: &String| is_image(file) && may_be_file(&folder.join(file));
            for file in names(&folder)?.into_iter().filter(is_image) {
                let path = format!("{split}/{class}/{file}");
                let bytes = sums.read(dir, &path)?;
                files.insert(path, bytes);
            }
        }
    }
    // Only archives have a limit, because a small one can unpack to any size.
    assemble(dir, splits, u64::MAX)
}

/// Loads such folders from the archive at `path`, from its top level or inside a folder; `None` if
/// it has none.
pub(super) fn load_archive(
    path: &Path,
    bytes: &[u8],
) -> Result<Option<(Images, Images)>, DataError> {
    let splits = unpack(path, bytes)?;
    if splits.is_empty() { Ok(None) } else { assemble(path, splits, MAX_ALL).map(Some) }
}

fn is_image(file: &str) -> bool {
    let extension = file.rsplit_once('.').map_or("", |(_, extension)| extension);
    !file.starts_with('.')
        && ["jpg", "jpeg", "png"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether a path is a file, or is inaccessible, so reading it gives the reason. Reading a pipe or
/// a device might never end.
fn may_be_file(path: &Path) -> bool {
    fs::metadata(path).map_or(true, |found| found.is_file())
}

fn unpack(path: &Path, bytes: &[u8]) -> Result<Splits, DataError> {
    let mut splits = Splits::new();
    archive::visit(path, bytes, |entry| {
        match *entry.parts {
            [.., split, class] if entry.folder && SPLITS.contains(&split) => {
                splits.entry(split.to_owned()).or_default().entry(class.to_owned()).or_default();
            }
            [.., split, class, file]
                if !entry.folder && SPLITS.contains(&split) && is_image(file) =>
            {
                let classes = splits.entry(split.to_owned()).or_default();
                let files = classes.entry(class.to_owned()).or_default();
                files.insert(entry.parts.join("/"), entry.bytes()?);
            }
            _ => {}
        }
        Ok(())
    })?;
    Ok(splits)
}

/// Decodes both splits, each to at most `most` bytes. Their classes must be the same; `origin` is
/// the folder or archive.
fn assemble(origin: &Path, mut splits: Splits, most: u64) -> Result<(Images, Images), DataError> {
    let lacks =
        |file: &str| DataError::MissingFile { path: origin.to_owned(), file: file.to_owned() };
    let train = splits.remove_entry("train").ok_or_else(|| lacks("train/<class>/*.jpg"))?;
    let test = splits
        .remove_entry("test")
        .or_else(|| splits.remove_entry("val"))
        .ok_or_else(|| lacks("test/<class>/*.jpg (or val/<class>/*.jpg)"))?;
    let [train, test] = [train, test].map(|(name, classes)| NamedSplit { name, classes });
    check_classes(origin, &train, &test)?;
    let train = decode(origin, train.classes, None, most)?;
    let test = decode(origin, test.classes, Some(Shape::of(&train)), most)?;
    Ok((train, test))
}

/// A split, and the name of its folder.
struct NamedSplit {
    name: String,
    classes: Classes,
}

fn check_classes(origin: &Path, train: &NamedSplit, test: &NamedSplit) -> Result<(), DataError> {
    for split in [train, test] {
        let path = origin.join(&split.name);
        if split.classes.is_empty() {
            return Err(DataError::NoImages { path });
        }
        if let Some((class, _)) = split.classes.iter().find(|(_, files)| files.is_empty()) {
            return Err(DataError::EmptyClass { path: path.join(class) });
        }
    }
    for [here, there] in [[train, test], [test, train]] {
        if let Some(class) = here.classes.keys().find(|class| !there.classes.contains_key(*class)) {
            return Err(DataError::ClassMismatch {
                path: origin.to_owned(),
                class: class.clone(),
                present: here.name.clone(),
                absent: there.name.clone(),
            });
        }
    }
    check_count(origin, train.classes.len())
}

/// Labels have sixteen bits.
pub(super) fn check_count(origin: &Path, found: usize) -> Result<(), DataError> {
    if found <= 1 << 16 {
        return Ok(());
    }
    Err(DataError::TooManyClasses { path: origin.to_owned(), found })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Shape {
    width: usize,
    height: usize,
    channels: usize,
}

impl Shape {
    fn of(images: &Images) -> Self {
        Self { width: images.width, height: images.height, channels: images.channels }
    }

    fn bytes(self) -> usize {
        self.width * self.height * self.channels
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}×{}×{}", self.width, self.height, self.channels)
    }
}

struct File {
    label: u16,
    path: String,
    bytes: Vec<u8>,
}

fn decode(
    origin: &Path,
    classes: Classes,
    shape: Option<Shape>,
    most: u64,
) -> Result<Images, DataError> {
    let count = classes.len();
    let files = in_turn(classes);
    let shape = match shape {
        Some(shape) => shape,
        None => shape_of(origin, &files[0])?,
    };
    if shape.bytes().saturating_mul(files.len()) as u64 > most {
        let reason =
            format!("its {} images of {shape} take more than {} GiB", files.len(), most >> 30);
        return Err(DataError::damaged(origin, reason));
    }
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = files.len().div_ceil(threads);
    let parts = thread::scope(|scope| {
        let workers: Vec<_> = files
            .chunks(share)
            .map(|files| scope.spawn(move || decode_files(origin, files, shape)))
            .collect();
        let join = |worker: thread::ScopedJoinHandle<'_, _>| {
            worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        workers.into_iter().map(join).collect::<Result<Vec<Vec<u8>>, DataError>>()
    })?;
    Ok(Images {
        channels: shape.channels,
        height: shape.height,
        width: shape.width,
        classes: count,
        pixels: parts.concat(),
        labels: files.iter().map(|file| file.label).collect(),
    })
}

/// The first image of each class, then the second of each, and so on.
fn in_turn(classes: Classes) -> Vec<File> {
    let mut keyed = Vec::new();
    for (label, files) in classes.into_values().enumerate() {
        let files = files.into_iter().enumerate();
        keyed.extend(
            files.map(|(turn, (path, bytes))| (turn, File { label: label as u16, path, bytes })),
        );
    }
    keyed.sort_by_key(|(turn, file)| (*turn, file.label));
    keyed.into_iter().map(|(_, file)| file).collect()
}

fn decode_files(origin: &Path, files: &[File], expected: Shape) -> Result<Vec<u8>, DataError> {
    let mut pixels = Vec::new();
    for file in files {
        // Checked before the picture is decoded, because a wrong one may be large.
        let found = shape_of(origin, file)?;
        if found != expected {
            return Err(DataError::ImageSize {
                path: origin.join(&file.path),
                found: found.to_string(),
                expected: expected.to_string(),
            });
        }
        pixels.extend_from_slice(&decode_file(origin, file)?);
    }
    Ok(pixels)
}

/// The shape of an image, by the header of its file.
fn shape_of(origin: &Path, file: &File) -> Result<Shape, DataError> {
    let shape = picture::shape(&file.bytes).map_err(|error| undecodable(origin, file, &error))?;
    let [width, height, channels] = shape;
    Ok(Shape { width, height, channels })
}

/// Decodes one file into channels-first bytes: one channel if it is grey, else red, green, blue.
fn decode_file(origin: &Path, file: &File) -> Result<Vec<u8>, DataError> {
    let picture = picture::decode(&file.bytes);
    Ok(picture.map_err(|error| undecodable(origin, file, &error))?.planes())
}

fn undecodable(origin: &Path, file: &File, error: &str) -> DataError {
    DataError::damaged(&origin.join(&file.path), format!("it cannot be decoded ({error})"))
}
