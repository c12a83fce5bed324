//! The Huffman-coded form: values sorted by size, with a separate code for each size.
//!
//! Packed tags, one-byte values, and the upper bytes of two-byte values are sent as symbols of an
//! alphabet of 256; then the lower bytes, then four-byte values.

use gradwire_bits::kernels::{self, Cuts, TAGS};
use gradwire_bits::{DecodeError, try_resize};

use super::check::{INVALID, check_padding};
use crate::wire::fields;
use crate::wire::symbols::Alphabet;
use crate::{BLOCK, Source, Workspace};

/// The number of byte values.
const BYTES: usize = 256;
/// Tags that are tested together.
const STRETCH: usize = 32;

/// The alphabet of bytes.
fn bytes() -> Alphabet {
    Alphabet::new(BYTES, true)
}

/// The most bytes by which this form exceeds the other: one per code.
pub(super) const EXTRA: usize = 3;

/// The most elements that fit in `len` bytes.
pub(super) fn max_elements(len: usize) -> usize {
    bytes().max_elements(len)
}

/// Appends the message.
pub(super) fn encode(
    cuts: Cuts,
    source: &mut Source<'_>,
    workspace: &mut Workspace,
    message: &mut Vec<u8>,
) {
    let Workspace { symbols, coder, own, helpers, .. } = workspace;
    let sorted = own.get();
    sort(cuts, source, symbols, sorted);
    let Sorted { narrow, wide, whole, .. } = sorted;
    bytes().put(symbols, coder, helpers, message);
    symbols.clear();
    symbols.extend(narrow.iter().map(|&value| u16::from(value)));
    bytes().put(symbols, coder, helpers, message);
    symbols.clear();
    symbols.extend(wide.iter().map(|value| (value >> 8) as u16));
    bytes().put(symbols, coder, helpers, message);
    message.extend(wide.iter().map(|&value| value as u8));
    fields::put_f32s(whole, message);
}

/// The values of a tensor by their size in bytes.
#[derive(Debug, Default)]
struct Sorted {
    /// Packed tags; used only to read a message.
    packed: Vec<u8>,
    /// Values of one byte.
    narrow: Vec<u8>,
    /// Values of two bytes.
    wide: Vec<u32>,
    /// Values of four bytes.
    whole: Vec<f32>,
}

/// Sorts the values of a tensor by size; its packed tags become symbols.
fn sort(cuts: Cuts, source: &mut Source<'_>, symbols: &mut Vec<u16>, sorted: &mut Sorted) {
    let Sorted { narrow, wide, whole, .. } = sorted;
    let elements = source.len();
    start(symbols, elements);
    start(narrow, elements);
    start(wide, elements);
    start(whole, elements);
    let (mut tags, mut packed, mut words) = ([0; BLOCK], [0; BLOCK / TAGS], [0; BLOCK]);
    source.take_blocks(|_, block| {
        let (tags, words) = (&mut tags[..block.len()], &mut words[..block.len()]);
        kernels::truncate_residual(block, cuts, tags, words);
        drop_signs(tags, words);
        let packed = &mut packed[..tags.len().div_ceil(TAGS)];
        kernels::pack_tags(tags, packed);
        symbols.extend(packed.iter().copied().map(u16::from));
        select(1, tags, words, |word| word as u8, narrow);
        select(2, tags, words, |word| word, wide);
        select(3, tags, words, f32::from_bits, whole);
    });
}

/// Sets the tag of one-byte values that have only the sign left to 0: they are zeros.
fn drop_signs(tags: &mut [u8], words: &[u32]) {
    for (tag, &word) in tags.iter_mut().zip(words) {
        *tag &= !u8::from((*tag == 1) & (word & 0x7f == 0));
    }
}

/// Clears a list and reserves memory for all elements, so later messages allocate nothing.
fn start<T>(list: &mut Vec<T>, elements: usize) {
    list.clear();
    list.reserve(elements);
}

/// As [`start`], for a message.
fn try_start<T>(list: &mut Vec<T>, elements: usize) -> Result<(), DecodeError> {
    list.clear();
    Ok(list.try_reserve(elements)?)
}

/// Appends the values with this tag.
fn select<T: Copy + Default>(
    tag: u8,
    tags: &[u8],
    words: &[u32],
    value: impl Fn(u32) -> T,
    out: &mut Vec<T>,
) {
    let mut at = out.len();
    out.resize(at + tags.len(), T::default());
    for (&found, &word) in tags.iter().zip(words) {
        // The next value overwrites one of another tag: a branch on the tag would be mispredicted.
        out[at] = value(word);
        at += usize::from(found == tag);
    }
    out.truncate(at);
}

