//! The file `latest`: which weights the newest stream of a folder gives.

use std::io::{Read, Write};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::files::{FileError, NewFile, open_if_there};
use crate::{RunId, State, StateHash};

/// The name of the file.
const NAME: &str = "latest";
/// The format of the file.
const FORMAT: u32 = 1;
/// The longest content.
const LONGEST: u64 = 4096;

/// The content of the file, as JSON.
#[derive(Debug, Serialize, Deserialize)]
struct Pointer {
    format: u32,
    run: String,
    version: u64,
    hash: String,
}

/// The state of the newest published weights; `None` if there are none.
pub(super) fn read(folder: &Path) -> Result<Option<State>, FileError> {
    let path = folder.join(NAME);
    let Some(file) = open_if_there(&path)? else { return Ok(None) };
    let mut text = Vec::new();
    file.take(LONGEST).read_to_end(&mut text).map_err(FileError::at(&path))?;
    let state = serde_json::from_slice::<Pointer>(&text).ok().and_then(|pointer| {
        let hash = StateHash::from_bytes(from_hex(&pointer.hash)?);
        let run = Some(RunId(from_hex(&pointer.run)?));
        (pointer.format == FORMAT).then_some(State { run, version: pointer.version, hash })
    });
    match state {
        Some(state) => Ok(Some(state)),
        None => Err(FileError::content(
            &path,
            "it does not name a version as this version of gradwire writes it; update gradwire, or \
             remove the file and publish a snapshot",
        )),
    }
}

/// Replaces the file, all at once.
pub(super) fn write(folder: &Path, state: &State) -> Result<(), FileError> {
    let path = folder.join(NAME);
    let run = state.run.unwrap_or(RunId([0; 16]));
    let pointer = Pointer {
        format: FORMAT,
        run: to_hex(run.0),
        version: state.version,
        hash: to_hex(state.hash.to_bytes()),
    };
    let text = serde_json::to_string(&pointer).expect("texts and numbers become JSON");
    let mut file = NewFile::create(&path)?;
    file.write_all(text.as_bytes()).map_err(FileError::at(&path))?;
    file.finish()
}

fn to_hex(bytes: [u8; 16]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<[u8; 16]> {
    let digits: Vec<u8> = text
        .chars()
        .map(|digit| digit.to_digit(16).map(|digit| digit as u8))
        .collect::<Option<_>>()?;
    let digits: [u8; 32] = digits.try_into().ok()?;
    let (pairs, _) = digits.as_chunks::<2>();
    Some(std::array::from_fn(|at| pairs[at][0] << 4 | pairs[at][1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pointer_leads_back_and_others_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(read(folder.path()).unwrap(), None);
        let run = RunId(std::array::from_fn(|at| at as u8 * 17));
        let state = State { run: Some(run), version: 1 << 60, hash: StateHash([1, u64::MAX]) };
        write(folder.path(), &state).unwrap();
        assert_eq!(read(folder.path()).unwrap(), Some(state));
        let text = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert!(text.contains("00112233445566778899aabbccddeeff"), "{text}");
        for bad in [
            "",
            "{}",
            &text.replace("\"format\":1", "\"format\":2"),
            &text.replace("00112233", "0011223"),
            &text.replace("00112233", "0011223x"),
            &text[..text.len() - 1],
        ] {
            std::fs::write(folder.path().join(NAME), bad).unwrap();
            assert!(
                read(folder.path()).unwrap_err().to_string().contains("does not name"),
                "{bad}"
            );
        }
    }
}
