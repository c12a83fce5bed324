//! Hugging Face's `.safetensors`.

use std::collections::HashSet;

use gradwire::Dtype;
use safetensors::tensor::TensorView;
use safetensors::{Dtype as Kind, SafeTensors};

use super::tensor::{Named, Values, reserve, tensor};

/// The key of the format's own entry.
const METADATA: &str = "__metadata__";

/// Reads every tensor, by name.
pub(super) fn read(bytes: &[u8]) -> Result<Vec<Named>, String> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| format!("this is no .safetensors file ({error}); copy it again"))?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    views
        .into_iter()
        .map(|(name, view)| {
            let dtype = dtype(&name, view.dtype())?;
            let tensor = tensor(&name, view.shape(), dtype, view.data().len())?;
            Ok(Named { tensor, values: Values::from_bytes(view.data(), dtype) })
        })
        .collect()
}

fn dtype(name: &str, kind: Kind) -> Result<Dtype, String> {
    match kind {
        Kind::F32 => Ok(Dtype::F32),
        Kind::F16 => Ok(Dtype::F16),
        Kind::BF16 => Ok(Dtype::Bf16),
        other => Err(format!(
            "tensor '{name}' has elements of type {other:?}, which are not supported; convert it to \
             F32, F16 or BF16, or leave it out"
        )),
    }
}

/// The file of some tensors.
pub(super) fn write(tensors: &[Named]) -> Result<Vec<u8>, String> {
    let mut names = HashSet::new();
    for name in tensors.iter().map(|named| named.tensor.name()) {
        if name == METADATA {
            return Err(format!(
                "a tensor is called '{METADATA}', which .safetensors files reserve; write it to a .npy file"
            ));
        }
        if !names.insert(name) {
            return Err(format!(
                "several tensors are called '{name}', and a .safetensors file holds one of a name; compress them to \
                 separate files"
            ));
        }
    }
    let mut bytes = vec![Vec::new(); tensors.len()];
    for (named, bytes) in tensors.iter().zip(&mut bytes) {
        named.values.append(bytes)?;
    }
    let views: Vec<(&str, TensorView<'_>)> = tensors
        .iter()
        .zip(&bytes)
        .map(|(named, bytes)| {
            let kind = match named.values.floats().dtype() {
                Dtype::F32 => Kind::F32,
                Dtype::F16 => Kind::F16,
                Dtype::Bf16 => Kind::BF16,
            };
            let view = TensorView::new(kind, named.tensor.shape().to_vec(), bytes)
                .map_err(|error| format!("tensor '{}': {error}", named.tensor.name()))?;
            Ok((named.tensor.name(), view))
        })
        .collect::<Result<_, String>>()?;
    // The library allocates as much for the file, and returns no error if it cannot.
    reserve(&mut Vec::<u8>::new(), bytes.iter().map(Vec::len).sum())?;
    safetensors::serialize(views, None).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::Tensor;

    #[test]
    fn tensors_of_all_three_types_go_both_ways() {
        let named = |name: &str, shape: &[usize], values| Named {
            tensor: Tensor::new(name, shape),
            values,
        };
        let tensors = [
            named("a", &[2], Values::F32(vec![1.0, -0.5])),
            named("b", &[1, 3], Values::F16(vec![1, 2, 3])),
            named("c", &[], Values::Bf16(vec![0x3f80])),
            named("d", &[0], Values::F32(vec![])),
        ];
        assert_eq!(read(&write(&tensors).unwrap()).unwrap(), tensors);
    }

    #[test]
    fn names_that_the_format_cannot_hold_are_refused() {
        let named =
            |name: &str| Named { tensor: Tensor::new(name, &[1]), values: Values::F32(vec![1.0]) };
        assert!(
            write(&[named("a"), named("b"), named("a")])
                .unwrap_err()
                .contains("several tensors are called 'a'")
        );
        assert!(write(&[named("__metadata__")]).unwrap_err().contains("reserve"));
    }

    #[test]
    fn other_types_are_refused_by_name() {
        let bytes = [0; 16];
        let view = TensorView::new(Kind::I64, vec![2], &bytes).unwrap();
        let file = safetensors::serialize([("ids", view)], None).unwrap();
        let error = read(&file).unwrap_err();
        assert!(error.contains("'ids'") && error.contains("I64"), "{error}");
        assert!(read(b"nonsense").unwrap_err().contains("no .safetensors"));
    }
}
