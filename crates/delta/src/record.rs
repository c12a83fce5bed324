//! Records: what a stream says of one tensor, or of a pool of small ones.

use std::ops::Range;

use gradwire_bits::{DecodeError, varint};

use crate::part::PART;
use crate::tensor::MOST_DIMENSIONS;
use crate::{ElementType, Error, StateHash, Tensor};

const CHANGED: u8 = 0;
const POOL: u8 = 1;
const WRITTEN: u8 = 2;
const REMOVED: u8 = 3;
const LAYOUT: u8 = 4;

/// The most bytes of elements in a record: larger tensors have several records.
const RECORD_BYTES: usize = 64 << 20;
/// Tensors with fewer elements are pooled.
pub(crate) const SMALL: usize = 16_384;

/// The number of parts in a record of this type of element.
pub(crate) const fn parts_in_record(element: ElementType) -> usize {
    RECORD_BYTES / (PART * element.width())
}

/// A tensor of the base, as a record names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Reference<'a> {
    /// Its number among the base's tensors.
    Index(u64),
    /// Name and rows.
    Named(&'a str, Range<u64>),
}

/// The check of a record: the upper half of the first lane of a hash.
pub(crate) type Check = u32;

/// The check for a change of the hash.
pub(crate) fn check(change: StateHash) -> Check {
    (change.0[0] >> 32) as Check
}

/// Consecutive parts of a tensor, or one of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Parts<'a> {
    lengths: Vec<usize>,
    bytes: &'a [u8],
}

impl<'a> Parts<'a> {
    pub(crate) fn len(&self) -> usize {
        self.lengths.len()
    }

    /// The bytes of each part; none for a part that has not changed.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &'a [u8]> {
        self.lengths.iter().scan(self.bytes, |rest, &len| {
            let (part, more) = rest.split_at(len);
            *rest = more;
            Some(part)
        })
    }

    fn read(count: u64, input: &mut &'a [u8]) -> Result<Self, DecodeError> {
        if count > (RECORD_BYTES / PART) as u64 {
            return Err(DecodeError::Corrupt("a record has more parts than writers put there"));
        }
        let lengths = (0..count)
            .map(|_| usize::try_from(varint::read(input)?).map_err(|_| DecodeError::Truncated))
            .collect::<Result<Vec<usize>, _>>()?;
        let sum = lengths.iter().try_fold(0usize, |sum, &len| sum.checked_add(len));
        let bytes = take(input, sum.ok_or(DecodeError::Truncated)?)?;
        Ok(Self { lengths, bytes })
    }
}

/// What a stream says of a tensor or of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Record<'a> {
    /// Parts of a tensor that keeps its type and shape.
    Changed { tensor: Reference<'a>, first_part: u64, check: Check, parts: Parts<'a> },
    /// Small tensors that keep their type and shape, as one part.
    Pool { element: ElementType, tensors: Vec<Reference<'a>>, check: Check, part: &'a [u8] },
    /// Parts of a tensor, without a base.
    Written { tensor: Tensor, first_part: u64, check: Check, parts: Parts<'a> },
    /// A tensor that is no longer there.
    Removed { tensor: Reference<'a> },
    /// Names and headers of the files that the tensors were read from; without effect on tensors.
    Layout(&'a [u8]),
}

impl<'a> Record<'a> {
    /// Splits a record off the front.
    pub(crate) fn read(input: &mut &'a [u8], named: bool) -> Result<Self, Error> {
        match take(input, 1)?[0] {
            CHANGED => {
                let tensor = read_reference(input, named)?;
                let (first_part, check, parts) = read_parts(input)?;
                Ok(Self::Changed { tensor, first_part, check, parts })
            }
            POOL => {
                let element = read_element(input)?;
                let count = varint::read(input)?;
                if count > input.len() as u64 {
                    return Err(DecodeError::Truncated.into());
                }
                // Each tensor has an element at least.
                if count == 0 || count > PART as u64 {
                    return Err(Error::Damaged("a pool has no tensors, or too many"));
                }
                let tensors =
                    (0..count).map(|_| read_reference(input, named)).collect::<Result<_, _>>()?;
                let check = read_check(input)?;
                let len = read_len(input)?;
                Ok(Self::Pool { element, tensors, check, part: take(input, len)? })
            }
            WRITTEN => {
                let tensor = read_tensor(input, named)?;
                let (first_part, check, parts) = read_parts(input)?;
                Ok(Self::Written { tensor, first_part, check, parts })
            }
            REMOVED => Ok(Self::Removed { tensor: read_reference(input, named)? }),
            LAYOUT => {
                let len = read_len(input)?;
                Ok(Self::Layout(take(input, len)?))
            }
            _ => Err(Error::Damaged("a record has an unknown kind")),
        }
    }
}

/// The head of a record of parts, to which [`write_parts`] adds the parts.
pub(crate) fn write_changed(tensor: &Reference<'_>, out: &mut Vec<u8>) {
    out.push(CHANGED);
    write_reference(tensor, out);
}

/// As [`write_changed`], for a tensor without a base.
pub(crate) fn write_written(tensor: &Tensor, named: bool, out: &mut Vec<u8>) {
    out.push(WRITTEN);
    write_text(tensor.name(), out);
    out.push(tensor.element().code());
    varint::write(tensor.shape().len() as u64, out);
    tensor.shape().iter().for_each(|&dimension| varint::write(dimension, out));
    if named {
        write_rows(tensor.rows(), out);
    }
}

/// The rest of a record of parts.
pub(crate) fn write_parts(
    first_part: usize,
    change: StateHash,
    parts: &[&[u8]],
    out: &mut Vec<u8>,
) {
    varint::write(first_part as u64, out);
    varint::write(parts.len() as u64, out);
    out.extend_from_slice(&check(change).to_le_bytes());
    parts.iter().for_each(|part| varint::write(part.len() as u64, out));
    parts.iter().for_each(|part| out.extend_from_slice(part));
}

/// The record of a pool.
pub(crate) fn write_pool(
    element: ElementType,
    tensors: &[Reference<'_>],
    change: StateHash,
    part: &[u8],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(&[POOL, element.code()]);
    varint::write(tensors.len() as u64, out);
    tensors.iter().for_each(|tensor| write_reference(tensor, out));
    out.extend_from_slice(&check(change).to_le_bytes());
    varint::write(part.len() as u64, out);
    out.extend_from_slice(part);
}

/// The record of a removed tensor.
pub(crate) fn write_removed(tensor: &Reference<'_>, out: &mut Vec<u8>) {
    out.push(REMOVED);
    write_reference(tensor, out);
}

/// The record of a layout.
pub(crate) fn write_layout(layout: &[u8], out: &mut Vec<u8>) {
    out.push(LAYOUT);
    varint::write(layout.len() as u64, out);
    out.extend_from_slice(layout);
}

fn write_reference(tensor: &Reference<'_>, out: &mut Vec<u8>) {
    match tensor {
        Reference::Index(index) => varint::write(*index, out),
        Reference::Named(name, rows) => {
            write_text(name, out);
            write_rows(rows.clone(), out);
        }
    }
}

fn write_text(text: &str, out: &mut Vec<u8>) {
    varint::write(text.len() as u64, out);
    out.extend_from_slice(text.as_bytes());
}

fn write_rows(rows: Range<u64>, out: &mut Vec<u8>) {
    varint::write(rows.start, out);
    varint::write(rows.end, out);
}

fn read_parts<'a>(input: &mut &'a [u8]) -> Result<(u64, Check, Parts<'a>), DecodeError> {
    let (first_part, count) = (varint::read(input)?, varint::read(input)?);
    let check = read_check(input)?;
    Ok((first_part, check, Parts::read(count, input)?))
}

fn read_reference<'a>(input: &mut &'a [u8], named: bool) -> Result<Reference<'a>, DecodeError> {
    if !named {
        return Ok(Reference::Index(varint::read(input)?));
    }
    let name = read_text(input)?;
    Ok(Reference::Named(name, read_rows(input)?))
}

