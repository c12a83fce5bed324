//! Recognises the format of the files in a folder, and loads them.

use std::fs;
use std::path::{Path, PathBuf};

use super::archive::{is_archive, stem};
use super::files::{Checksums, names};
use super::{Content, DataError, Dataset, ImageSet, cifar, folder, idx, masks, ratings, text};

/// Loads the data set whose files are in `dir`, in one of these formats:
///
/// - MNIST idx: `{train,t10k}-{images-idx3,labels-idx1}-ubyte`, each gzipped (`.gz`) or not;
/// - CIFAR-10 binary: `data_batch_1.bin` to `data_batch_5.bin` and `test_batch.bin`;
/// - image folders: `train/<class>/*.{jpg,jpeg,png}` and `test/<class>/…` (or `val/<class>/…`), all
///   images of one size;
/// - text: `ptb.train.txt` and `ptb.test.txt` of the Penn Treebank, by words; `train.txt` and
///   `test.txt`, or any other `.txt` files, whose last 2 % are for testing, by characters;
/// - one `.tar`, `.tar.gz`, `.tgz` or `.zip` of such folders or texts, read in memory, or of images
///   with masks, `<folder>/<name>.jpg` beside `<folder>/<name>.png`, scaled down to 96×96;
/// - ratings: MovieLens' `u.data`, `ratings.dat` or `ratings.csv`.
///
/// `dir` may also be the path of the archive, the text (either of two) or the ratings, or a folder
/// with one subfolder that contains a data set. Text files are ignored beside other data, because
/// most data sets have a readme. The data set takes the name of the folder or of the archive. The
/// checksum is the SHA-256 of a list of digests: `sha256sum FILES | sha256sum`, with sorted paths
/// relative to the folder.
///
/// Memory: all files and all pixels at once. Images are decoded on all cores.
///
/// # Errors
/// [`DataError`], naming the file and the remedy: nothing or several data sets found, a file
/// missing, unreadable or damaged, labels out of range, images of unequal size, empty classes.
pub fn load(dir: &Path) -> Result<Dataset, DataError> {
    let (place, layout) = recognise(dir)?;
    let mut sums = Checksums::default();
    let images = |(train, test)| Content::Images(ImageSet::new(train, test));
    let content = match &layout {
        Layout::Idx => images(idx::load(&place, &mut sums)?),
        Layout::Cifar => images(cifar::load(&place, &mut sums)?),
        Layout::Folders => images(folder::load_folders(&place, &mut sums)?),
        Layout::Archive(name) => archive(&place, name, &mut sums)?,
        Layout::Text(names) => Content::Text(text::load_files(&place, names, &mut sums)?),
        Layout::Ratings(name) => Content::Ratings(ratings::load_file(&place, name, &mut sums)?),
    };
    let name = match &layout {
        Layout::Archive(name) if dir.is_file() => stem(name).to_owned(),
        Layout::Text(_) if dir.is_file() => file_stem(dir),
        _ => folder_name(&place),
    };
    Ok(Dataset { name, checksum: sums.total(), content })
}

/// The folder with the files of the data set at `dir`, as [`load`] finds it: `dir`, its subfolder,
/// or the folder of the file.
///
/// # Errors
/// The errors of [`load`] if there is no data set, or more than one.
pub fn folder_with_files(dir: &Path) -> Result<PathBuf, DataError> {
    Ok(recognise(dir)?.0)
}

/// Loads the archive `dir/name`: images, images with masks, or otherwise text.
fn archive(dir: &Path, name: &str, sums: &mut Checksums) -> Result<Content, DataError> {
    let path = dir.join(name);
    let bytes = sums.read(dir, name)?;
    if let Some((train, test)) = folder::load_archive(&path, &bytes)? {
        return Ok(Content::Images(ImageSet::new(train, test)));
    }
    if let Some((train, test)) = masks::load_archive(&path, &bytes)? {
        return Ok(Content::Images(ImageSet::new(train, test)));
    }
    let text = text::load_archive(&path, &bytes)?.ok_or(DataError::Unrecognised { path })?;
    Ok(Content::Text(text))
}

#[derive(Debug)]
enum Layout {
    Idx,
    Cifar,
    Folders,
    Archive(String),
    Ratings(String),
    Text(Vec<String>),
}

