//! `sketchml`: quantile buckets of the non-zero elements; elements share hashed bins for their
//! bucket numbers.
//!
//! - **Buckets**: the positive and the negative elements are divided separately, by absolute value,
//!   into up to `buckets` parts of about equal size, at most one per eight elements. An element is
//!   sent as the mean of a bucket of its sign.
//! - **Groups**: the b buckets of a sign form groups of ⌈b / groups⌉ consecutive ones. Elements are
//!   sent group by group, so each needs only the index of its bucket in the group.
//! - **MinMaxSketch**: the hash of an element's position selects one bin in each of `rows` rows. A
//!   bin stores the smallest bucket index of its elements. The receiver uses the largest of an
//!   element's bins: its bucket, or one of the same group with smaller elements. So a decoded
//!   magnitude is at most the mean of its bucket, and at least the smallest mean of its group. A
//!   row has one bin per `load` elements.
//! - **Message**: for the positive, then the negative elements, the number b of buckets as varint,
//!   their mean absolute values as f32 in increasing order, and for each group its positions and
//!   its sketch. With `keys=entropy` positions are a byte with their code (0 bitmap, 1 Rice, 2
//!   raw), their number as varint and the shortest code; `keys=bytes` is the paper's code: their
//!   number, and the gaps between them in one to four bytes each, with 2 bits for the number of
//!   bytes. A sketch is cut into pieces of up to 4096 elements; a bin has as many bits as a bucket
//!   index in the group. `code=huffman` puts the bins of a group in [Huffman
//!   code](gradwire_bits::huffman) if that is shorter: bucket indices are uniform, but the minimum
//!   of five is not, and takes 4.1 bits instead of five. An empty tensor has an empty message.
//! - **Dense tensors**: the method is made for gradients with few non-zero elements. It also
//!   accepts gradients without zeros, but must then encode the group of each element: about 7.5
//!   bits per element (7.1 with `code=huffman`), 5.5 of them for positions, and 12 with
//!   `keys=bytes`. With `groups=1` it takes 5.2 bits, with larger errors.
//! - **Range**: up to 2³² − 1 elements. Elements that share their upper 16 bits share a bucket.
//! - **Error feedback**: on; the residual is the difference from the decoded value.
//! - **Deviations**: quantiles come from a histogram of the elements' upper 16 bits, which is exact
//!   up to its cells, not from a sketch of samples; few elements get fewer buckets, as the means
//!   would otherwise take more bytes than the elements; sketches are cut into pieces that fit in
//!   the cache; bins are packed to the bit; the paper sends means of 8 bytes.
//! - **Cost**: 8 bytes per element for the maximum, 12 to select. Then every non-zero element takes
//!   table look-ups: a histogram, its bucket twice, its bins twice in every row, and a bit code.
//!   They keep a dense tensor below 1 GB/s, but not a tensor with a tenth of non-zeros.
//!
//! Reference: Jiang, Fu, Yang, Cui: "SketchML: Accelerating Distributed Machine Learning with Data
//! Sketches", SIGMOD 2018.

mod buckets;
mod keys;
mod minmax;

use gradwire_bits::{DecodeError, bitmap, try_resize, varint};

use crate::numeric::take::clear;
use crate::parameters::{either, whole};
use crate::tools::{Selection, desparsify, pack_positions, sparsify, unpack_positions};
use crate::wire::fields;
use crate::wire::positions;
use crate::{
    Compressor, Coverage, DecodeArgs, EncodeArgs, Entry, Family, Guarantee, Passes, Source,
    Workspace,
};
use buckets::{Buckets, MOST};
use minmax::{MOST_ROWS, MinMax};

pub(crate) static ENTRY: Entry = Entry {
    id: "sketchml",
    summary: "quantile buckets of the non-zero elements, with bucket numbers in a MinMaxSketch",
    formula: "x̂ = the mean of the element's bucket or, after a hash collision, of a bucket with \
        smaller values; equally full buckets for each sign",
    family: Family::Hybrid,
    sparse: true,
    error_feedback: true,
    examples: &[
        "groups=4",
        "buckets=16,groups=1,rows=3,load=2,keys=bytes",
        "groups=1,code=huffman",
        "buckets=40,groups=1,rows=4,load=1",
        "groups=64,rows=1,keys=bytes",
        "code=huffman",
        "groups=1,rows=1,load=2,code=huffman",
    ],
    reference: "Jiang et al., SIGMOD 2018",
    payload: "for each sign: count varint, means f32, groups of positions and bins",
    passes: Passes::TWO,
    ..Entry::of::<SketchMl>(|_| {
        Guarantee::Neither("elements that share bins are sent with smaller values")
    })
};