fn read_tensor(input: &mut &[u8], named: bool) -> Result<Tensor, Error> {
    let name = read_text(input)?;
    let element = read_element(input)?;
    let dimensions = varint::read(input)?;
    if dimensions > MOST_DIMENSIONS as u64 {
        let reason = "a tensor can have at most 64 dimensions";
        return Err(Error::InvalidTensor { name: name.to_owned(), reason });
    }
    let shape = (0..dimensions).map(|_| varint::read(input)).collect::<Result<Vec<u64>, _>>()?;
    if named {
        Tensor::shard(name, element, shape, read_rows(input)?)
    } else {
        Tensor::new(name, element, shape)
    }
}

fn read_text<'a>(input: &mut &'a [u8]) -> Result<&'a str, DecodeError> {
    let len = read_len(input)?;
    str::from_utf8(take(input, len)?).map_err(|_| DecodeError::Corrupt("a name is not UTF-8"))
}

fn read_rows(input: &mut &[u8]) -> Result<Range<u64>, DecodeError> {
    Ok(varint::read(input)?..varint::read(input)?)
}

fn read_element(input: &mut &[u8]) -> Result<ElementType, DecodeError> {
    let code = take(input, 1)?[0];
    ElementType::from_code(code).ok_or(DecodeError::Corrupt("a type of elements is unknown"))
}

fn read_check(input: &mut &[u8]) -> Result<Check, DecodeError> {
    let (bytes, rest) = input.split_first_chunk().ok_or(DecodeError::Truncated)?;
    *input = rest;
    Ok(Check::from_le_bytes(*bytes))
}

fn read_len(input: &mut &[u8]) -> Result<usize, DecodeError> {
    usize::try_from(varint::read(input)?).map_err(|_| DecodeError::Truncated)
}

fn take<'a>(input: &mut &'a [u8], len: usize) -> Result<&'a [u8], DecodeError> {
    let (head, rest) = input.split_at_checked(len).ok_or(DecodeError::Truncated)?;
    *input = rest;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_checked_before_they_cost_memory() {
        let pool = |count: usize| {
            let tensors = vec![Reference::Index(0); count];
            let mut record = Vec::new();
            write_pool(ElementType::U8, &tensors, StateHash::default(), &[], &mut record);
            Record::read(&mut &record[..], false).map(drop)
        };
        pool(PART).unwrap();
        for count in [0, PART + 1] {
            assert!(matches!(pool(count), Err(Error::Damaged(_))), "{count}");
        }
        // The dimensions are not read: these are no varints.
        let mut record = vec![WRITTEN, 1, b'w', 0, 65];
        record.extend_from_slice(&[0xff; 1000]);
        let error = Record::read(&mut &record[..], false).unwrap_err().to_string();
        assert!(error.contains("64 dimensions"), "{error}");
    }
}
