//! Encodes the parts of the records of a stream.

use crate::hasher::TensorHasher;
use crate::part::{Options, PART};
use crate::record::parts_in_record;
use crate::workers::Worker;
use crate::{Error, Source, StateHash, Tensor};

/// The form of a part without changes: records leave its byte out.
const SAME: u8 = 0;

/// Consecutive parts of a tensor that one record holds.
pub(crate) struct Segment {
    pub(crate) new: usize,
    pub(crate) base: Option<usize>,
    pub(crate) hasher: TensorHasher,
    pub(crate) first_part: usize,
    pub(crate) parts: usize,
}

impl Segment {
    /// The bytes of its elements of the new tensor.
    pub(crate) fn byte_len(&self, tensor: &Tensor) -> u64 {
        let first = self.first_part * PART;
        let end = tensor.elements().min(first + self.parts * PART);
        ((end - first) * tensor.element().width()) as u64
    }
}

/// An encoded part.
pub(crate) struct Encoded {
    pub(crate) worker: usize,
    pub(crate) start: usize,
    pub(crate) end: usize,
    pub(crate) change: StateHash,
}

/// The records that a tensor needs.
pub(crate) fn segments(
    tensor: &Tensor,
    new: usize,
    base: Option<usize>,
) -> impl Iterator<Item = Segment> {
    let hasher = TensorHasher::new(tensor);
    let (parts, most) = (tensor.elements().div_ceil(PART), parts_in_record(tensor.element()));
    // An empty tensor has one record without parts.
    (0..parts.max(1)).step_by(most).map(move |first_part| Segment {
        new,
        base,
        hasher,
        first_part,
        parts: most.min(parts - first_part),
    })
}

/// Encodes one part to the end of the worker's output.
pub(crate) fn encode(
    base: &dyn Source,
    new: &dyn Source,
    segment: &Segment,
    part: usize,
    options: Options,
    worker: &mut Worker,
) -> Result<Encoded, Error> {
    let tensor = &new.tensors()[segment.new];
    let (element, first) = (tensor.element(), part * PART);
    let width = element.width();
    let bytes = first * width..tensor.elements().min(first + PART) * width;
    let Worker { coder, base: base_buffer, new: new_buffer, out } = worker;
    let start = out.len();
    let new = new.read(segment.new, bytes.clone(), new_buffer)?;
    let Some(base_index) = segment.base else {
        coder.encode(element, None, new, options, out);
        let change = segment.hasher.content(first, new);
        return Ok(Encoded { worker: 0, start, end: out.len(), change });
    };
    let old = base.read(base_index, bytes, base_buffer)?;
    // Memory of the base itself: it is known that nothing changed.
    if std::ptr::eq(old, new) {
        return Ok(Encoded { worker: 0, start, end: start, change: StateHash::default() });
    }
    let hasher = segment.hasher.from(first);
    let change = coder.encode_hashed(element, [old, new], options, &hasher, out);
    if out[start..] == [SAME] {
        out.truncate(start);
    }
    Ok(Encoded { worker: 0, start, end: out.len(), change })
}