crate::parameters! {
    /// Quantile buckets in a MinMaxSketch.
    pub struct SketchMl {
        /// quantile buckets on either side of zero
        buckets: usize = whole(256, 1..=MOST as u64),
        /// groups of buckets on either side; more groups mean smaller errors where elements share
        /// bins
        groups: usize = whole(8, 1..=64),
        /// rows of bins
        rows: usize = whole(2, 1..=MOST_ROWS as u64),
        /// elements per bin of a row
        load: usize = whole(5, 1..=64),
        /// positions in the shortest code, or as distances of one to four bytes
        bytes("keys"): bool = either(&["entropy", "bytes"]),
        /// bins of fixed width, or Huffman coded
        huffman("code"): bool = either(&["fixed", "huffman"]),
    }
}

/// Some consecutive buckets of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
struct BucketGroup {
    /// The number of the first bucket; buckets of negative elements are numbered from [`MOST`].
    first: usize,
    /// The number of buckets.
    size: usize,
}

impl BucketGroup {
    /// The index in the group of its last bucket.
    fn top(self) -> u8 {
        (self.size - 1) as u8
    }

    /// The decoded value of an element of a bucket.
    fn value(self, place: u8, means: &[f32; 2 * MOST]) -> f32 {
        let mean = means[self.first + usize::from(place)];
        if self.first < MOST { mean } else { -mean }
    }
}

impl SketchMl {
    fn sketch(&self) -> MinMax {
        MinMax { rows: self.rows, load: self.load, huffman: self.huffman }
    }

    /// Reserves memory for a group of all elements, so later groups allocate nothing.
    fn reserve(&self, elements: usize, places: &mut Vec<u8>, bins: &mut Vec<u16>) {
        places.clear();
        places.reserve(elements);
        bins.clear();
        bins.reserve(self.sketch().bins(elements));
    }

    /// Clears the buffers for decoding, and reserves memory for a group of all elements.
    fn make_room(&self, elements: usize, workspace: &mut Workspace) -> Result<(), DecodeError> {
        let Workspace { positions, values, symbols: bins, own, .. } = workspace;
        let GroupBuffers { keys, places, seen, .. } = own.get();
        positions.clear();
        values.clear();
        bins.clear();
        bins.try_reserve(self.sketch().bins(elements))?;
        keys.clear();
        keys.try_reserve(elements)?;
        places.clear();
        places.try_reserve(elements)?;
        seen.clear();
        try_resize(seen, elements.div_ceil(32), 0)
    }

    /// The groups of a side with `buckets` buckets.
    fn groups(&self, side: usize, buckets: usize) -> impl Iterator<Item = BucketGroup> + use<> {
        let size = buckets.div_ceil(self.groups).max(1);
        (0..buckets).step_by(size).map(move |first| BucketGroup {
            first: side * MOST + first,
            size: size.min(buckets - first),
        })
    }

    /// Appends positions.
    fn put_keys(&self, keys: &[u32], elements: usize, message: &mut Vec<u8>) {
        if self.bytes {
            varint::write(keys.len() as u64, message);
            keys::write(keys, message);
        } else {
            pack_positions(keys, elements, message);
        }
    }

    /// Reads positions off the front, at least `least` of them.
    fn take_keys(
        &self,
        message: &mut &[u8],
        least: usize,
        elements: usize,
        keys: &mut Vec<u32>,
    ) -> Result<(), DecodeError> {
        if self.bytes {
            let count = positions::take_count(message, elements)?;
            keys::read(message, count, elements, keys)?;
        } else {
            unpack_positions(message, elements, keys)?;
        }
        if keys.len() < least {
            return Err(DecodeError::Corrupt("a group has fewer elements than buckets"));
        }
        Ok(())
    }
}

/// Buffers for elements in the order of their groups; the workspace has them in the order of the
/// tensor.
#[derive(Debug, Default)]
struct GroupBuffers {
    /// Positions in the order of their groups.
    keys: Vec<u32>,
    /// The values at those positions.
    grouped: Vec<f32>,
    /// For each element of a group, the index of its bucket in the group.
    places: Vec<u8>,
    /// Working memory of the histogram.
    cells: Vec<u32>,
    /// One bit per element: whether it has been decoded.
    seen: Vec<u32>,
}

/// Moves the non-zero elements to the workspace, and reserves memory for them in the order of
/// groups.
fn gather(source: &mut Source<'_>, workspace: &mut Workspace) {
    clear(source.len(), workspace);
    sparsify(source, Selection::Above(0.0), workspace);
    let Workspace { positions, own, .. } = workspace;
    let GroupBuffers { keys, grouped, .. } = own.get();
    keys.clear();
    keys.resize(positions.len(), 0);
    grouped.clear();
    grouped.resize(positions.len(), 0.0);
}

