//! Parts in which many elements changed: the difference of every element, class by class.
//!
//! The code starts with the cuts between classes, as in a [sparse](super::sparse) part, padded to
//! whole bytes. For each class follow the differences of its elements, as zigzag numbers of the
//! width of an element, in [planes](gradwire_bits::planes).

use gradwire_bits::kernels::{
    BEHIND, CLASSES, Octaves, add_zigzags, class_join, class_sizes, class_split, zigzags,
};
use gradwire_bits::planes::Layout;
use gradwire_bits::{BitReader, BitWriter, DecodeError, expect_len, try_resize};

use super::coder::{BLOCK, Coder, octaves};
use super::compare::{Pair, sample};
use super::cuts::Histogram;
use super::{form, sparse};
use crate::ElementType;

impl Coder {
    /// Appends the form difference; in one class if it shall be portable.
    pub(super) fn encode_difference(
        &mut self,
        element: ElementType,
        pair: Pair<'_>,
        portable: bool,
        out: &mut Vec<u8>,
    ) {
        out.push(form::DIFFERENCE);
        let octaves = octaves(element).filter(|_| !portable).map(|octaves| {
            let last = cuts(&sample(pair.base, &octaves), pair.base.len() / octaves.width);
            Octaves { last, ..octaves }
        });
        let mut writer = BitWriter::new(out);
        match &octaves {
            Some(octaves) => sparse::write_cuts(octaves, &mut writer),
            None => sparse::write_no_cuts(&mut writer),
        }
        writer.finish();
        let width = element.width();
        let lists = Lists::new(octaves, width, pair.base);
        self.whole.resize(lists.end(), 0);
        lists.split(pair, &mut self.block, &mut self.whole);
        for list in 0..lists.used() {
            self.planes.encode(Layout::integers(width), &self.whole[lists.range(list)], out);
        }
    }

    /// Decodes the form difference; the elements are then in `values`.
    pub(super) fn decode_difference(
        &mut self,
        element: ElementType,
        base: &[u8],
        code: &[u8],
    ) -> Result<(), DecodeError> {
        let (mut reader, mut octaves) = (BitReader::new(code), octaves(element));
        match &mut octaves {
            Some(octaves) => sparse::read_cuts(&mut reader, octaves)?,
            None => sparse::read_no_cuts(&mut reader)?,
        }
        let (mut code, width) = (&code[reader.finish()?..], element.width());
        let lists = Lists::new(octaves, width, base);
        try_resize(&mut self.whole, lists.end(), 0)?;
        try_resize(&mut self.values, base.len(), 0)?;
        try_resize(&mut self.block, BLOCK * width, 0)?;
        for list in 0..lists.used() {
            let list = &mut self.whole[lists.range(list)];
            code = &code[self.planes.decode(Layout::integers(width), code, list)?..];
        }
        expect_len(code, 0)?;
        lists.join(base, &mut self.block, &self.whole, &mut self.values);
        Ok(())
    }
}

/// The places of the differences of a part, class by class.
struct Lists {
    /// `None` if all elements are in one class.
    octaves: Option<Octaves>,
    width: usize,
    /// The number of elements of each class.
    sizes: [u32; CLASSES],
}

impl Lists {
    fn new(octaves: Option<Octaves>, width: usize, base: &[u8]) -> Self {
        let sizes = match octaves {
            Some(octaves) => class_sizes(&octaves, base),
            None => [(base.len() / width) as u32, 0, 0, 0, 0, 0, 0, 0],
        };
        Self { octaves, width, sizes }
    }

    /// The number of lists.
    fn used(&self) -> usize {
        self.octaves.map_or(1, |octaves| octaves.used())
    }

    /// Where each list starts, in elements. There is room behind each.
    fn starts(&self) -> [usize; CLASSES] {
        let room = BEHIND / self.width;
        let before =
            |class: usize| self.sizes[..class].iter().map(|&size| size as usize).sum::<usize>();
        core::array::from_fn(|class| class * room + before(class))
    }

    /// The bytes of a list.
    fn range(&self, list: usize) -> core::ops::Range<usize> {
        let start = self.width * self.starts()[list];
        start..start + self.width * self.sizes[list] as usize
    }

    /// The bytes of all lists.
    fn end(&self) -> usize {
        self.range(self.used() - 1).end + BEHIND
    }

    /// Writes the differences of two versions to the lists. `block` is working memory.
    fn split(&self, Pair { base, new }: Pair<'_>, block: &mut Vec<u8>, lists: &mut [u8]) {
        let Some(octaves) = &self.octaves else {
            return zigzags(self.width, base, new, &mut lists[..base.len()]);
        };
        block.resize(BLOCK * self.width, 0);
        let (mut next, len) = (self.starts(), block.len());
        for (base, new) in base.chunks(len).zip(new.chunks(len)) {
            let moves = &mut block[..base.len()];
            zigzags(self.width, base, new, moves);
            class_split(octaves, base, moves, &mut next, lists);
        }
    }

    /// Adds the differences in the lists to the elements of a base.
    fn join(&self, base: &[u8], block: &mut [u8], lists: &[u8], values: &mut [u8]) {
        let Some(octaves) = &self.octaves else {
            return add_zigzags(self.width, base, &lists[..base.len()], values);
        };
        let (mut next, len) = (self.starts(), block.len());
        for (base, values) in base.chunks(len).zip(values.chunks_mut(len)) {
            let moves = &mut block[..base.len()];
            class_join(octaves, base, lists, &mut next, moves);
            add_zigzags(self.width, base, moves, values);
        }
    }
}

/// The elements for which a class pays.
const PAYS: usize = 1 << 11;

/// The last octaves of classes for a part of `len` elements: each of the octaves with the largest
/// elements is a class, as far as there are enough elements.
fn cuts(sample: &Histogram, len: usize) -> [u8; CLASSES - 1] {
    let sampled = sample.iter().map(|&count| count as usize).sum::<usize>();
    let mut above = 0;
    let highest = (0..256).rev().find(|&octave| {
        above += sample[octave] as usize;
        64 * above > sampled
    });
    let (highest, mut last) = (highest.unwrap_or(0), [255; CLASSES - 1]);
    let classes = (len / PAYS).checked_ilog2().unwrap_or(0).min(CLASSES as u32 - 1) as usize;
    for (at, last) in last[..classes.min(highest)].iter_mut().enumerate() {
        *last = (highest - classes.min(highest) + at) as u8;
    }
    last
}
