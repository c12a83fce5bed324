//! Input and output of kernels.

use alloc::vec::Vec;
use core::fmt;
use core::ops::{Deref, DerefMut};

/// The input of a kernel: slices of one length at one alignment, and two numbers.
pub struct Input {
    words: Vec<u32>,
    pub(in crate::kernels) len: usize,
    offset: usize,
    pub(in crate::kernels) x: f32,
    pub(in crate::kernels) y: f32,
}

/// Without the words, which are too many.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len, offset, x, y, .. } = self;
        write!(f, "{len} elements at offset {offset}, x = {x:e}, y = {y:e}")
    }
}

impl Input {
    /// Slices of `len` elements, each `offset` elements after a multiple of 64 bytes. Their values
    /// are `words`, repeated if shorter; 0 if empty.
    pub fn new(words: &[u32], len: usize, offset: usize, [x, y]: [f32; 2]) -> Self {
        let words = if words.is_empty() { &[0] } else { words };
        Self { words: words.to_vec(), len, offset, x, y }
    }

    pub(in crate::kernels) fn word(&self, at: usize) -> u32 {
        self.words[at % self.words.len()]
    }

    /// Two words.
    pub(in crate::kernels) fn wide(&self, at: usize) -> u64 {
        u64::from(self.word(at + 1)) << 32 | u64::from(self.word(at))
    }

    /// Elements of any type, by their index.
    pub(in crate::kernels) fn elements<T: Copy>(
        &self,
        len: usize,
        mut element: impl FnMut(usize) -> T,
    ) -> Shifted<T> {
        Shifted::new(self.offset, len, &mut element)
    }

    /// Elements that are 0, for output.
    pub(in crate::kernels) fn zeros<T: Copy + Default>(&self) -> Shifted<T> {
        self.elements(self.len, |_| T::default())
    }

    pub(in crate::kernels) fn floats(&self) -> Shifted<f32> {
        self.elements(self.len, |at| f32::from_bits(self.word(at)))
    }

    /// Floats that differ from [`floats`](Self::floats).
    pub(in crate::kernels) fn more(&self) -> Shifted<f32> {
        self.elements(self.len, |at| f32::from_bits(self.word(3 * at + 1)))
    }

    /// Random words that do not depend on the values.
    pub(in crate::kernels) fn draws(&self) -> Shifted<u32> {
        self.elements(self.len, |at| (self.word(at) ^ at as u32).wrapping_mul(2_654_435_761))
    }

    pub(in crate::kernels) fn bytes(&self) -> Shifted<u8> {
        self.elements(self.len, |at| self.word(at) as u8)
    }

    pub(in crate::kernels) fn symbols(&self) -> Shifted<u16> {
        self.elements(self.len, |at| self.word(at) as u16)
    }
}

/// A slice that starts some elements after a multiple of 64 bytes. It ends with its memory, so
/// tools find accesses past it.
pub(in crate::kernels) struct Shifted<T> {
    elements: Vec<T>,
    start: usize,
}

impl<T: Copy> Shifted<T> {
    fn new(offset: usize, len: usize, element: &mut dyn FnMut(usize) -> T) -> Self {
        let mut elements: Vec<T> = Vec::with_capacity(64 + offset + len);
        // Under Miri the offset may be unknown.
        let start = elements.as_ptr().align_offset(64).min(64) + offset;
        if start + len > 0 {
            elements.resize(start, element(0));
        }
        elements.extend((0..len).map(element));
        Self { elements, start }
    }
}

impl<T> Deref for Shifted<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.elements[self.start..]
    }
}

impl<T> DerefMut for Shifted<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        &mut self.elements[self.start..]
    }
}

/// The results of a kernel, as words.
#[derive(Debug, Default)]
pub struct Output(Vec<u32>);

impl Output {
    /// Bits that are integers, or floats that were moved.
    pub(in crate::kernels) fn bits(&mut self, words: impl IntoIterator<Item = impl Into<u32>>) {
        self.0.extend(words.into_iter().map(Into::into));
    }

    /// Bits in words.
    pub(in crate::kernels) fn words(&mut self, words: &[u64]) {
        self.bits(words.iter().flat_map(|&word| [word as u32, (word >> 32) as u32]));
    }

    /// Floats that were moved: every bit counts.
    pub(in crate::kernels) fn moved(&mut self, values: &[f32]) {
        self.bits(values.iter().map(|x| x.to_bits()));
    }

    /// Floats that were computed. The language leaves open which NaN an operation gives.
    pub(in crate::kernels) fn computed(&mut self, values: &[f32]) {
        self.bits(values.iter().map(|x| if x.is_nan() { f32::NAN } else { *x }.to_bits()));
    }

    /// Symbols of values times `factor`, and the remaining values. A NaN has any symbol.
    pub(in crate::kernels) fn symbols<T: Copy + Into<u32>>(
        &mut self,
        (values, factor): (&[f32], f32),
        left: &[f32],
        symbols: &[T],
    ) {
        for ((x, left), &symbol) in values.iter().zip(left).zip(symbols) {
            if !(x * factor).is_nan() {
                self.computed(&[*left]);
                self.bits([symbol]);
            }
        }
    }

    /// A computed float in double precision, or a count.
    pub(in crate::kernels) fn wide(&mut self, value: f64) {
        let bits = if value.is_nan() { f64::NAN } else { value }.to_bits();
        self.words(&[bits]);
    }

    /// The first word that differs.
    pub(in crate::kernels) fn difference(&self, other: &Self) -> Option<usize> {
        let differs = self.0.iter().zip(&other.0).position(|(a, b)| a != b);
        differs.or((self.0.len() != other.0.len()).then(|| self.0.len().min(other.0.len())))
    }
}
