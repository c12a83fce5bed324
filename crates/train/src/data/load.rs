//! Recognising what the files of a folder are, and loading them.

use std::fs;
use std::path::{Path, PathBuf};

use super::files::{Checksums, names};
use super::{DataError, Dataset, cifar, folder, idx};

/// Loads the data set whose files lie in `dir`, whatever their kind:
///
/// - MNIST idx: `{train,t10k}-{images-idx3,labels-idx1}-ubyte`, each gzipped (`.gz`) or not;
/// - CIFAR-10 binary: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`;
/// - image folders: `train/<class>/*.{jpg,jpeg,png}` and `test/<class>/…` (or `val/<class>/…`), all
///   images of one size;
/// - one `.tar`, `.tar.gz` or `.tgz` of such folders, read in memory.
///
/// `dir` may also be the archive itself, or a folder with one subfolder that holds a data set.
/// The data set takes the folder's (or archive's) name. The checksum is that of the list of its
/// files: `sha256sum FILES | sha256sum`, with paths relative to the folder and sorted.
///
/// Memory: all files and all pixels are held at once. Images are decoded on all cores.
///
/// # Errors
/// [`DataError`], naming the file and the remedy: nothing or several data sets found, a file
/// missing, unreadable or damaged, labels out of range, images of unequal size, empty classes.
pub fn load(dir: &Path) -> Result<Dataset, DataError> {
    let (place, layout) = recognise(dir)?;
    let mut sums = Checksums::default();
    let (train, test) = match &layout {
        Layout::Idx => idx::load(&place, &mut sums)?,
        Layout::Cifar => cifar::load(&place, &mut sums)?,
        Layout::Folders => folder::load_folders(&place, &mut sums)?,
        Layout::Archive(name) => folder::load_archive(&place, name, &mut sums)?,
    };
    let name = match &layout {
        Layout::Archive(name) if dir.is_file() => stem(name).to_owned(),
        _ => folder_name(&place),
    };
    Ok(Dataset::new(name, train, test, sums.total()))
}

#[derive(Debug)]
enum Layout {
    Idx,
    Cifar,
    Folders,
    Archive(String),
}

impl Layout {
    fn describe(&self) -> String {
        match self {
            Layout::Idx => "MNIST idx files".to_owned(),
            Layout::Cifar => "CIFAR-10 binary batches".to_owned(),
            Layout::Folders => "image folders".to_owned(),
            Layout::Archive(name) => format!("archive {name}"),
        }
    }
}

/// Where the one data set at `path` lies, and what it is.
fn recognise(path: &Path) -> Result<(PathBuf, Layout), DataError> {
    if path.is_file() {
        return archive_itself(path);
    }
    let mut here = layouts(path)?;
    if here.len() > 1 {
        let found = here.iter().map(Layout::describe).collect();
        return Err(DataError::Ambiguous { path: path.to_owned(), found });
    }
    if let Some(layout) = here.pop() {
        return Ok((path.to_owned(), layout));
    }
    let mut below = Vec::new();
    for name in names(path)?.into_iter().filter(|name| path.join(name).is_dir()) {
        // A subfolder that may not be read is none of ours.
        for layout in layouts(&path.join(&name)).unwrap_or_default() {
            below.push((name.clone(), layout));
        }
    }
    if below.len() > 1 {
        let describe = |(name, layout): &(String, Layout)| format!("{name}: {}", layout.describe());
        let found = below.iter().map(describe).collect();
        return Err(DataError::Ambiguous { path: path.to_owned(), found });
    }
    let (name, layout) =
        below.pop().ok_or_else(|| DataError::Unrecognised { path: path.to_owned() })?;
    Ok((path.join(name), layout))
}

fn archive_itself(path: &Path) -> Result<(PathBuf, Layout), DataError> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) if is_archive(name) => {
            Ok((dir.to_owned(), Layout::Archive(name.to_owned())))
        }
        _ => Err(DataError::Unrecognised { path: path.to_owned() }),
    }
}

/// What the names of the files directly in `dir` amount to.
fn layouts(dir: &Path) -> Result<Vec<Layout>, DataError> {
    let names = names(dir)?;
    let holds = |known: &[&str]| {
        names.iter().any(|name| known.contains(&name.strip_suffix(".gz").unwrap_or(name)))
    };
    let mut found = Vec::new();
    if holds(&idx::FILES) {
        found.push(Layout::Idx);
    }
    if holds(&cifar::FILES) {
        found.push(Layout::Cifar);
    }
    if dir.join("train").is_dir() {
        found.push(Layout::Folders);
    }
    let archives = names.into_iter().filter(|name| is_archive(name) && dir.join(name).is_file());
    found.extend(archives.map(Layout::Archive));
    Ok(found)
}

const ARCHIVES: [&str; 3] = [".tar.gz", ".tgz", ".tar"];

fn is_archive(name: &str) -> bool {
    !name.starts_with('.') && stem(name) != name
}

/// `name` without the ending of an archive.
fn stem(name: &str) -> &str {
    ARCHIVES.iter().find_map(|ending| name.strip_suffix(ending)).unwrap_or(name)
}

fn folder_name(dir: &Path) -> String {
    let absolute = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "data".to_owned())
}
