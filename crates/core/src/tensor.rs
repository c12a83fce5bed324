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
        Self { id: fnv1a(name.as_bytes()), name, shape: shape.to_vec(), elements }
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
}
