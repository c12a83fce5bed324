//! Writing a checkpoint, which appears whole or not at all.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::checkpoint::Checkpoint;
use super::layout::Layout;
use crate::files::disk::{Disk, System, folder_of};
use crate::files::{FileError, NewFile, temporary_name};

/// A checkpoint under a temporary name. Its weights are written in any order; they are zeros
/// before. [`finish`](Self::finish) gives it its name; dropped before, it is removed.
#[derive(Debug)]
pub struct NewCheckpoint {
    weights: Checkpoint,
    unnamed: Unnamed,
}

/// What gets a name in the end.
#[derive(Debug)]
enum Unnamed {
    File(NewFile),
    Folder(NewFolder),
}

impl NewCheckpoint {
    /// Begins a checkpoint with these files: at `path` the only one, or a new folder with them.
    ///
    /// # Errors
    /// Errors of the file system; a folder that exists and is not empty.
    pub fn create(path: &Path, layout: &Layout) -> Result<Self, FileError> {
        let (unnamed, files) = if layout.in_folder {
            let folder = NewFolder::create(path)?;
            let files = folder.fill(layout)?;
            (Unnamed::Folder(folder), files)
        } else {
            let file = NewFile::create(path)?;
            let clone = file.file().try_clone().map_err(FileError::at(path))?;
            (Unnamed::File(file), vec![clone])
        };
        for (shard, file) in layout.shards.iter().zip(&files) {
            let prepared = file
                .set_len(shard.header.file_len())
                .and_then(|()| System.write_at(file, shard.header.bytes(), 0));
            prepared.map_err(FileError::at(path))?;
        }
        let folder = match &unnamed {
            Unnamed::File(file) => folder_of(file.path()).to_owned(),
            Unnamed::Folder(folder) => folder.temporary.clone(),
        };
        let weights = Checkpoint::of(folder, layout.clone(), files);
        let weights = weights.map_err(|error| FileError::content(path, error.to_string()))?;
        Ok(Self { weights, unnamed })
    }

    /// The weights written so far.
    pub fn weights(&self) -> &Checkpoint {
        &self.weights
    }

    /// Writes bytes of a tensor from byte `from`.
    ///
    /// # Errors
    /// Errors of the file system.
    ///
    /// # Panics
    /// If the tensor does not have these bytes.
    pub fn write(&self, tensor: usize, from: u64, bytes: &[u8]) -> Result<(), FileError> {
        self.weights.write(tensor, from, bytes)
    }

    /// Syncs the files and gives them their names.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn finish(self) -> Result<(), FileError> {
        let Self { weights, unnamed } = self;
        match unnamed {
            Unnamed::File(file) => file.finish(),
            Unnamed::Folder(folder) => folder.finish(&weights.files),
        }
    }
}

/// A folder under a temporary name.
#[derive(Debug)]
struct NewFolder {
    path: PathBuf,
    temporary: PathBuf,
    finished: bool,
}

impl NewFolder {
    fn create(path: &Path) -> Result<Self, FileError> {
        match fs::read_dir(path).map(|mut entries| entries.next().is_some()) {
            Ok(false) => {}
            Ok(true) => {
                let reason = "the folder exists and is not empty; name a new folder";
                return Err(FileError::content(path, reason));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => return Err(FileError::at(path)(error)),
        }
        // A path such as `folder/` or `.` has no other name to begin with.
        let path = std::path::absolute(path).map_err(FileError::at(path))?;
        let path: PathBuf = path.components().collect();
        let temporary = temporary_name(&path);
        fs::create_dir(&temporary).map_err(FileError::at(&temporary))?;
        Ok(Self { path, temporary, finished: false })
    }

    /// Makes the files of a layout, and writes the index.
    fn fill(&self, layout: &Layout) -> Result<Vec<File>, FileError> {
        if let Some(index) = &layout.index {
            let path = self.temporary.join(&index.name);
            let written = File::create(&path).and_then(|file| {
                System.write_at(&file, &index.bytes, 0)?;
                System.sync(&file)
            });
            written.map_err(FileError::at(&path))?;
        }
        let create = |name: &String| {
            let path = self.temporary.join(name);
            let mut options = File::options();
            options.read(true).write(true).create_new(true);
            options.open(&path).map_err(FileError::at(&path))
        };
        layout.shards.iter().map(|shard| create(&shard.name)).collect()
    }

    fn finish(mut self, files: &[File]) -> Result<(), FileError> {
        for file in files {
            System.sync(file).map_err(FileError::at(&self.path))?;
        }
        System.sync_folder(&self.temporary).map_err(FileError::at(&self.path))?;
        System.rename(&self.temporary, &self.path).map_err(FileError::at(&self.path))?;
        self.finished = true;
        let folder = folder_of(&self.path);
        System.sync_folder(folder).map_err(FileError::at(folder))
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.finished {
            // Best effort: it only takes space.
            let _ = fs::remove_dir_all(&self.temporary);
        }
    }
}