/// Adds a message that [`encode`] appended.
pub(super) fn decode_add(
    cuts: Cuts,
    message: &[u8],
    weight: f32,
    workspace: &mut Workspace,
    out: &mut [f32],
) -> Result<(), DecodeError> {
    read(message, out.len(), workspace)?;
    let Sorted { packed, narrow, wide, whole } = workspace.own();
    let (mut narrow, mut wide, mut whole) = (&narrow[..], &wide[..], &whole[..]);
    let valid = valid(1, narrow, u32::from, cuts)
        && valid(2, wide, |value| value, cuts)
        && valid(3, whole, f32::to_bits, cuts);
    if !valid {
        return Err(INVALID);
    }
    let (mut tags, mut words) = ([0; BLOCK], [0; BLOCK]);
    for (packed, out) in packed.chunks(BLOCK / TAGS).zip(out.chunks_mut(BLOCK)) {
        let (tags, words) = (&mut tags[..out.len()], &mut words[..out.len()]);
        kernels::unpack_tags(packed, tags);
        words.fill(0);
        spread(1, &mut narrow, u32::from, tags, words);
        spread(2, &mut wide, |value| value, tags, words);
        spread(3, &mut whole, f32::to_bits, tags, words);
        kernels::truncated_add(tags, words, weight, out);
    }
    Ok(())
}

/// Reads the message.
fn read(mut message: &[u8], elements: usize, workspace: &mut Workspace) -> Result<(), DecodeError> {
    let Workspace { symbols, coder, own, helpers, .. } = workspace;
    let Sorted { packed, narrow, wide, whole } = own.get();
    let tags = elements.div_ceil(TAGS);
    try_start(symbols, elements)?;
    try_start(packed, tags)?;
    try_start(narrow, elements)?;
    try_start(wide, elements)?;
    try_start(whole, elements)?;
    bytes().take(&mut message, tags, symbols, coder, helpers)?;
    packed.extend(symbols.iter().map(|&symbol| symbol as u8));
    check_padding(packed, elements)?;
    let [narrow_count, wide_count, whole_count] = counts(packed);
    bytes().take(&mut message, narrow_count, symbols, coder, helpers)?;
    narrow.extend(symbols.iter().map(|&symbol| symbol as u8));
    bytes().take(&mut message, wide_count, symbols, coder, helpers)?;
    let lower = fields::take(&mut message, wide_count)?;
    fields::expect_len(message, 4 * whole_count)?;
    let pairs = symbols.iter().zip(lower);
    wide.extend(pairs.map(|(&upper, &lower)| u32::from(upper) << 8 | u32::from(lower)));
    try_resize(whole, whole_count, 0.0)?;
    fields::read_f32s(message, whole);
    Ok(())
}

/// The numbers of tags 1, 2 and 3.
fn counts(packed: &[u8]) -> [usize; 3] {
    const LOW: u64 = 0x5555_5555_5555_5555;
    let (words, rest) = packed.as_chunks();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let mut counts = [0; 3];
    for &word in words.iter().chain([&last]) {
        let word = u64::from_le_bytes(word);
        let (low, high) = (word & LOW, word >> 1 & LOW);
        counts[0] += (low & !high).count_ones() as usize;
        counts[1] += (high & !low).count_ones() as usize;
        counts[2] += (low & high).count_ones() as usize;
    }
    counts
}

/// Whether all of these values are possible with this tag.
fn valid<T: Copy>(tag: u8, values: &[T], word: impl Fn(T) -> u32, cuts: Cuts) -> bool {
    let (tags, mut words) = ([tag; BLOCK], [0; BLOCK]);
    values.chunks(BLOCK).all(|values| {
        let words = &mut words[..values.len()];
        words.iter_mut().zip(values).for_each(|(out, &value)| *out = word(value));
        kernels::truncated_valid(&tags, words, cuts)
    })
}

/// Copies the values with this tag to their elements. There is one value for each such tag.
fn spread<T: Copy>(
    tag: u8,
    values: &mut &[T],
    word: impl Fn(T) -> u32,
    tags: &[u8],
    words: &mut [u32],
) {
    let Some(last) = values.len().checked_sub(1) else { return };
    let mut at = 0;
    // If a tag is rare, most chunks do not contain it.
    for (tags, words) in tags.chunks(STRETCH).zip(words.chunks_mut(STRETCH)) {
        if !tags.iter().fold(false, |any, &found| any | (found == tag)) {
            continue;
        }
        for (&found, out) in tags.iter().zip(words) {
            let is_next = found == tag;
            // After the last value, the index stays in range.
            *out |= word(values[at.min(last)]) & u32::from(is_next).wrapping_neg();
            at += usize::from(is_next);
        }
    }
    *values = &values[at..];
}
