//! New weights of which only the changes are known: some other device compared them with the base.

use std::ops::Range;

use gradwire_bits::kernels;

use crate::part::PART;
use crate::source::{check_apart, check_len};
use crate::{Buffer, Error, Mirror, Source, Tensor};

/// The new elements of a tensor.
#[derive(Debug, Clone)]
pub enum NewElements<'a> {
    /// All of them, as little-endian bytes.
    Whole(&'a [u8]),
    /// Those that the base does not have.
    Changes(Changes<'a>),
}

/// The changed elements of a tensor, counted and numbered by parts of [`PART`] elements.
#[derive(Debug, Clone)]
pub struct Changes<'a> {
    /// For each part the number of changed elements up to its end, from the start of the tensor.
    pub ends: Vec<usize>,
    /// The positions of the changed elements: from the start of their part, and increasing within
    /// it.
    pub positions: &'a [u32],
    /// Their new values, as little-endian bytes.
    pub values: &'a [u8],
}

/// New weights for [`Sender::add_patched`](crate::Sender::add_patched).
#[derive(Debug)]
pub struct Patched<'a> {
    tensors: Vec<Tensor>,
    new: Vec<NewElements<'a>>,
}

impl<'a> Patched<'a> {
    /// Takes tensors and their new elements, in any order.
    ///
    /// # Errors
    /// If a tensor occurs twice, has another number of bytes than its shape says, or has changes
    /// whose positions do not increase, are outside of their parts, or do not match the counts and
    /// values.
    pub fn new(all: impl IntoIterator<Item = (Tensor, NewElements<'a>)>) -> Result<Self, Error> {
        let mut pairs: Vec<_> = all.into_iter().collect();
        for (tensor, new) in &pairs {
            match new {
                NewElements::Whole(bytes) => check_len(tensor, bytes.len())?,
                NewElements::Changes(changes) => check(tensor, changes)?,
            }
        }
        pairs.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        let (tensors, new): (Vec<Tensor>, _) = pairs.into_iter().unzip();
        check_apart(&tensors)?;
        Ok(Self { tensors, new })
    }

    /// The new weights as a source, with the unchanged elements from the base.
    ///
    /// # Errors
    /// If the base does not have a tensor of which only changes are known, with the same type,
    /// shape and rows.
    pub(crate) fn over<'b>(&'b self, base: &'b Mirror) -> Result<OverBase<'b>, Error> {
        let index = |(tensor, new): (&Tensor, &NewElements<'_>)| match new {
            NewElements::Whole(_) => Ok(None),
            NewElements::Changes(_) => position(base, tensor).map(Some),
        };
        let in_base = self.tensors.iter().zip(&self.new).map(index).collect::<Result<_, _>>()?;
        Ok(OverBase { new: self, base, in_base })
    }
}

/// The number of the base's tensor with this description.
fn position(base: &Mirror, tensor: &Tensor) -> Result<usize, Error> {
    let found = base.tensors().binary_search_by(|other| other.key().cmp(&tensor.key()));
    found.ok().filter(|&index| base.tensors()[index] == *tensor).ok_or_else(|| {
        let reason = "the base has no such tensor that could be changed; give all elements";
        Error::InvalidTensor { name: tensor.name().to_owned(), reason }
    })
}

fn check(tensor: &Tensor, changes: &Changes<'_>) -> Result<(), Error> {
    let refuse = |reason| Err(Error::InvalidTensor { name: tensor.name().to_owned(), reason });
    let Changes { ends, positions, values } = changes;
    if ends.len() != tensor.elements().div_ceil(PART) {
        return refuse("its counts of changes are not one for each part; count all parts");
    }
    if !ends.is_sorted() || ends.last().copied().unwrap_or(0) != positions.len() {
        return refuse(
            "its counts of changes do not match the positions; count each position once",
        );
    }
    if values.len() != positions.len() * tensor.element().width() {
        return refuse(
            "its values are not one for each changed position; give each position its value",
        );
    }
    for part in 0..ends.len() {
        let positions = &positions[changes.range(part)];
        let len = PART.min(tensor.elements() - part * PART);
        if !positions.is_sorted_by(|one, next| one < next)
            || positions.last().is_some_and(|&last| last as usize >= len)
        {
            return refuse(
                "its positions do not increase within a part; sort them, and give each once",
            );
        }
    }
    Ok(())
}

impl Changes<'_> {
    /// The changes of a part.
    fn range(&self, part: usize) -> Range<usize> {
        part.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[part]
    }
}

/// New weights over their base. Reads lie within parts.
pub(crate) struct OverBase<'a> {
    new: &'a Patched<'a>,
    base: &'a Mirror,
    /// The numbers of the tensors in the base, if only changes are known.
    in_base: Vec<Option<usize>>,
}

impl Source for OverBase<'_> {
    fn tensors(&self) -> &[Tensor] {
        &self.new.tensors
    }

    fn read<'a>(
        &'a self,
        tensor: usize,
        bytes: Range<usize>,
        buffer: &'a mut Buffer,
    ) -> Result<&'a [u8], Error> {
        let (changes, in_base) = match (&self.new.new[tensor], self.in_base[tensor]) {
            (NewElements::Whole(all), _) => return Ok(&all[bytes]),
            (NewElements::Changes(changes), in_base) => (changes, in_base.expect("it was found")),
        };
        let width = self.new.tensors[tensor].element().width();
        let base = &self.base.bytes(in_base)[bytes.clone()];
        let (part, end) = (bytes.start / (PART * width), bytes.end.div_ceil(PART * width));
        assert!(bytes.start.is_multiple_of(PART * width) && end <= part + 1, "reads lie in a part");
        let changed = if part < end { changes.range(part) } else { 0..0 };
        if changed.is_empty() {
            return Ok(base);
        }
        buffer.resize(base.len());
        buffer.copy_from_slice(base);
        let values = &changes.values[changed.start * width..changed.end * width];
        kernels::scatter(width, &changes.positions[changed], values, buffer);
        Ok(buffer)
    }
}
