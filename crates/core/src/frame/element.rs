//! The element types of tensors in files.

use std::fmt;

use crate::Dtype;

/// The type of a tensor's elements, as in
/// [safetensors](https://github.com/huggingface/safetensors). Its value is the code in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum ElementType {
    F32 = 0,
    F16 = 1,
    Bf16 = 2,
    F64 = 3,
    /// Two `F32`, real and imaginary part.
    C64 = 4,
    /// A byte, 0 or 1.
    Bool = 5,
    U8 = 6,
    I8 = 7,
    U16 = 8,
    I16 = 9,
    U32 = 10,
    I32 = 11,
    U64 = 12,
    I64 = 13,
    F8E4M3 = 14,
    F8E5M2 = 15,
    F8E8M0 = 16,
    F8E4M3Fnuz = 17,
    F8E5M2Fnuz = 18,
    F6E2M3 = 19,
    F6E3M2 = 20,
    F4 = 21,
}

/// Every type with its name and the bits of an element, in order of codes.
const TABLE: [(ElementType, &str, usize); 22] = [
    (ElementType::F32, "f32", 32),
    (ElementType::F16, "f16", 16),
    (ElementType::Bf16, "bf16", 16),
    (ElementType::F64, "f64", 64),
    (ElementType::C64, "c64", 64),
    (ElementType::Bool, "bool", 8),
    (ElementType::U8, "u8", 8),
    (ElementType::I8, "i8", 8),
    (ElementType::U16, "u16", 16),
    (ElementType::I16, "i16", 16),
    (ElementType::U32, "u32", 32),
    (ElementType::I32, "i32", 32),
    (ElementType::U64, "u64", 64),
    (ElementType::I64, "i64", 64),
    (ElementType::F8E4M3, "f8_e4m3", 8),
    (ElementType::F8E5M2, "f8_e5m2", 8),
    (ElementType::F8E8M0, "f8_e8m0", 8),
    (ElementType::F8E4M3Fnuz, "f8_e4m3fnuz", 8),
    (ElementType::F8E5M2Fnuz, "f8_e5m2fnuz", 8),
    (ElementType::F6E2M3, "f6_e2m3", 6),
    (ElementType::F6E3M2, "f6_e3m2", 6),
    (ElementType::F4, "f4", 4),
];

impl ElementType {
    /// Every type, in order of codes.
    pub fn all() -> impl Iterator<Item = Self> {
        TABLE.iter().map(|row| row.0)
    }

    /// The type with this code; `None` if there is none.
    pub fn of_code(code: u8) -> Option<Self> {
        TABLE.get(usize::from(code)).map(|row| row.0)
    }

    /// The code in a frame.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// The name in safetensors, in lower case, such as `bf16` or `f8_e4m3`.
    pub fn name(self) -> &'static str {
        TABLE[usize::from(self.code())].1
    }

    /// The bits of an element. Elements of less than a byte are packed.
    pub fn bits(self) -> usize {
        TABLE[usize::from(self.code())].2
    }

    /// The bytes of a tensor of this shape; `None` if its bits do not fill whole bytes, or need too
    /// many.
    pub fn bytes(self, shape: &[usize]) -> Option<usize> {
        let elements = shape.iter().try_fold(1usize, |product, &n| product.checked_mul(n))?;
        let bits = elements.checked_mul(self.bits())?;
        bits.is_multiple_of(8).then_some(bits / 8)
    }
}

impl fmt::Display for ElementType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl From<Dtype> for ElementType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => ElementType::F32,
            Dtype::F16 => ElementType::F16,
            Dtype::Bf16 => ElementType::Bf16,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_places_in_the_table() {
        for (place, element) in ElementType::all().enumerate() {
            assert_eq!(usize::from(element.code()), place);
            assert_eq!(ElementType::of_code(element.code()), Some(element));
        }
        assert_eq!(ElementType::of_code(22), None);
        for dtype in [Dtype::F32, Dtype::F16, Dtype::Bf16] {
            let element = ElementType::from(dtype);
            assert_eq!((element.code(), element.bits()), (dtype as u8, 8 * dtype.size()));
        }
    }

    #[test]
    fn bytes_of_shapes() {
        assert_eq!(ElementType::I64.bytes(&[]), Some(8));
        assert_eq!(ElementType::F4.bytes(&[3, 2]), Some(3));
        assert_eq!(ElementType::F6E2M3.bytes(&[4]), Some(3));
        assert_eq!(ElementType::F4.bytes(&[3]), None);
        assert_eq!(ElementType::Bool.bytes(&[usize::MAX, 2]), None);
        assert_eq!(ElementType::U64.bytes(&[1 << 61, 2]), None);
        assert_eq!(ElementType::U64.bytes(&[usize::MAX, 0]), Some(0));
    }
}
