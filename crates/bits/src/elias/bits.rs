//! The bits of one number's code. The compiler computes tables of codes with these functions.

/// One of the three codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Elias {
    /// γ, with the length in unary.
    Gamma = 0,
    /// δ, with the length in γ.
    Delta = 1,
    /// ω, with the length in ω.
    Omega = 2,
}

/// The lowest `width` bits in reverse order.
pub(super) const fn reversed(value: u64, width: u32) -> u64 {
    if width == 0 { 0 } else { value.reverse_bits() >> (64 - width) }
}

impl Elias {
    /// The bits of a number's code, the first one lowest, and their count; for tables.
    ///
    /// # Panics
    /// If the number is 0, which has no code.
    pub const fn bits(self, value: u64) -> (u128, u32) {
        let below = value.ilog2();
        match self {
            Elias::Gamma => ((reversed(value, below + 1) as u128) << below, 2 * below + 1),
            Elias::Delta => {
                let (length, width) = Elias::Gamma.bits(below as u64 + 1);
                (length | (reversed(value, below) as u128) << width, width + below)
            }
            Elias::Omega => {
                let (mut bits, mut width, mut group) = (0, 1, value);
                while group > 1 {
                    let size = group.ilog2() + 1;
                    bits = bits << size | reversed(group, size) as u128;
                    width += size;
                    group = size as u64 - 1;
                }
                (bits, width)
            }
        }
    }

    /// The number whose code comes first, and the code's width; 0 if it has more than `most` bits,
    /// at most 63.
    pub(super) const fn parse(self, bits: u64, most: u32) -> (u64, u32) {
        let (value, width) = match self {
            Elias::Gamma => {
                let below = if bits == 0 { most } else { bits.trailing_zeros() };
                (reversed(bits >> below, below + 1), 2 * below + 1)
            }
            Elias::Delta => {
                let (length, width) = Elias::Gamma.parse(bits, most);
                if width == 0 {
                    return (0, 0);
                }
                let below = length as u32 - 1;
                (1 << below | reversed(bits >> width, below), width + below)
            }
            Elias::Omega => {
                let (mut value, mut width) = (1, 0);
                while width < most && bits >> width & 1 == 1 {
                    let size = value as u32 + 1;
                    value = reversed(bits >> width, size);
                    width += size;
                }
                (value, width + 1)
            }
        };
        if width <= most { (value, width) } else { (0, 0) }
    }
}
