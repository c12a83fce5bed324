//! The fields of all frames: the first bytes, numbers, texts and the checksum.

use gradwire_bits::{DecodeError, varint};

use super::error::{FrameError, MAGIC, MAX_DIMENSIONS};
use crate::Tensor;

/// Appends the first eight bytes of a frame; `kind` is the byte after the version.
pub(super) fn begin(version: u8, kind: u8, out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&[version, kind, 0, 0]);
}

/// Appends the checksum of the frame that begins at `start`.
pub(super) fn seal(start: usize, out: &mut Vec<u8>) {
    let checksum = crc32fast::hash(&out[start..]);
    out.extend_from_slice(&checksum.to_le_bytes());
}

/// The version of the frame at the front of `input`.
pub(super) fn version(input: &[u8]) -> Result<u8, FrameError> {
    let magic = input.get(..4).unwrap_or(input);
    if magic != &MAGIC[..magic.len()] {
        return Err(FrameError::NotAFrame);
    }
    let [_, _, _, _, version, ..] = take_array::<8>(&mut &*input)?;
    Ok(version)
}

/// Reads the fields at the front of `input` and verifies the checksum after them. Returns the
/// fields and the bytes after the frame.
pub(super) fn checked<'a, T>(
    input: &'a [u8],
    fields: impl FnOnce(&mut &'a [u8]) -> Result<T, FrameError>,
) -> Result<(T, &'a [u8]), FrameError> {
    let mut rest = input;
    let fields = fields(&mut rest)?;
    let body = &input[..input.len() - rest.len()];
    let expected = u32::from_le_bytes(take_array(&mut rest)?);
    let found = crc32fast::hash(body);
    if expected != found {
        return Err(FrameError::Checksum { expected, found });
    }
    Ok((fields, rest))
}

/// Refuses a tensor with more dimensions than a frame holds.
pub(super) fn check_dimensions(tensor: &Tensor) -> Result<(), FrameError> {
    let dimensions = tensor.shape().len();
    if dimensions > MAX_DIMENSIONS {
        return Err(FrameError::Dimensions { tensor: tensor.name().to_owned(), dimensions });
    }
    Ok(())
}

/// Appends the number of dimensions, and the dimensions.
pub(super) fn put_shape(shape: &[usize], out: &mut Vec<u8>) {
    varint::write(shape.len() as u64, out);
    for &dimension in shape {
        varint::write(dimension as u64, out);
    }
}

pub(super) fn take_shape(rest: &mut &[u8]) -> Result<Vec<u64>, FrameError> {
    let dimensions = take_varint(rest)?;
    if dimensions > MAX_DIMENSIONS as u64 {
        return Err(FrameError::Malformed("a tensor has more than 64 dimensions"));
    }
    (0..dimensions).map(|_| take_varint(rest)).collect()
}

/// The dimensions as `usize`.
pub(super) fn shape(dimensions: &[u64]) -> Result<Vec<usize>, FrameError> {
    let dimensions: Result<_, _> = dimensions.iter().map(|&n| usize::try_from(n)).collect();
    dimensions
        .map_err(|_| FrameError::Malformed("a dimension exceeds this machine's address space"))
}

pub(super) fn text(bytes: &[u8]) -> Result<&str, FrameError> {
    std::str::from_utf8(bytes).map_err(|_| FrameError::Malformed("a text is not UTF-8"))
}

pub(super) fn put_bytes(bytes: &[u8], out: &mut Vec<u8>) {
    varint::write(bytes.len() as u64, out);
    out.extend_from_slice(bytes);
}

pub(super) fn take_bytes<'a>(rest: &mut &'a [u8]) -> Result<&'a [u8], FrameError> {
    let len = take_varint(rest)?;
    let len = usize::try_from(len).map_err(|_| FrameError::Truncated)?;
    let (bytes, after) = rest.split_at_checked(len).ok_or(FrameError::Truncated)?;
    *rest = after;
    Ok(bytes)
}

pub(super) fn take_array<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], FrameError> {
    let (array, after) = rest.split_first_chunk().ok_or(FrameError::Truncated)?;
    *rest = after;
    Ok(*array)
}

pub(super) fn take_varint(rest: &mut &[u8]) -> Result<u64, FrameError> {
    varint::read(rest).map_err(|error| match error {
        DecodeError::Truncated => FrameError::Truncated,
        _ => FrameError::Malformed("a varint is longer than its value needs"),
    })
}
