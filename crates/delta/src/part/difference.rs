//! Parts in which many elements changed: the difference of every element, class by class.
//!
//! The code starts with the cuts between classes, as in a [sparse](super::sparse) part, padded to
//! whole bytes. For each class follow the differences of its elements, as zigzag numbers of the
//! width of an element, in [planes](gradwire_bits::planes).

use gradwire_bits::kernels::{CLASSES, Octaves, class_counts};
use gradwire_bits::planes::Layout;
use gradwire_bits::{BitReader, BitWriter, DecodeError, expect_len, try_resize};

use super::coder::{Coder, octaves};
use super::compare::{Pair, sample};
use super::cuts::Histogram;
use super::words::Word;
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
        let sizes = match element.width() {
            1 => self.sort_differences::<u8>(octaves, pair),
            2 => self.sort_differences::<u16>(octaves, pair),
            4 => self.sort_differences::<u32>(octaves, pair),
            _ => self.sort_differences::<u64>(octaves, pair),
        };
        let mut rest = &self.whole[..];
        for size in sizes {
            let (class, after) = rest.split_at(size as usize * element.width());
            self.planes.encode(Layout::integers(element.width()), class, out);
            rest = after;
        }
    }

    /// Writes the differences class by class to `whole`, and returns the sizes of the classes.
    fn sort_differences<T: Word>(
        &mut self,
        octaves: Option<Octaves>,
        Pair { base, new }: Pair<'_>,
    ) -> [u32; CLASSES] {
        self.counts.resize((base.len() / T::BYTES).div_ceil(64), 0);
        self.whole.resize(base.len(), 0);
        let sizes = sizes::<T>(octaves, base, &mut self.counts);
        let mut order = Order::new(octaves, &sizes);
        for (old, new) in T::all(base).zip(T::all(new)) {
            let start = order.next(old.wide()) * T::BYTES;
            T::narrow(old.zigzag(new)).write(&mut self.whole[start..start + T::BYTES]);
        }
        sizes
    }

    /// Decodes the form difference; the elements are then in `values`.
    pub(super) fn decode_difference<T: Word>(
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
        let mut code = &code[reader.finish()?..];
        try_resize(&mut self.counts, (base.len() / T::BYTES).div_ceil(64), 0)?;
        try_resize(&mut self.whole, base.len(), 0)?;
        try_resize(&mut self.values, base.len(), 0)?;
        let sizes = sizes::<T>(octaves, base, &mut self.counts);
        let mut rest = &mut self.whole[..];
        for size in sizes {
            let (class, after) = rest.split_at_mut(size as usize * T::BYTES);
            code = &code[self.planes.decode(Layout::integers(T::BYTES), code, class)?..];
            rest = after;
        }
        expect_len(code, 0)?;
        let mut order = Order::new(octaves, &sizes);
        for (old, value) in T::all(base).zip(self.values.chunks_exact_mut(T::BYTES)) {
            let difference = T::at(&self.whole, order.next(old.wide()));
            old.plus(difference).write(value);
        }
        Ok(())
    }
}

/// The number of elements of each class.
fn sizes<T: Word>(octaves: Option<Octaves>, base: &[u8], counts: &mut [u64]) -> [u32; CLASSES] {
    match octaves {
        Some(octaves) => class_counts(&octaves, base, counts),
        None => [(base.len() / T::BYTES) as u32, 0, 0, 0, 0, 0, 0, 0],
    }
}

/// The places of elements, class by class.
struct Order {
    octaves: Option<Octaves>,
    classes: [u8; 256],
    next: [usize; CLASSES],
}

impl Order {
    fn new(octaves: Option<Octaves>, sizes: &[u32; CLASSES]) -> Self {
        let classes = octaves.map_or([0; 256], |octaves| octaves.classes());
        let start = |class: usize| sizes[..class].iter().map(|&size| size as usize).sum();
        Self { octaves, classes, next: core::array::from_fn(start) }
    }

    /// The place of the next element.
    #[inline(always)]
    fn next(&mut self, element: u64) -> usize {
        let octave = self.octaves.map_or(0, |octaves| octaves.of(element));
        let next = &mut self.next[usize::from(self.classes[usize::from(octave)]) % CLASSES];
        *next += 1;
        *next - 1
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
