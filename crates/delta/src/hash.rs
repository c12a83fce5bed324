//! The hash of a state, which finds damage and mistakes, not attackers.

use std::ops::{Add, AddAssign, Sub, SubAssign};

/// The hash of a state, of a tensor, or of a change between two of them: two lanes of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct StateHash(pub [u64; 2]);

impl StateHash {
    /// The bytes of both lanes, little-endian.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }

    /// The hash of these bytes.
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let (lanes, _) = bytes.as_chunks::<8>();
        Self([u64::from_le_bytes(lanes[0]), u64::from_le_bytes(lanes[1])])
    }
}

impl Add for StateHash {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self([0, 1].map(|lane| self.0[lane].wrapping_add(other.0[lane])))
    }
}

impl Sub for StateHash {
    type Output = Self;

    fn sub(self, other: Self) -> Self {
        Self([0, 1].map(|lane| self.0[lane].wrapping_sub(other.0[lane])))
    }
}

impl AddAssign for StateHash {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl SubAssign for StateHash {
    fn sub_assign(&mut self, other: Self) {
        *self = *self - other;
    }
}

impl std::iter::Sum for StateHash {
    fn sum<I: Iterator<Item = Self>>(hashes: I) -> Self {
        hashes.fold(Self::default(), Add::add)
    }
}

/// 32 hexadecimal digits.
impl std::fmt::Display for StateHash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}{:016x}", self.0[0], self.0[1])
    }
}
