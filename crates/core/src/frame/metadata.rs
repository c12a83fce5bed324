//! Texts about a file.

use std::collections::BTreeMap;

use gradwire_bits::varint;

use super::error::{FrameError, STORED_VERSION};
use super::wire;

/// The byte after the version in a metadata frame.
pub(super) const KIND: u8 = 1;

/// The metadata of a file of tensors: texts by name, as `__metadata__` in safetensors, such as
/// `format` with `pt`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metadata(
    /// The entries.
    pub BTreeMap<String, String>,
);

impl Metadata {
    /// Appends the frame to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        varint::write(self.0.len() as u64, &mut body);
        for (name, value) in &self.0 {
            wire::put_bytes(name.as_bytes(), &mut body);
            wire::put_bytes(value.as_bytes(), &mut body);
        }
        let start = out.len();
        wire::begin(STORED_VERSION, KIND, out);
        wire::put_bytes(&body, out);
        wire::seal(start, out);
    }

    /// Interprets the body of a frame, whose checksum is verified.
    pub(super) fn of_body(mut body: &[u8]) -> Result<Self, FrameError> {
        let mut entries = BTreeMap::new();
        for _ in 0..wire::take_varint(&mut body)? {
            let name = wire::text(wire::take_bytes(&mut body)?)?.to_owned();
            let value = wire::text(wire::take_bytes(&mut body)?)?.to_owned();
            if entries.last_key_value().is_some_and(|(last, _)| *last >= name) {
                return Err(FrameError::Malformed("the metadata is not sorted by name"));
            }
            entries.insert(name, value);
        }
        match body {
            [] => Ok(Self(entries)),
            _ => Err(FrameError::Malformed("bytes follow the metadata")),
        }
    }
}
