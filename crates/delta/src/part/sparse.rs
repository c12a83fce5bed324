//! Sparse parts: ranks of changed elements within classes of octaves, and their differences.
//!
//! The code is one stream of bits, the lowest of a byte first:
//!
//! 1. With classes: their number less one in three bits. If there are several, the first octave of
//!    the second class in eight bits, and for each further class the distance of its first octave
//!    from the one before, in Elias γ code.
//! 2. By class: the Rice parameter of its ranks; the first in five bits, then the difference to
//!    the one before plus one, signed.
//! 3. The [rules](super::steps) of the sizes.
//! 4. The [list](super::segments) of ranks, a segment each class; with each rank a bit that is 1 if
//!    the element became smaller.
//! 5. The sizes of the differences, class by class.
//!
//! A signed number is a zigzag number plus 1 in Elias γ code.

use gradwire_bits::kernels::{CLASSES, Octaves};
use gradwire_bits::{BitReader, BitWriter, DecodeError, rice};

use super::elias::{gamma, put_gamma, put_signed, signed, take};
use super::segments::{ListReader, ListWriter, MAX_PARAMETER, Segment};
use super::steps::Rules;

/// The changes of a part, class by class.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// By class: where its changes end.
    pub(super) ends: [u32; CLASSES],
    /// The rank of each changed element within its class.
    pub(super) ranks: Vec<u32>,
    /// Whether the element became smaller, as an integer.
    pub(super) signs: Vec<u8>,
    /// The absolute value of the difference when encoding, and one less when decoding.
    pub(super) sizes: Vec<u64>,
}

impl Changes {
    pub(super) fn start(&self, class: usize) -> u32 {
        if class == 0 { 0 } else { self.ends[class - 1] }
    }

    fn counts(&self) -> [u32; CLASSES] {
        core::array::from_fn(|class| self.ends[class] - self.start(class))
    }

    /// The elements of a list with an element for each change, by class.
    fn classes<'a, T>(
        &self,
        all: &'a [T],
        classes: usize,
    ) -> impl Iterator<Item = &'a [T]> + Clone {
        let (starts, ends) =
            (core::array::from_fn::<_, CLASSES, _>(|class| self.start(class)), self.ends);
        (0..classes).map(move |class| &all[starts[class] as usize..ends[class] as usize])
    }
}

/// Appends the cuts between classes.
pub(super) fn write_cuts(octaves: &Octaves, out: &mut BitWriter<'_>) {
    let classes = octaves.used();
    out.put(classes as u64 - 1, 3);
    let mut before = None;
    for &last in &octaves.last[..classes - 1] {
        match before {
            None => out.put(u64::from(last) + 1, 8),
            Some(before) => put_gamma(out, u64::from(last - before)),
        }
        before = Some(last);
    }
}

/// Reads the cuts between classes into `octaves`.
pub(super) fn read_cuts(
    reader: &mut BitReader<'_>,
    octaves: &mut Octaves,
) -> Result<(), DecodeError> {
    let cuts = take(reader, 3) as usize;
    octaves.last = [255; CLASSES - 1];
    for at in 0..cuts {
        let next = match at {
            0 => take(reader, 8).wrapping_sub(1),
            _ => gamma(reader)?.saturating_add(octaves.last[at - 1].into()),
        };
        match next {
            0..255 => octaves.last[at] = next as u8,
            _ => return Err(DecodeError::Corrupt("a class has no octaves")),
        }
    }
    reader.check()
}

/// Appends the changes of a part. `sizes` are the numbers of elements of the first classes, which
/// are those in use.
pub(super) fn write(changes: &Changes, sizes: &[u32], out: &mut BitWriter<'_>) {
    let (counts, classes) = (changes.counts(), sizes.len());
    let mut segments = [Segment::default(); CLASSES];
    let mut expected = None;
    for (class, &size) in sizes.iter().enumerate() {
        let parameter = match counts[class] {
            0 => size.max(1).next_power_of_two().ilog2(),
            count => rice::optimal_parameter(count as usize, size as usize),
        };
        let parameter = parameter.min(MAX_PARAMETER);
        match expected {
            None => out.put(parameter.into(), 5),
            Some(expected) => put_signed(out, parameter as i32 - expected),
        }
        expected = Some(parameter as i32 + 1);
        segments[class] = Segment { size, parameter };
    }
    let rules = Rules::fit(changes.classes(&changes.sizes, classes));
    rules.write(out);
    let mut list = ListWriter::new(&segments[..classes]);
    for class in 0..classes {
        for at in changes.start(class) as usize..changes.ends[class] as usize {
            list.put(out, (class, changes.ranks[at]), (changes.signs[at].into(), 1));
        }
    }
    list.finish(out);
    rules.put(out, &counts, changes.classes(&changes.sizes, classes));
}

/// Reads the changes of a part: the reverse of [`write`]. `most` limits their number.
pub(super) fn read(
    reader: &mut BitReader<'_>,
    sizes: &[u32],
    changes: &mut Changes,
) -> Result<(), DecodeError> {
    let mut segments = [Segment::default(); CLASSES];
    let mut expected = None;
    for (segment, &size) in segments.iter_mut().zip(sizes) {
        let parameter = match expected {
            None => take(reader, 5) as i32,
            Some(expected) => signed(reader)? + expected,
        };
        if !(0..=MAX_PARAMETER as i32).contains(&parameter) {
            return Err(DecodeError::Corrupt("a parameter is out of range"));
        }
        expected = Some(parameter + 1);
        *segment = Segment { size, parameter: parameter as u32 };
    }
    let rules = Rules::read(reader, sizes.len())?;
    read_ranks(reader, &segments[..sizes.len()], changes)?;
    changes.sizes.clear();
    changes.sizes.try_reserve(changes.ranks.len())?;
    changes.sizes.resize(changes.ranks.len(), 0);
    let starts = core::array::from_fn(|class| changes.start(class));
    rules.take(reader, &changes.counts(), &starts, &mut changes.sizes)
}

fn read_ranks(
    reader: &mut BitReader<'_>,
    segments: &[Segment],
    changes: &mut Changes,
) -> Result<(), DecodeError> {
    changes.ranks.clear();
    changes.signs.clear();
    let mut list = ListReader::new(segments);
    let (mut class, mut count) = (0, 0);
    while let Some(place) = list.read(reader, 1)? {
        while class < place.segment {
            changes.ends[class] = count;
            class += 1;
        }
        if changes.ranks.len() == changes.ranks.capacity() {
            changes.ranks.try_reserve(1024)?;
            changes.signs.try_reserve(changes.ranks.capacity() - changes.signs.len())?;
        }
        changes.ranks.push(place.position);
        changes.signs.push(place.more as u8);
        count += 1;
    }
    changes.ends[class..].fill(count);
    Ok(())
}
