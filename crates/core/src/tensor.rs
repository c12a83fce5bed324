//! Name and shape of a tensor, which both ends of an exchange know.

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

    /// A part of a tensor as a tensor, such as the rows of a rank's shard: the elements from
    /// `start` on, as many as `shape` has. Its name is the tensor's name with the range of
    /// elements, as in `fc.weight[0..512]`. The part with all elements is the tensor itself.
    ///
    /// # Panics
    /// If the tensor is itself a part, or does not have these elements.
    pub fn part(&self, start: usize, shape: &[usize]) -> Self {
        assert!(self.part_of.is_none(), "'{}' is a part of a tensor", self.name);
        let part = Self::new("", shape);
        if part.elements == self.elements {
            return self.clone();
        }
        let end = start.checked_add(part.elements).filter(|&end| end <= self.elements);
        let end = end.unwrap_or_else(|| panic!("'{}' is shorter than its part", self.name));
        let whole = Whole { tensor: self.clone(), start };
        let name = format!("{}[{start}..{end}]", self.name);
        Self { part_of: Some(Box::new(whole)), ..Self::new(name, shape) }
    }

    /// Whether this is a [part](Self::part) without elements, of a tensor that has some.
    pub fn is_empty_part(&self) -> bool {
        self.elements == 0 && self.part_of.is_some()
    }

    /// The tensor of which this one is a [part](Self::part), or else this tensor. Rules about
    /// names, sizes and kinds apply to it.
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
    fn parts_have_the_names_of_their_elements() {
        let tensor = Tensor::new("w", &[5, 3, 2]);
        let rows = tensor.part(18, &[2, 3, 2]);
        assert_eq!((rows.name(), rows.shape(), rows.start()), ("w[18..30]", &[2, 3, 2][..], 18));
        assert_eq!(rows.id(), Tensor::new("w[18..30]", &[]).id());
        assert_eq!((rows.whole(), tensor.whole()), (&tensor, &tensor));
        assert_eq!((tensor.part(0, &[30, 1]), tensor.start()), (tensor.clone(), 0));
        let none = tensor.part(30, &[0, 3, 2]);
        assert_eq!((none.name(), none.is_empty_part()), ("w[30..30]", true));
        assert!(!Tensor::new("v", &[0]).part(0, &[0]).is_empty_part());
    }

    #[test]
    #[should_panic(expected = "'w' is shorter than its part")]
    fn parts_end_with_their_tensor() {
        Tensor::new("w", &[5, 3]).part(13, &[3]);
    }
}