impl Compressor for SketchMl {
    fn encode(&self, args: EncodeArgs<'_, '_>) -> Coverage {
        let EncodeArgs { source, workspace, message, .. } = args;
        let elements = source.len();
        workspace.positions.clear();
        if elements == 0 {
            return Coverage::Positions;
        }
        gather(source, workspace);
        let Workspace { positions, values, symbols: bins, coder, own, .. } = workspace;
        let GroupBuffers { keys: all_keys, grouped, places, cells, .. } = own.get();
        self.reserve(elements, places, bins);
        let buckets = Buckets::new(values, self.buckets, cells);
        let means = buckets.means(values);

        // Sorts elements by group: `ends` is the index of the next element of each group.
        let (mut group_of, mut ends, mut end) = ([0; 2 * MOST], [0; 2 * MOST], 0);
        let groups = || [0, 1].into_iter().flat_map(|side| self.groups(side, buckets.sides[side]));
        for group in groups() {
            let members = group.first..group.first + group.size;
            group_of[members.clone()].fill(group.first);
            ends[group.first] = end;
            end += buckets.counts[members].iter().sum::<usize>();
        }
        for (&position, &value) in positions.iter().zip(&*values) {
            let end = &mut ends[group_of[buckets.of(value)]];
            (all_keys[*end], grouped[*end]) = (position, value);
            *end += 1;
        }

        let (mut start, mut left) = (0, source.left());
        for side in [0, 1] {
            let all = side * MOST..side * MOST + buckets.sides[side];
            varint::write(all.len() as u64, message);
            fields::put_f32s(&means[all.clone()], message);
            for group in self.groups(side, all.len()) {
                let range = start..ends[group.first];
                start = range.end;
                let (keys, values) = (&all_keys[range.clone()], &grouped[range]);
                self.put_keys(keys, elements, message);
                places.clear();
                places.extend(values.iter().map(|&x| (buckets.of(x) - group.first) as u8));
                self.sketch().write(keys, places, group.top(), (bins, coder), message);
                if let Some(left) = &mut left {
                    for ((&key, &value), &place) in keys.iter().zip(values).zip(&*places) {
                        left[key as usize] = value - group.value(place, &means);
                    }
                }
            }
        }
        Coverage::Positions
    }

    fn decode_add(&self, args: DecodeArgs<'_>) -> Result<(), DecodeError> {
        let DecodeArgs { mut message, weight, workspace, out, .. } = args;
        let elements = out.len();
        if elements == 0 {
            return fields::expect_len(message, 0);
        }
        self.make_room(elements, workspace)?;
        let Workspace { positions, values, symbols: bins, coder, own, .. } = workspace;
        let GroupBuffers { keys, places, seen, .. } = own.get();
        let mut means = [0.0; 2 * MOST];
        for side in [0, 1] {
            let buckets = varint::read(&mut message)?;
            if buckets > self.buckets as u64 {
                return Err(DecodeError::Corrupt("there are more buckets than configured"));
            }
            take_means(&mut message, &mut means[side * MOST..][..buckets as usize])?;
            for group in self.groups(side, buckets as usize) {
                self.take_keys(&mut message, group.size, elements, keys)?;
                for &key in keys.iter() {
                    let (word, bit) = (&mut seen[key as usize / 32], 1 << (key % 32));
                    if *word & bit != 0 {
                        return Err(DecodeError::Corrupt("an element is sent twice"));
                    }
                    *word |= bit;
                }
                self.sketch().read(&mut message, keys, group.top(), (bins, coder), places)?;
                positions.try_reserve(keys.len())?;
                positions.extend_from_slice(keys);
                values.try_reserve(keys.len())?;
                values.extend(places.iter().map(|&place| weight * group.value(place, &means)));
            }
        }
        fields::expect_len(message, 0)?;
        desparsify(positions, values, 1.0, out);
        Ok(())
    }

    fn max_len(&self, elements: usize) -> usize {
        let lists = 2 * self.groups;
        let heads = 2 * (varint::len(MOST as u64) + 4 * self.buckets)
            + lists * (1 + varint::len(elements as u64));
        let keys = if self.bytes {
            keys::max_len(elements, lists)
        } else {
            // The shortest code is at most as long as any other.
            elements.saturating_mul(4).min(lists.saturating_mul(bitmap::len(elements)))
        };
        let top = (self.buckets.div_ceil(self.groups) - 1) as u8;
        (heads + self.sketch().max_len(elements, lists, top)).saturating_add(keys)
    }
}

/// Reads the means of a side's buckets, which are above 0 and do not decrease.
fn take_means(message: &mut &[u8], means: &mut [f32]) -> Result<(), DecodeError> {
    let mut least = f32::from_bits(1);
    for mean in means {
        *mean = fields::take_finite(message)?;
        if *mean < least {
            return Err(DecodeError::Corrupt("the means are not positive and increasing"));
        }
        least = *mean;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
