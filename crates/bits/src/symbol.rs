//! Symbols of one and of two bytes.

/// A symbol of an alphabet.
pub(crate) trait Symbol: Copy {
    /// The place in the alphabet.
    fn index(self) -> usize;

    /// The symbol at a place in its alphabet.
    fn at(index: u16) -> Self;
}

impl Symbol for u16 {
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }

    #[inline(always)]
    fn at(index: u16) -> Self {
        index
    }
}

impl Symbol for u8 {
    #[inline(always)]
    fn index(self) -> usize {
        self.into()
    }

    #[inline(always)]
    fn at(index: u16) -> Self {
        index as u8
    }
}
