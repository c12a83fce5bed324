//! Planes of elements: plane k has byte k of each element, little-endian.
//!
//! The bits of an element are rotated before, so the uppermost plane can begin with a float's
//! exponent.

use super::{cases, kernel};

/// Defines the kernels for elements of one width.
macro_rules! planes {
    ($split:ident, $join:ident, $word:ty, $width:literal) => {
        kernel! {
            /// Rotates the bits of each element to the left, and writes its bytes to the planes.
            ///
            /// # Panics
            /// If the elements and the planes have different lengths.
            pub fn $split(elements: &[[u8; $width]], rotation: u32, planes: [&mut [u8]; $width]) {
                for (at, plane) in planes.into_iter().enumerate() {
                    assert_eq!(plane.len(), elements.len());
                    for (element, byte) in elements.iter().zip(plane) {
                        let word = <$word>::from_le_bytes(*element).rotate_left(rotation);
                        *byte = (word >> (8 * at)) as u8;
                    }
                }
            }
        }
        kernel! {
            /// The reverse.
            ///
            /// # Panics
            /// If the elements and the planes have different lengths.
            pub fn $join(planes: [&[u8]; $width], rotation: u32, elements: &mut [[u8; $width]]) {
                let len = elements.len();
                let planes = planes.map(|plane| {
                    assert_eq!(plane.len(), len);
                    &plane[..len]
                });
                for (at, element) in elements.iter_mut().enumerate() {
                    let word = planes.iter().rev().fold(0, |word: $word, plane| {
                        word << 8 | <$word>::from(plane[at])
                    });
                    *element = word.rotate_right(rotation).to_le_bytes();
                }
            }
        }
    };
}

planes!(split_2, join_2, u16, 2);
planes!(split_4, join_4, u32, 4);
planes!(split_8, join_8, u64, 8);

cases![
    ("split_2", |input, output| splits(split_2, input, output)),
    ("join_2", |input, output| joins(join_2, input, output)),
    ("split_4", |input, output| splits(split_4, input, output)),
    ("join_4", |input, output| joins(join_4, input, output)),
    ("split_8", |input, output| splits(split_8, input, output)),
    ("join_8", |input, output| joins(join_8, input, output)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_by_hand() {
        // The binary32 numbers 1 and -1.5, with the sign moved to the end.
        let elements = [[0, 0, 0x80, 0x3f], [0, 0, 0xc0, 0xbf]];
        let [mut a, mut b, mut c, mut d] = [[9; 2]; 4];
        split_4(&elements, 1, [&mut a, &mut b, &mut c, &mut d]);
        assert_eq!([a, b, c, d], [[0, 1], [0, 0], [0, 0x80], [127, 127]]);
        let mut back = [[9; 4]; 2];
        join_4([&a, &b, &c, &d], 1, &mut back);
        assert_eq!(back, elements);
        let mut planes = [[9]; 8];
        split_8(&[[0, 1, 2, 3, 4, 5, 6, 7]], 0, planes.each_mut().map(|plane| &mut plane[..]));
        assert_eq!(planes.as_flattened(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
