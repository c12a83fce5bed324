//! Bytes in memory at an address that every type of element accepts.

/// Bytes that start at a multiple of 8, so they can be read as elements of any type.
#[derive(Debug, Clone, Default)]
pub struct Buffer {
    words: Vec<u64>,
    len: usize,
}

impl Buffer {
    /// Zeros.
    pub fn zeros(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(8)], len }
    }

    /// The number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Changes the length. The content of added bytes is not specified.
    pub fn resize(&mut self, len: usize) {
        self.grow(len);
    }

    /// Removes all bytes and keeps the memory.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Appends bytes. They start at a multiple of `width` if all appended pieces are multiples of
    /// it.
    pub fn extend(&mut self, bytes: &[u8]) {
        let start = self.len;
        self.grow(start + bytes.len());
        self[start..].copy_from_slice(bytes);
    }

    /// Appends zeros up to a multiple of 8.
    pub fn align(&mut self) {
        let start = self.len;
        self.grow(start.next_multiple_of(8));
        self[start..].fill(0);
    }

    fn grow(&mut self, len: usize) {
        let words = len.div_ceil(8);
        if self.words.len() < words {
            self.words.reserve(words - self.words.len());
            self.words.resize(words, 0);
        }
        self.len = len;
    }
}

impl From<&[u8]> for Buffer {
    fn from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeros(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }
}

impl std::ops::Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &bytemuck::cast_slice(&self.words)[..self.len]
    }
}

impl std::ops::DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut bytemuck::cast_slice_mut(&mut self.words)[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_follow_each_other_at_multiples_of_eight() {
        let mut buffer = Buffer::from(&[1u8, 2, 3][..]);
        buffer.align();
        buffer.extend(&[4; 9]);
        assert_eq!(&buffer[..], [1, 2, 3, 0, 0, 0, 0, 0, 4, 4, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!(buffer.as_ptr() as usize % 8, 0);
        buffer.clear();
        buffer.extend(&[9]);
        buffer.align();
        assert_eq!(&buffer[..], [9, 0, 0, 0, 0, 0, 0, 0]);
    }
}
