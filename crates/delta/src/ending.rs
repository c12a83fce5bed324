//! The end of a file, before the file is read.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};

use crate::Error;
use crate::frame::{MAGIC, check_ending};

/// Refuses a file that is not complete, such as one that is still being written, by its first and
/// last bytes. It is then at its start.
///
/// # Errors
/// Errors of the file system; a file that is truncated, too long or no stream.
pub(crate) fn check_file(file: &mut File) -> Result<(), Error> {
    let len = file.metadata()?.len();
    let mut ending = [0; 12];
    if len >= ending.len() as u64 {
        let mut magic = [0; 8];
        file.read_exact(&mut magic)?;
        if magic != MAGIC {
            return Err(Error::NotADelta);
        }
        file.seek(SeekFrom::End(-(ending.len() as i64)))?;
        file.read_exact(&mut ending)?;
        check_ending(ending, len)?;
    }
    file.rewind()?;
    Ok(())
}