impl Layout {
    fn describe(&self) -> String {
        match self {
            Layout::Idx => "MNIST idx files".to_owned(),
            Layout::Cifar => "CIFAR-10 binary batches".to_owned(),
            Layout::Folders => "image folders".to_owned(),
            Layout::Archive(name) => format!("archive {name}"),
            Layout::Ratings(name) => format!("ratings {name}"),
            Layout::Text(_) => "text files".to_owned(),
        }
    }
}

/// Recognises data sets with files directly in a folder.
type Recognise = fn(&Path) -> Result<Vec<Layout>, DataError>;

/// The folder and the layout of the only data set at `path`.
fn recognise(path: &Path) -> Result<(PathBuf, Layout), DataError> {
    if path.is_file() {
        return file_itself(path);
    }
    for kinds in [layouts as Recognise, texts] {
        if let Some(found) = search(path, kinds)? {
            return Ok(found);
        }
    }
    Err(DataError::Unrecognised { path: path.to_owned() })
}

/// The only data set in `path` or, if there is none, in a subfolder.
fn search(path: &Path, kinds: Recognise) -> Result<Option<(PathBuf, Layout)>, DataError> {
    let mut here = kinds(path)?;
    if here.len() > 1 {
        let found = here.iter().map(Layout::describe).collect();
        return Err(DataError::Ambiguous { path: path.to_owned(), found });
    }
    if let Some(layout) = here.pop() {
        return Ok(Some((path.to_owned(), layout)));
    }
    let mut below = Vec::new();
    for name in names(path)?.into_iter().filter(|name| path.join(name).is_dir()) {
        // An unreadable subfolder holds no data set.
        for layout in kinds(&path.join(&name)).unwrap_or_default() {
            below.push((name.clone(), layout));
        }
    }
    if below.len() > 1 {
        let describe = |(name, layout): &(String, Layout)| format!("{name}: {}", layout.describe());
        let found = below.iter().map(describe).collect();
        return Err(DataError::Ambiguous { path: path.to_owned(), found });
    }
    Ok(below.pop().map(|(name, layout)| (path.join(name), layout)))
}

fn file_itself(path: &Path) -> Result<(PathBuf, Layout), DataError> {
    match (path.parent(), path.file_name().and_then(|name| name.to_str())) {
        (Some(dir), Some(name)) if is_archive(name) => {
            Ok((dir.to_owned(), Layout::Archive(name.to_owned())))
        }
        (Some(dir), Some(name)) if ratings::is_ratings(name) => {
            Ok((dir.to_owned(), Layout::Ratings(name.to_owned())))
        }
        (Some(dir), Some(name)) if text::is_text(name) => {
            let other = text::other_of_pair(name).filter(|other| dir.join(other).is_file());
            let names = [Some(name), other].into_iter().flatten().map(str::to_owned);
            Ok((dir.to_owned(), Layout::Text(names.collect())))
        }
        _ => Err(DataError::Unrecognised { path: path.to_owned() }),
    }
}

/// The text files directly in `dir`, taken together.
fn texts(dir: &Path) -> Result<Vec<Layout>, DataError> {
    let is_text = |name: &String| text::is_text(name) && dir.join(name).is_file();
    let found: Vec<String> = names(dir)?.into_iter().filter(is_text).collect();
    Ok(if found.is_empty() { Vec::new() } else { vec![Layout::Text(found)] })
}

/// The data sets in `dir` by the names of its files, without text.
fn layouts(dir: &Path) -> Result<Vec<Layout>, DataError> {
    let names = names(dir)?;
    let plain = |name: &str| name.strip_suffix(".gz").unwrap_or(name).to_owned();
    let mut found = Vec::new();
    if names.iter().any(|name| idx::FILES.contains(&&*plain(name))) {
        found.push(Layout::Idx);
    }
    if names.iter().any(|name| cifar::FILES.contains(&&**name)) {
        found.push(Layout::Cifar);
    }
    if dir.join("train").is_dir() {
        found.push(Layout::Folders);
    }
    let is_file = |name: &String| dir.join(name).is_file();
    let rated = names.iter().filter(|name| ratings::is_ratings(name) && is_file(name));
    found.extend(rated.cloned().map(Layout::Ratings));
    let archives = names.into_iter().filter(|name| is_archive(name) && is_file(name));
    found.extend(archives.map(Layout::Archive));
    Ok(found)
}

fn file_stem(path: &Path) -> String {
    path.file_stem().map_or_else(|| "text".to_owned(), |stem| stem.to_string_lossy().into_owned())
}

fn folder_name(dir: &Path) -> String {
    let absolute = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let name = absolute.file_name().map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "data".to_owned())
}
