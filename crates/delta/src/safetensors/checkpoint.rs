//! Reading and changing the weights of a file or a folder of files.

use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::header::{Entry, FileHeader, PREFIX};
use super::layout::{INDEX, Index, Layout, Shard, WEIGHTS};
use crate::files::disk::{Disk, System, folder_of, read_at};
use crate::files::{FileError, open_regular};
use crate::redo::{self, Lock};
use crate::{Buffer, Error, Source, Tensor};

/// The longest index.
const LONGEST_INDEX: u64 = 100_000_000;

/// A checkpoint on disk: a `.safetensors` file, or a folder with several and an index. Its weights
/// stay on disk; [`read`](Self::read) brings some of them into memory.
#[derive(Debug)]
pub struct Checkpoint {
    /// The folder with the files.
    pub(crate) folder: PathBuf,
    pub(crate) layout: Layout,
    pub(crate) files: Vec<File>,
    /// The tensors by name.
    tensors: Vec<Tensor>,
    /// File and entry of each tensor.
    places: Vec<(usize, usize)>,
}

impl Checkpoint {
    /// Opens a `.safetensors` file, or a folder: with one file whose name ends in
    /// `.safetensors.index.json` and the files that it names, or with one `.safetensors` file.
    /// First completes a patch in place that was interrupted.
    ///
    /// # Errors
    /// Errors of the file system, and everything that is wrong with the files: headers that are
    /// damaged, tensors outside their file, tensors in two files.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        redo::complete(&System, folder_at(path)?)?;
        Self::open_with(path, open_regular)
    }

    /// As [`open`](Self::open), but the weights can be written, too, and no other process patches
    /// them as long as the lock lives.
    ///
    /// # Errors
    /// As for [`open`](Self::open); another process that patches files of the folder.
    pub(crate) fn open_locked(path: &Path) -> Result<(Self, Lock), FileError> {
        let lock = Lock::take(folder_at(path)?)?;
        lock.complete(&System)?;
        let weights = Self::open_with(path, |path| {
            open_regular(path)?;
            File::options().read(true).write(true).open(path).map_err(FileError::at(path))
        })?;
        Ok((weights, lock))
    }

    fn open_with(
        path: &Path,
        open: impl Fn(&Path) -> Result<File, FileError>,
    ) -> Result<Self, FileError> {
        let folder = folder_at(path)?;
        let in_folder = folder == path;
        let (index, names) = match in_folder {
            true => contents(path)?,
            false => (None, vec![name_of(path)?]),
        };
        let (mut shards, mut files) = (Vec::new(), Vec::new());
        for name in names {
            let path = folder.join(&name);
            let file = open(&path)?;
            let header = read_header(&file, &path)?;
            shards.push(Shard { name, header });
            files.push(file);
        }
        let layout = Layout { in_folder, index, shards };
        layout.check().map_err(|reason| FileError::content(path, reason))?;
        let opened = Self::of(folder.to_owned(), layout, files);
        opened.map_err(|error| FileError::content(path, error.to_string()))
    }

    /// A checkpoint of open files.
    ///
    /// # Errors
    /// Tensors that are refused.
    pub(crate) fn of(folder: PathBuf, layout: Layout, files: Vec<File>) -> Result<Self, Error> {
        let mut places: Vec<_> = (layout.shards.iter().enumerate())
            .flat_map(|(at, shard)| (0..shard.header.entries().len()).map(move |i| (at, i)))
            .collect();
        places.sort_by(|a, b| name_at(&layout, *a).cmp(name_at(&layout, *b)));
        let tensor = |&(file, entry): &(usize, usize)| {
            let entry: &Entry = &layout.shards[file].header.entries()[entry];
            Tensor::new(&*entry.name, entry.element, &*entry.shape)
        };
        let tensors = places.iter().map(tensor).collect::<Result<_, _>>()?;
        Ok(Self { folder, layout, files, tensors, places })
    }

    /// The number of a tensor in the list of all tensors by name.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.places.binary_search_by(|place| name_at(&self.layout, *place).cmp(name)).ok()
    }

    /// Bytes of all weights.
    pub fn bytes(&self) -> u64 {
        self.tensors.iter().map(|tensor| tensor.byte_len() as u64).sum()
    }

    /// Names and headers of the files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Fills `out` from byte `from` of a tensor.
    ///
    /// # Errors
    /// Errors of the file system.
    ///
    /// # Panics
    /// If the tensor does not have these bytes.
    pub fn read_into(&self, tensor: usize, from: u64, out: &mut [u8]) -> Result<(), FileError> {
        let (file, offset) = self.place(tensor, from, out.len());
        read_at(&self.files[file], out, offset).map_err(FileError::at(&self.file_path(file)))
    }

    /// Writes bytes of a tensor.
    pub(crate) fn write(&self, tensor: usize, from: u64, bytes: &[u8]) -> Result<(), FileError> {
        let (file, offset) = self.place(tensor, from, bytes.len());
        let written = System.write_at(&self.files[file], bytes, offset);
        written.map_err(FileError::at(&self.file_path(file)))
    }

    /// The file with these bytes of a tensor, and where they are in it.
    pub(crate) fn place(&self, tensor: usize, from: u64, len: usize) -> (usize, u64) {
        let (file, entry) = self.places[tensor];
        let place = &self.layout.shards[file].header.entries()[entry].place;
        let inside = from.checked_add(len as u64).is_some_and(|end| end <= place.end - place.start);
        assert!(inside, "bytes {from}.. of a tensor, {len} of them, are outside it");
        (file, place.start + from)
    }

    fn file_path(&self, file: usize) -> PathBuf {
        self.folder.join(&self.layout.shards[file].name)
    }
}

