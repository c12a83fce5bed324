//! Files by their path, and standard input and output, for which the path is `-`.

use std::io::{IsTerminal, Read, Write, stdin, stdout};
use std::path::Path;

use gradwire::{files, memory};
use gradwire_testbed::files::write_atomic;

use crate::failure::Failure;
use crate::output;

/// Whether a path stands for standard input or output.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// A path as messages show it: quoted, or standard input.
pub(crate) fn shown(path: &Path) -> String {
    match is_standard(path) {
        true => "standard input".to_owned(),
        false => format!("'{}'", path.display()),
    }
}

/// The whole of a file, or of standard input.
pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    if !is_standard(path) {
        return files::read(path).map_err(|error| {
            let remedy = files::remedy(&error);
            Failure::Input(format!("cannot read '{}': {error}{remedy}", path.display()))
        });
    }
    // As a file, it must fit into the memory that is free.
    let most = memory::available().unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    let read = stdin().lock().take(most).read_to_end(&mut bytes);
    read.map_err(|error| {
        let remedy = files::remedy(&error);
        Failure::Run(format!("cannot read standard input: {error}{remedy}"))
    })?;
    match bytes.len() as u64 == most {
        true => Err(Failure::Run("standard input has more bytes than memory is free".to_owned())),
        false => Ok(bytes),
    }
}

/// Writes a file, which appears whole or not at all, or to standard output.
pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    if !is_standard(path) {
        return Ok(write_atomic(path, bytes)?);
    }
    refuse_terminal(path)?;
    let mut out = stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(output::failed)
}

/// Refuses to write bytes that are no text to a terminal.
pub(crate) fn refuse_terminal(path: &Path) -> Result<(), Failure> {
    match is_standard(path) && stdout().is_terminal() {
        false => Ok(()),
        true => Err(Failure::Input(
            "the output is no text for a terminal; name a file, or pipe it to another program"
                .to_owned(),
        )),
    }
}

/// Says what was written to a path: on standard error if the bytes are on standard output.
pub(crate) fn report(path: &Path, text: &str) -> Result<(), Failure> {
    match is_standard(path) {
        true => {
            output::note(text);
            Ok(())
        }
        false => output::line(format!("{}: {text}", path.display())),
    }
}
