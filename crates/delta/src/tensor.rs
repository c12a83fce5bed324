//! Descriptions of tensors: name, type, shape, and the rows of a shard.

use std::ops::Range;

use crate::{ElementType, Error};

/// The longest name of a tensor, in bytes.
const LONGEST_NAME: usize = 65_535;
/// The most dimensions of a tensor.
pub(crate) const MOST_DIMENSIONS: usize = 64;
/// The most bytes of a tensor.
const MOST_BYTES: u64 = 1 << 46;

/// The description of a tensor, or of a shard of one: a range of its rows.
///
/// A row is all elements with one index in the first dimension. A tensor without dimensions has one
/// row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    element: ElementType,
    shape: Vec<u64>,
    rows: Range<u64>,
}

impl Tensor {
    /// A whole tensor.
    ///
    /// # Errors
    /// If the name is empty or above 65,535 bytes, the shape has more than 64 dimensions, or the
    /// tensor has more than 2^46 bytes.
    pub fn new(
        name: impl Into<String>,
        element: ElementType,
        shape: impl Into<Vec<u64>>,
    ) -> Result<Self, Error> {
        let (name, shape) = (name.into(), shape.into());
        let rows = 0..rows_of(&shape);
        let refuse = |reason| Err(Error::InvalidTensor { name: name.clone(), reason });
        if name.is_empty() || name.len() > LONGEST_NAME {
            return refuse("the name must have 1 to 65,535 bytes");
        }
        if shape.len() > MOST_DIMENSIONS {
            return refuse("a tensor can have at most 64 dimensions");
        }
        let bytes = |factors: &[u64]| {
            factors.iter().try_fold(element.width() as u64, |product, &dimension| {
                product.checked_mul(dimension).filter(|&bytes| bytes <= MOST_BYTES)
            })
        };
        // Zeros aside: the product of the others may overflow, too, when rows are counted.
        let others: Vec<u64> = shape.iter().copied().filter(|&dimension| dimension > 0).collect();
        if bytes(&others).is_none() {
            return refuse("a tensor can have at most 2^46 bytes");
        }
        Ok(Self { name, element, shape, rows })
    }

    /// Rows `rows` of a tensor whose shape is `shape`.
    ///
    /// # Errors
    /// As for [`Tensor::new`]; if the rows are not rows of the tensor; if they are 0..0 of a tensor
    /// that has rows: the first row's shard stands for the tensor's existence in its hash; or if
    /// the shard starts or ends neither at an end of the tensor nor at a multiple of 8 bytes: the
    /// hash of a tensor is taken over words of 8 bytes. Gather such a tensor, and give it whole.
    pub fn shard(
        name: impl Into<String>,
        element: ElementType,
        shape: impl Into<Vec<u64>>,
        rows: Range<u64>,
    ) -> Result<Self, Error> {
        let whole = Self::new(name, element, shape)?;
        let refuse = |reason| Err(Error::InvalidTensor { name: whole.name.clone(), reason });
        if rows.start > rows.end || rows.end > whole.rows.end {
            return refuse(
                "the shard has rows that the tensor has not; give rows within its shape",
            );
        }
        if rows == (0..0) && whole.rows.end > 0 {
            return refuse(
                "the shard has no rows, but would stand for the first one; leave it out, or give \
                 the end of the tensor as its rows",
            );
        }
        let row = whole.row_elements() * element.width() as u64;
        let is_cut = |at: u64| at > 0 && at < whole.rows.end && !(at * row).is_multiple_of(8);
        if is_cut(rows.start) || is_cut(rows.end) {
            return refuse(
                "a shard must start and end at a multiple of 8 bytes; gather the tensor and give \
                 it whole",
            );
        }
        Ok(Self { rows, ..whole })
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The type of the elements.
    pub fn element(&self) -> ElementType {
        self.element
    }

    /// The shape of the whole tensor, outermost dimension first.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// The rows that are here; all of them unless this is a shard.
    pub fn rows(&self) -> Range<u64> {
        self.rows.clone()
    }

    /// Whether some rows of the tensor are not here.
    pub fn is_shard(&self) -> bool {
        self.rows != (0..rows_of(&self.shape))
    }

    /// The number of elements that are here.
    pub fn elements(&self) -> usize {
        ((self.rows.end - self.rows.start) * self.row_elements()) as usize
    }

    /// The number of bytes that are here.
    pub fn byte_len(&self) -> usize {
        self.elements() * self.element.width()
    }

    /// The number of elements of the whole tensor before those that are here.
    pub fn first_element(&self) -> u64 {
        self.rows.start * self.row_elements()
    }

    /// The same tensor with all its rows.
    pub fn whole(&self) -> Self {
        Self { rows: 0..rows_of(&self.shape), ..self.clone() }
    }

    /// Whether `other` has the same type and shape, whatever its name and rows.
    pub fn has_layout_of(&self, other: &Self) -> bool {
        self.element == other.element && self.shape == other.shape
    }

    /// Tensors are ordered by name, shards of a tensor by row.
    pub(crate) fn key(&self) -> (&str, u64) {
        (&self.name, self.rows.start)
    }

    fn row_elements(&self) -> u64 {
        self.shape.iter().skip(1).product()
    }
}

fn rows_of(shape: &[u64]) -> u64 {
    shape.first().copied().unwrap_or(1)
}

/// Type, shape and rows, such as `BF16 [4096, 4096] rows 0..1024`.
impl std::fmt::Display for Tensor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {:?}", self.element.name(), self.shape)?;
        if self.is_shard() { write!(f, " rows {:?}", self.rows) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_by_hand() {
        let tensor = Tensor::new("w", ElementType::Bf16, [6, 4]).unwrap();
        assert_eq!((tensor.elements(), tensor.byte_len(), tensor.rows()), (24, 48, 0..6));
        let shard = Tensor::shard("w", ElementType::Bf16, [6, 4], 2..5).unwrap();
        assert_eq!((shard.elements(), shard.first_element()), (12, 8));
        assert!(shard.is_shard() && !shard.whole().is_shard());
        assert_eq!(shard.to_string(), "BF16 [6, 4] rows 2..5");
        let scalar = Tensor::new("s", ElementType::F64, []).unwrap();
        assert_eq!((scalar.elements(), scalar.byte_len()), (1, 8));
        let empty = Tensor::new("e", ElementType::U8, [3, 0]).unwrap();
        assert_eq!((empty.elements(), empty.is_shard()), (0, false));
    }

    #[test]
    fn impossible_tensors_are_refused() {
        let huge = [1 << 40, 1 << 40];
        assert!(Tensor::new("w", ElementType::U8, huge).is_err());
        assert!(Tensor::new("w", ElementType::U8, [0, 1 << 40, 1 << 40]).is_err());
        assert!(Tensor::new("", ElementType::U8, [1]).is_err());
        assert!(Tensor::new("w", ElementType::U8, vec![1; 65]).is_err());
        assert!(Tensor::shard("w", ElementType::U8, [16], 8..17).is_err());
        // Without rows it would count as the shard of the first row.
        assert!(Tensor::shard("w", ElementType::U8, [16], 0..0).is_err());
        assert!(Tensor::shard("w", ElementType::U8, [16], 16..16).is_ok());
        assert!(Tensor::shard("w", ElementType::U8, [0, 4], 0..0).is_ok());
        // Three rows of two bytes end within a word.
        let error = Tensor::shard("b", ElementType::Bf16, [10], 0..3).unwrap_err().to_string();
        assert!(error.contains("gather"), "{error}");
        assert!(Tensor::shard("b", ElementType::Bf16, [10], 8..10).is_ok());
    }
}
