//! Elements as unsigned integers, and the differences of their bit patterns.

/// An unsigned integer as wide as an element.
pub(super) trait Word: Copy + PartialEq + 'static {
    /// Bytes of an element.
    const BYTES: usize;

    /// The elements of little-endian bytes.
    fn all(bytes: &[u8]) -> impl Iterator<Item = Self>;

    /// One of these elements.
    fn at(bytes: &[u8], index: usize) -> Self;

    /// Appends its bytes.
    fn push(self, out: &mut Vec<u8>);

    /// The element as a wider integer.
    fn wide(self) -> u64;

    /// How far `new` is from `self`, modulo 2^bits: whether below, and how many units.
    fn difference(self, new: Self) -> Difference;

    /// The element so many units from `self`; `None` if they are more than half of 2^bits.
    fn moved(self, difference: Difference) -> Option<Self>;
}

/// A difference of two integers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Difference {
    pub(super) below: bool,
    /// The absolute value.
    pub(super) units: u64,
}

macro_rules! word {
    ($unsigned:ty, $signed:ty) => {
        impl Word for $unsigned {
            const BYTES: usize = size_of::<Self>();

            fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
                bytes.as_chunks().0.iter().map(|bytes| Self::from_le_bytes(*bytes))
            }

            #[inline(always)]
            fn at(bytes: &[u8], index: usize) -> Self {
                Self::from_le_bytes(bytes.as_chunks().0[index])
            }

            #[inline(always)]
            fn push(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn difference(self, new: Self) -> Difference {
                let difference = new.wrapping_sub(self) as $signed;
                Difference { below: difference < 0, units: difference.unsigned_abs().into() }
            }

            #[inline(always)]
            fn moved(self, difference: Difference) -> Option<Self> {
                let units = difference.units as Self;
                let half = 1 << (Self::BITS - 1);
                let most = half - Self::from(!difference.below);
                let fits = u64::from(units) == difference.units && units <= most;
                let all = Self::from(difference.below).wrapping_neg();
                fits.then_some(self.wrapping_add((units ^ all).wrapping_sub(all)))
            }
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);
