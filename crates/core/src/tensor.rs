//! Name and shape of a tensor, which both ends of an exchange know.

use std::ops::Range;

/// Name and shape of one tensor of a model.
///
/// State belongs to the name: residuals and random draws depend on it, and not on the tensor's
/// place in the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    name: String,
    shape: Vec<usize>,
    elements: usize,
    id: u64,
    part_of: Option<Box<Whole>>,
}

/// The tensor that a part was cut from.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Whole {
    tensor: Tensor,
    /// The part's first element in the whole tensor.
    start: usize,
}

impl Tensor {
    /// A tensor called `name` with the given shape; an empty shape is a scalar (one element).
    ///
    /// # Panics
    /// If the product of the dimensions overflows `usize`.
    pub fn new(name: impl Into<String>, shape: &[usize]) -> Self {
        let name = name.into();
        let elements = shape
            .iter()
            .try_fold(1usize, |product, &dim| product.checked_mul(dim))
            .expect("the number of elements of a tensor fits in usize");
        Self { id: fnv1a(name.as_bytes()), name, shape: shape.to_vec(), elements, part_of: None }
    }

    /// Some rows of a tensor as a tensor, such as the rows of a rank's shard. Its name is the
    /// tensor's name with the range of elements, as in `fc.weight[0..512]`. All rows are the tensor
    /// itself.
    ///
    /// # Panics
    /// If the tensor has no dimension, is itself a part, or does not have these rows.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        assert!(self.part_of.is_none(), "'{}' is a part of a tensor", self.name);
        assert!(
            rows.start <= rows.end && rows.end <= self.shape[0],
            "'{}' has no rows {rows:?}",
            self.name
        );
        if rows.len() == self.shape[0] {
            return self.clone();
        }
        let row: usize = self.shape[1..].iter().product();
        let name = format!("{}[{}..{}]", self.name, rows.start * row, rows.end * row);
        let shape = [&[rows.len()], &self.shape[1..]].concat();
        let whole = Whole { tensor: self.clone(), start: rows.start * row };
        Self { part_of: Some(Box::new(whole)), ..Self::new(name, &shape) }
    }

    /// The tensor that this one has [rows](Self::rows) of, or else this tensor. Rules about names,
    /// sizes and kinds apply to it.
    pub fn whole(&self) -> &Tensor {
        self.part_of.as_ref().map_or(self, |whole| &whole.tensor)
    }

    /// The place of the first element in the [whole](Self::whole) tensor.
    pub fn start(&self) -> usize {
        self.part_of.as_ref().map_or(0, |whole| whole.start)
    }

    /// The tensor's name, unique in its model.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The dimensions, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The number of elements.
    pub fn elements(&self) -> usize {
        self.elements
    }

    /// A 64-bit FNV-1a hash of the name, which keys the tensor's random draws.
    pub fn id(&self) -> u64 {
        self.id
    }
}

/// FNV-1a, 64 bits: a hash fixed by its definition, so draws agree across builds and machines.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_published_fnv1a_values() {
        assert_eq!(Tensor::new("", &[]).id(), 0xcbf2_9ce4_8422_2325);
        assert_eq!(Tensor::new("a", &[]).id(), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(Tensor::new("foobar", &[]).id(), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn elements_are_the_product_of_the_shape() {
        assert_eq!(Tensor::new("s", &[]).elements(), 1);
        assert_eq!(Tensor::new("m", &[3, 4]).elements(), 12);
        assert_eq!(Tensor::new("e", &[3, 0]).elements(), 0);
    }

    #[test]
    fn rows_have_the_name_of_their_elements() {
        let tensor = Tensor::new("w", &[5, 3, 2]);
        let rows = tensor.rows(3..5);
        assert_eq!((rows.name(), rows.shape(), rows.start()), ("w[18..30]", &[2, 3, 2][..], 18));
        assert_eq!(rows.id(), Tensor::new("w[18..30]", &[]).id());
        assert_eq!((rows.whole(), tensor.whole()), (&tensor, &tensor));
        assert_eq!((tensor.rows(0..5), tensor.start()), (tensor.clone(), 0));
        let none = tensor.rows(5..5);
        assert_eq!((none.name(), none.elements()), ("w[30..30]", 0));
    }
}
