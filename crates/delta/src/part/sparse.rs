//! Sparse parts: ranks of changed elements within classes of octaves, and their differences.
//!
//! The code is one stream of bits, the lowest of a byte first:
//!
//! 1. With classes: their number less one in three bits. If there are several, the first octave of
//!    the second class in eight bits, and for each further class the distance of its first octave
//!    from the one before, in Elias γ code.
//! 2. By class: a number that is the Rice parameter of the ranks of its changed elements, or, if
//!    most changed, −1 less the parameter of the ranks of the others. The first one plus 32 in six
//!    bits, then the difference to the one before plus one, signed.
//! 3. The [rules](super::steps) of the sizes.
//! 4. The [list](super::segments) of ranks, a segment each class.
//! 5. For each change a bit that is 1 if the element became smaller, class by class.
//! 6. The sizes of the differences, class by class.
//!
//! A signed number is a zigzag number plus 1 in Elias γ code.

use core::ops::Range;

use gradwire_bits::kernels::{CLASSES, Octaves};
use gradwire_bits::{BitReader, BitWriter, DecodeError, rice, try_resize};

use super::elias::{gamma, put_gamma, put_signed, signed, take};
use super::segments::{ListReader, ListWriter, Listed, MAX_PARAMETER, Segment};
use super::steps::{Moves, Rules};

/// The changes of a part, class by class.
#[derive(Debug, Default)]
pub(super) struct ClassChanges {
    /// By class: where its changes end.
    pub(super) ends: [u32; CLASSES],
    /// The rank of each changed element within its class.
    pub(super) ranks: Vec<u32>,
    /// The differences, as zigzag numbers.
    pub(super) moves: Vec<u64>,
    /// How many octaves the element is below the last one of its class.
    pub(super) shifts: Vec<u8>,
}

impl ClassChanges {
    pub(super) fn start(&self, class: usize) -> u32 {
        if class == 0 { 0 } else { self.ends[class - 1] }
    }

    fn counts(&self) -> [u32; CLASSES] {
        core::array::from_fn(|class| self.ends[class] - self.start(class))
    }

