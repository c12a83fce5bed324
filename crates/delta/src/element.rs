//! Types of elements, as the files of weights name them.

/// The type of a tensor's elements. Its name is the one of the safetensors format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum ElementType {
    /// Unsigned integers of 8 bits; also packed elements of 4 bits, two a byte.
    U8 = 0,
    /// Signed integers of 8 bits.
    I8 = 1,
    /// A byte that is 0 or 1.
    Bool = 2,
    /// Floats of 8 bits: 4 of exponent, 3 of mantissa.
    F8E4m3 = 3,
    /// Floats of 8 bits: 5 of exponent, 2 of mantissa.
    F8E5m2 = 4,
    /// Unsigned integers of 16 bits.
    U16 = 5,
    /// Signed integers of 16 bits.
    I16 = 6,
    /// IEEE 754 binary16.
    F16 = 7,
    /// bfloat16: the upper half of a binary32.
    Bf16 = 8,
    /// Unsigned integers of 32 bits.
    U32 = 9,
    /// Signed integers of 32 bits.
    I32 = 10,
    /// IEEE 754 binary32.
    F32 = 11,
    /// Unsigned integers of 64 bits.
    U64 = 12,
    /// Signed integers of 64 bits.
    I64 = 13,
    /// IEEE 754 binary64.
    F64 = 14,
}

/// What gradwire needs to know of a type: its name and its bits.
struct Facts {
    name: &'static str,
    width: usize,
    exponent_bits: u32,
}

impl ElementType {
    /// All types, in the order of their codes.
    pub const ALL: [ElementType; 15] = {
        use ElementType::*;
        [U8, I8, Bool, F8E4m3, F8E5m2, U16, I16, F16, Bf16, U32, I32, F32, U64, I64, F64]
    };

    const fn facts(self) -> Facts {
        let (name, width, exponent_bits) = match self {
            ElementType::U8 => ("U8", 1, 0),
            ElementType::I8 => ("I8", 1, 0),
            ElementType::Bool => ("BOOL", 1, 0),
            ElementType::F8E4m3 => ("F8_E4M3", 1, 4),
            ElementType::F8E5m2 => ("F8_E5M2", 1, 5),
            ElementType::U16 => ("U16", 2, 0),
            ElementType::I16 => ("I16", 2, 0),
            ElementType::F16 => ("F16", 2, 5),
            ElementType::Bf16 => ("BF16", 2, 8),
            ElementType::U32 => ("U32", 4, 0),
            ElementType::I32 => ("I32", 4, 0),
            ElementType::F32 => ("F32", 4, 8),
            ElementType::U64 => ("U64", 8, 0),
            ElementType::I64 => ("I64", 8, 0),
            ElementType::F64 => ("F64", 8, 11),
        };
        Facts { name, width, exponent_bits }
    }

    /// The name in safetensors files, such as `BF16`.
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The type with this name in safetensors files.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.name() == name)
    }

    /// The byte that stands for the type in a delta.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type of a byte in a delta.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Bytes of an element: 1, 2, 4 or 8.
    pub const fn width(self) -> usize {
        self.facts().width
    }

    /// Bits of the exponent; 0 for integers.
    pub const fn exponent_bits(self) -> u32 {
        self.facts().exponent_bits
    }

    /// Bits of the mantissa below the exponent; 0 for integers.
    pub const fn mantissa_bits(self) -> u32 {
        match self.exponent_bits() {
            0 => 0,
            exponent => 8 * self.width() as u32 - 1 - exponent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_names_lead_back() {
        for element in ElementType::ALL {
            assert_eq!(ElementType::from_code(element.code()), Some(element));
            assert_eq!(ElementType::from_name(element.name()), Some(element));
        }
        assert_eq!(ElementType::from_code(15), None);
        assert_eq!(ElementType::from_name("F4"), None);
    }

    #[test]
    fn bits_by_hand() {
        // 1.0 has the biased exponent 127 in bf16, 15 in f16, 7 in e4m3 and 15 in e5m2.
        let patterns: [(_, u64, _); 6] = [
            (ElementType::Bf16, 0x3f80, 127),
            (ElementType::F16, 0x3c00, 15),
            (ElementType::F8E4m3, 0x38, 7),
            (ElementType::F8E5m2, 0x3c, 15),
            (ElementType::F32, 0x3f80_0000, 127),
            (ElementType::F64, 0x3ff0_0000_0000_0000, 1023),
        ];
        for (element, one, exponent) in patterns {
            assert_eq!(one >> element.mantissa_bits(), exponent, "{}", element.name());
        }
        assert_eq!(ElementType::I32.mantissa_bits(), 0);
    }
}
