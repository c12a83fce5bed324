//! Streams that are read more than once.

use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::ending::check_file;
use crate::files::open_regular;
use crate::frame::MAGIC;
use crate::{Error, Survey};

/// Bytes of a buffer for reading a stream.
const BLOCK: usize = 1 << 20;

/// A stream, and where it is from. It is read twice: first to check that it is complete and what it
/// holds, then to decode it.
#[derive(Debug, Clone)]
pub enum Input {
    /// A file.
    File(PathBuf),
    /// Bytes in memory, such as those of a pipe, with a name for errors.
    Bytes(PathBuf, Vec<u8>),
}

impl Input {
    /// The path of the file, or the name.
    pub fn path(&self) -> &Path {
        match self {
            Input::File(path) | Input::Bytes(path, _) => path,
        }
    }

    /// Reads a stream to its end, from a pipe for instance, and keeps its bytes in memory.
    ///
    /// # Errors
    /// A stream that cannot be read, is damaged or truncated: reading ends there.
    pub fn read(name: &str, input: impl Read) -> Result<Self, Error> {
        let mut bytes = Vec::new();
        let kept = Kept { input, bytes: &mut bytes };
        let read = Survey::of(kept);
        let input = Input::Bytes(name.into(), bytes);
        read.map_err(|error| input.error(error)).map(|_| input)
    }

    /// Whether the bytes begin as a stream does.
    pub fn is_stream(&self) -> bool {
        let mut magic = [0; MAGIC.len()];
        let read = match self {
            Input::Bytes(_, bytes) => bytes.as_slice().read_exact(&mut magic).is_ok(),
            Input::File(path) => {
                open_regular(path).is_ok_and(|mut file| file.read_exact(&mut magic).is_ok())
            }
        };
        read && magic == MAGIC
    }

    /// The bytes from the start.
    ///
    /// # Errors
    /// A file that cannot be read, or that is truncated.
    pub(crate) fn open(&self) -> Result<Box<dyn Read + '_>, Error> {
        match self {
            Input::Bytes(_, bytes) => Ok(Box::new(bytes.as_slice())),
            Input::File(path) => {
                let mut file = open_regular(path)?;
                check_file(&mut file).map_err(|error| self.error(error))?;
                Ok(Box::new(BufReader::with_capacity(BLOCK, file)))
            }
        }
    }

    /// Reads the stream without decoding it.
    ///
    /// # Errors
    /// A stream that cannot be read, is damaged or truncated.
    pub fn survey(&self) -> Result<Survey, Error> {
        Survey::of(self.open()?).map_err(|error| self.error(error))
    }

    /// An error with the path.
    pub(crate) fn error(&self, error: Error) -> Error {
        match error {
            Error::File(_) | Error::Input { .. } | Error::Stopped => error,
            error => Error::Input { path: self.path().to_owned(), source: Box::new(error) },
        }
    }
}

/// Keeps the bytes that are read.
struct Kept<'a, R> {
    input: R,
    bytes: &'a mut Vec<u8>,
}

impl<R: Read> Read for Kept<'_, R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(out)?;
        self.bytes.extend_from_slice(&out[..read]);
        Ok(read)
    }
}