impl Source for Checkpoint {
    fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        buffer.resize(bytes.len());
        self.read_into(tensor, bytes.start as u64, buffer)?;
        Ok(buffer)
    }
}

fn name_at(layout: &Layout, (file, entry): (usize, usize)) -> &str {
    &layout.shards[file].header.entries()[entry].name
}

/// The folder with the files of a checkpoint: `path` if it is a folder, else the one that holds it.
fn folder_at(path: &Path) -> Result<&Path, FileError> {
    let is_folder = fs::metadata(path).map_err(FileError::at(path))?.is_dir();
    Ok(if is_folder { path } else { folder_of(path) })
}

/// The name of a file, which a redo log mentions.
fn name_of(path: &Path) -> Result<String, FileError> {
    match path.file_name().and_then(|name| name.to_str()) {
        Some(name) => Ok(name.to_owned()),
        None => Err(FileError::content(path, "its name is not UTF-8; rename it")),
    }
}

/// The index of a folder and the names of its files with weights.
fn contents(folder: &Path) -> Result<(Option<Index>, Vec<String>), FileError> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(FileError::at(folder))? {
        let name = entry.map_err(FileError::at(folder))?.file_name();
        names.extend(name.to_str().map(str::to_owned));
    }
    let ending = |ending| names.iter().filter(|name| name.ends_with(ending)).collect::<Vec<_>>();
    match (ending(INDEX).as_slice(), ending(WEIGHTS).as_slice()) {
        ([name], _) => {
            let index = read_index(folder, name)?;
            let shards = index.shards();
            let shards = shards.map_err(|reason| FileError::content(&folder.join(name), reason))?;
            Ok((Some(index), shards))
        }
        ([], [name]) => Ok((None, vec![(*name).clone()])),
        ([], []) => Err(FileError::content(folder, "it has no .safetensors file; check the path")),
        ([], _) => Err(FileError::content(
            folder,
            "it has several .safetensors files but no index (*.safetensors.index.json); name one \
             file",
        )),
        _ => Err(FileError::content(
            folder,
            "it has several indexes (*.safetensors.index.json); move all but one elsewhere",
        )),
    }
}

fn read_index(folder: &Path, name: &str) -> Result<Index, FileError> {
    let path = folder.join(name);
    let file = open_regular(&path)?;
    let len = file.metadata().map_err(FileError::at(&path))?.len();
    if len > LONGEST_INDEX {
        let reason = format!(
            "it has {len} bytes, but an index has at most {LONGEST_INDEX}; replace it by the index \
             of the weights"
        );
        return Err(FileError::content(&path, reason));
    }
    let mut bytes = vec![0; len as usize];
    read_at(&file, &mut bytes, 0).map_err(FileError::at(&path))?;
    Ok(Index { name: name.to_owned(), bytes })
}

/// Reads the header of a file, and checks that the file is as long as the header says.
fn read_header(file: &File, path: &Path) -> Result<FileHeader, FileError> {
    let refused = |reason| FileError::content(path, reason);
    let len = file.metadata().map_err(FileError::at(path))?.len();
    let mut prefix = [0; PREFIX];
    if len < PREFIX as u64 {
        return Err(refused("it is empty or cut off; copy it again".to_owned()));
    }
    read_at(file, &mut prefix, 0).map_err(FileError::at(path))?;
    let end = FileHeader::len_of(prefix).map_err(refused)?;
    if end as u64 > len {
        return Err(refused(format!("its header is cut off after {len} bytes; copy it again")));
    }
    let mut bytes = vec![0; end];
    read_at(file, &mut bytes, 0).map_err(FileError::at(path))?;
    let header = FileHeader::parse(bytes).map_err(refused)?;
    if header.file_len() != len {
        return Err(refused(format!(
            "it has {len} bytes, but its header describes {}; copy it again",
            header.file_len()
        )));
    }
    Ok(header)
}
