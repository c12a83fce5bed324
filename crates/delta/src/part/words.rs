//! Elements as unsigned integers, and the differences of their bit patterns.

/// An unsigned integer as wide as an element.
pub(super) trait Word: Copy + PartialEq + 'static {
    /// Bytes of an element.
    const BYTES: usize;

    /// The elements of little-endian bytes.
    fn all(bytes: &[u8]) -> impl Iterator<Item = Self>;

    /// One of these elements.
    fn at(bytes: &[u8], index: usize) -> Self;

    /// Writes its bytes.
    fn write(self, bytes: &mut [u8]);

    /// The integer of the lowest bits.
    fn narrow(wide: u64) -> Self;

    /// The element as a wider integer.
    fn wide(self) -> u64;

    /// The difference `new` − `self` modulo 2^bits as a zigzag number: 0 if they are equal, 1 for
    /// −1, 2 for 1, 3 for −2 and so on.
    fn zigzag(self, new: Self) -> u64;

    /// The element with this difference from `self`, a zigzag number.
    fn plus(self, zigzag: Self) -> Self;

    /// The element with this difference from `self`; `None` if the difference is 0 or has more
    /// bits than an element.
    fn changed(self, zigzag: u64) -> Option<Self>;
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
            fn write(self, bytes: &mut [u8]) {
                bytes.copy_from_slice(&self.to_le_bytes());
            }

            #[inline(always)]
            fn narrow(wide: u64) -> Self {
                wide as Self
            }

            #[inline(always)]
            fn wide(self) -> u64 {
                self.into()
            }

            #[inline(always)]
            fn zigzag(self, new: Self) -> u64 {
                let difference = new.wrapping_sub(self) as $signed;
                u64::from((difference << 1 ^ difference >> (Self::BITS - 1)) as Self)
            }

            #[inline(always)]
            fn plus(self, zigzag: Self) -> Self {
                self.wrapping_add(zigzag >> 1 ^ (zigzag & 1).wrapping_neg())
            }

            #[inline(always)]
            fn changed(self, zigzag: u64) -> Option<Self> {
                let low = zigzag as Self;
                let fits = zigzag != 0 && u64::from(low) == zigzag;
                fits.then_some(self.plus(low))
            }
        }
    };
}

word!(u8, i8);
word!(u16, i16);
word!(u32, i32);
word!(u64, i64);