    /// The differences of the first classes.
    fn moves(&self, classes: usize) -> impl Iterator<Item = Moves<'_>> + Clone {
        (0..classes).map(|class| {
            let range = self.start(class) as usize..self.ends[class] as usize;
            Moves { moves: &self.moves[range.clone()], shifts: &self.shifts[range] }
        })
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

/// Appends that there is one class.
pub(super) fn write_no_cuts(out: &mut BitWriter<'_>) {
    out.put(0, 3);
}

/// Reads that there is one class.
pub(super) fn read_no_cuts(reader: &mut BitReader<'_>) -> Result<(), DecodeError> {
    match take(reader, 3) {
        0 => reader.check(),
        _ => Err(DecodeError::Corrupt("integers have no classes")),
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

/// Which elements of a class are listed, and how.
#[derive(Debug, Clone, Copy, Default)]
struct Listing {
    /// The elements that did not change.
    others: bool,
    parameter: u32,
}

impl Listing {
    fn new(changes: u32, size: u32) -> Self {
        let others = u64::from(changes) * 8 > u64::from(size) * 5;
        let parameter = match if others { size - changes } else { changes } {
            0 => size.max(1).next_power_of_two().ilog2(),
            count => rice::optimal_parameter(count as usize, size as usize),
        };
        Self { others, parameter: parameter.min(MAX_PARAMETER) }
    }

    fn number(self) -> i32 {
        let parameter = self.parameter as i32;
        if self.others { -1 - parameter } else { parameter }
    }

    fn from_number(number: i32) -> Result<Self, DecodeError> {
        let others = number < 0;
        match if others { -1 - number } else { number } as u32 {
            parameter @ ..=MAX_PARAMETER => Ok(Self { others, parameter }),
            _ => Err(DecodeError::Corrupt("a parameter is out of range")),
        }
    }
}

/// The number of a first listing is at least the negative of this.
const FIRST: i32 = 32;

/// Appends the changes of a part. `sizes` are the numbers of elements of the first classes, which
/// are those in use.
pub(super) fn write(changes: &ClassChanges, sizes: &[u32], out: &mut BitWriter<'_>) {
    let (counts, classes) = (changes.counts(), sizes.len());
    let (mut listings, mut segments) =
        ([Listing::default(); CLASSES], [Segment::default(); CLASSES]);
    let mut expected = None;
    for (class, &size) in sizes.iter().enumerate() {
        let listing = Listing::new(counts[class], size);
        match expected {
            None => out.put((listing.number() + FIRST) as u64, 6),
            Some(expected) => put_signed(out, listing.number() - expected),
        }
        expected = Some(listing.number() + 1);
        listings[class] = listing;
        segments[class] = Segment { size, parameter: listing.parameter };
    }
    let rules = Rules::fit(changes.moves(classes));
    rules.write(out);
    let mut list = ListWriter::new(&segments[..classes]);
    for (class, listing) in listings[..classes].iter().enumerate() {
        let ranks = &changes.ranks[changes.start(class) as usize..changes.ends[class] as usize];
        if listing.others {
            list.put_each(out, class, others(ranks, sizes[class]));
        } else {
            list.put(out, class, ranks);
        }
    }
    list.finish(out);
    for moves in changes.moves.chunks(32) {
        let bits = moves.iter().rev().fold(0, |bits, &zigzag| bits << 1 | (zigzag & 1));
        out.put(bits, moves.len() as u32);
    }
    rules.put(out, &counts, changes.moves(classes));
}

/// The numbers below `size` that are not among these, which increase.
fn others(ranks: &[u32], size: u32) -> impl Iterator<Item = u32> {
    let starts = [0].into_iter().chain(ranks.iter().map(|rank| rank + 1));
    starts.zip(ranks.iter().copied().chain([size])).flat_map(|(start, end)| start..end)
}

/// Reads the ranks of the changes of a part, and their differences as 1 or −1, and returns the
/// rules of the sizes. There are at most `most` changes.
pub(super) fn read(
    reader: &mut BitReader<'_>,
    sizes: &[u32],
    most: usize,
    changes: &mut ClassChanges,
) -> Result<Rules, DecodeError> {
    let (mut listings, mut segments) =
        ([Listing::default(); CLASSES], [Segment::default(); CLASSES]);
    let mut expected = None;
    for (class, &size) in sizes.iter().enumerate() {
        let listing = Listing::from_number(match expected {
            None => take(reader, 6) as i32 - FIRST,
            Some(expected) => signed(reader)? + expected,
        })?;
        expected = Some(listing.number() + 1);
        listings[class] = listing;
        segments[class] = Segment { size, parameter: listing.parameter };
    }
    let rules = Rules::read(reader, sizes.len())?;
    read_ranks(reader, &segments[..sizes.len()], &listings, most, changes)?;
    let count = changes.ranks.len();
    try_resize(&mut changes.moves, count, 0)?;
    for moves in changes.moves.chunks_mut(32) {
        let bits = take(reader, moves.len() as u32);
        moves.iter_mut().enumerate().for_each(|(at, zigzag)| *zigzag = 2 - (bits >> at & 1));
    }
    reader.check()?;
    try_resize(&mut changes.shifts, count, 0)?;
    Ok(rules)
}

fn read_ranks(
    reader: &mut BitReader<'_>,
    segments: &[Segment],
    listings: &[Listing; CLASSES],
    most: usize,
    changes: &mut ClassChanges,
) -> Result<(), DecodeError> {
    let ClassChanges { ends, ranks, .. } = changes;
    let mut found = Found { ranks, count: 0, most };
    let mut list = ListReader::new(segments);
    // The class, and the first element of it that is not known to have changed or not.
    let (mut class, mut next) = (0, 0);
    loop {
        if listings.get(class).is_some_and(|listing| !listing.others) {
            let count = list.read_some(reader, found.room()?);
            found.count += count;
            if count > 0 {
                continue;
            }
        }
        let place = list.read(reader)?;
        let segment = place.map_or(segments.len(), |place| place.segment);
        while class < segment {
            if listings[class].others {
                found.push(next..segments[class].size)?;
            }
            ends[class] = found.count as u32;
            (class, next) = (class + 1, 0);
        }
        let Some(Listed { position, .. }) = place else { break };
        if listings[class].others {
            found.push(next..position)?;
            next = position + 1;
        } else {
            found.push(position..position + 1)?;
        }
    }
    ends[class..].fill(found.count as u32);
    found.finish();
    Ok(())
}

/// Ranks that are read at once.
const TOGETHER: usize = 1 << 10;

/// The ranks that have been read. Their memory is longer while more are read, so it is filled with
/// zeros once, however few ranks come at a time.
struct Found<'a> {
    ranks: &'a mut Vec<u32>,
    count: usize,
    /// The most ranks.
    most: usize,
}

impl Found<'_> {
    /// Room for the next ranks.
    fn room(&mut self) -> Result<&mut [u32], DecodeError> {
        let end = self.most.min(self.count + TOGETHER);
        self.reserve(end)?;
        Ok(&mut self.ranks[self.count..end])
    }

    /// Appends ranks.
    fn push(&mut self, more: Range<u32>) -> Result<(), DecodeError> {
        let end = self.count + more.len();
        if end > self.most {
            return Err(DecodeError::Truncated);
        }
        self.reserve(end)?;
        self.ranks[self.count..end].iter_mut().zip(more).for_each(|(to, rank)| *to = rank);
        self.count = end;
        Ok(())
    }

    /// Makes room up to `end`, which is at most `most`.
    fn reserve(&mut self, end: usize) -> Result<(), DecodeError> {
        match self.ranks.len() {
            len if len < end => try_resize(self.ranks, end.max(2 * len).min(self.most), 0),
            _ => Ok(()),
        }
    }

    /// Removes the room.
    fn finish(self) {
        self.ranks.truncate(self.count);
    }
}
