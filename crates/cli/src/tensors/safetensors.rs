//! Hugging Face's `.safetensors`.

use std::collections::HashSet;

use gradwire::frame::{ElementType, Metadata};
use gradwire::printable;
use safetensors::tensor::TensorView;
use safetensors::{Dtype as Kind, SafeTensors};
use serde_json::{Map, Value};

use super::tensor::{Contents, Named, Values, reserve, tensor};

/// The key of the format's own entry.
const METADATA: &str = "__metadata__";

/// The bytes before the header: its length.
const PREFIX: usize = 8;

/// The longest header that readers of the format accept.
const LONGEST_HEADER: usize = 100_000_000;

/// Every element type of the format with the type of frames.
const TYPES: [(Kind, ElementType); 22] = [
    (Kind::F32, ElementType::F32),
    (Kind::F16, ElementType::F16),
    (Kind::BF16, ElementType::Bf16),
    (Kind::F64, ElementType::F64),
    (Kind::C64, ElementType::C64),
    (Kind::BOOL, ElementType::Bool),
    (Kind::U8, ElementType::U8),
    (Kind::I8, ElementType::I8),
    (Kind::U16, ElementType::U16),
    (Kind::I16, ElementType::I16),
    (Kind::U32, ElementType::U32),
    (Kind::I32, ElementType::I32),
    (Kind::U64, ElementType::U64),
    (Kind::I64, ElementType::I64),
    (Kind::F8_E4M3, ElementType::F8E4M3),
    (Kind::F8_E5M2, ElementType::F8E5M2),
    (Kind::F8_E8M0, ElementType::F8E8M0),
    (Kind::F8_E4M3FNUZ, ElementType::F8E4M3Fnuz),
    (Kind::F8_E5M2FNUZ, ElementType::F8E5M2Fnuz),
    (Kind::F6_E2M3, ElementType::F6E2M3),
    (Kind::F6_E3M2, ElementType::F6E3M2),
    (Kind::F4, ElementType::F4),
];

/// Reads every tensor, by name, and the metadata.
pub(super) fn read(bytes: &[u8]) -> Result<Contents, String> {
    let refused = |error| match unknown_type(bytes) {
        Some(reason) => reason,
        None => {
            let error = printable(error);
            format!("this is not a .safetensors file ({error}); copy it again")
        }
    };
    let (_, header) = SafeTensors::read_metadata(bytes).map_err(refused)?;
    let file = SafeTensors::deserialize(bytes).map_err(refused)?;
    let mut views = file.tensors();
    views.sort_by(|a, b| a.0.cmp(&b.0));
    let named = |(name, view): (String, TensorView<'_>)| {
        let found = TYPES.iter().find(|(kind, _)| *kind == view.dtype());
        let (_, element) = found.ok_or_else(|| unknown(&name, &view.dtype().to_string()))?;
        let tensor = tensor(&name, view.shape(), *element, view.data().len())?;
        Ok(Named { tensor, values: Values::from_bytes(view.data(), *element) })
    };
    let metadata = header.metadata().clone().map(|entries| Metadata(entries.into_iter().collect()));
    Ok(Contents { tensors: views.into_iter().map(named).collect::<Result<_, String>>()?, metadata })
}

/// The error for a file with an element type that the library does not know; `None` for other
/// files.
fn unknown_type(bytes: &[u8]) -> Option<String> {
    let (len, rest) = bytes.split_first_chunk::<PREFIX>()?;
    let header = rest.get(..usize::try_from(u64::from_le_bytes(*len)).ok()?)?;
    let entries: Map<String, Value> = serde_json::from_slice(header).ok()?;
    entries.iter().filter(|(name, _)| *name != METADATA).find_map(|(name, entry)| {
        let kind = entry.get("dtype")?;
        let known = serde_json::from_value::<Kind>(kind.clone()).is_ok();
        (!known).then(|| unknown(name, kind.as_str().unwrap_or("that is not text")))
    })
}

fn unknown(name: &str, kind: &str) -> String {
    let [name, kind] = [name, kind].map(printable);
    format!(
        "tensor '{name}' has elements of type {kind}, which this version does not know; update gradwire, or leave the \
         tensor out"
    )
}

/// The file of some tensors.
pub(super) fn write(contents: &Contents) -> Result<Vec<u8>, String> {
    let tensors = &contents.tensors;
    let mut names = HashSet::new();
    for name in tensors.iter().map(|named| named.tensor.name()) {
        if name == METADATA {
            return Err(format!(
                "a tensor has the name '{METADATA}', which .safetensors files reserve; write it to a .npy file"
            ));
        }
        if !names.insert(name) {
            let name = printable(name);
            return Err(format!(
                "several tensors have the name '{name}', but names in a .safetensors file are \
                 unique; compress the tensors to separate files"
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
            let element = named.values.element();
            let found = TYPES.iter().find(|(_, known)| *known == element);
            let (kind, _) = found.ok_or_else(|| unknown(named.tensor.name(), element.name()))?;
            let view = TensorView::new(*kind, named.tensor.shape().to_vec(), bytes)
                .map_err(|error| format!("tensor '{}': {error}", printable(named.tensor.name())))?;
            Ok((named.tensor.name(), view))
        })
        .collect::<Result<_, String>>()?;
    // The library allocates as much for the file, but returns no error if that fails.
    reserve(&mut Vec::<u8>::new(), bytes.iter().map(Vec::len).sum())?;
    let file = safetensors::serialize(views, None).map_err(|error| error.to_string())?;
    match &contents.metadata {
        Some(metadata) => with_metadata(file, metadata),
        None => Ok(file),
    }
}

/// The file with an entry for the metadata in its header. The library would write the texts in a
/// different order each time.
fn with_metadata(mut file: Vec<u8>, metadata: &Metadata) -> Result<Vec<u8>, String> {
    let (len, _) = file.split_first_chunk::<PREFIX>().expect("the library wrote the length");
    let end = PREFIX + u64::from_le_bytes(*len) as usize;
    let others = file[PREFIX + 1..end].trim_ascii_end();
    let texts = serde_json::to_string(&metadata.0).expect("texts become JSON");
    let comma = if others == b"}" { "" } else { "," };
    let mut header = [format!("{{\"{METADATA}\":{texts}{comma}").as_bytes(), others].concat();
    // The data starts at a multiple of eight bytes.
    header.resize(header.len().next_multiple_of(8), b' ');
    if header.len() > LONGEST_HEADER {
        return Err(format!(
            "the names, shapes and metadata take {} bytes, but a .safetensors file has room for \
             {LONGEST_HEADER}; use shorter names or metadata",
            header.len()
        ));
    }
    reserve(&mut file, header.len())?;
    let len = (header.len() as u64).to_le_bytes();
    file.splice(..end, len.into_iter().chain(header));
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::Tensor;

    fn named(name: &str, shape: &[usize], values: Values) -> Named {
        Named { tensor: Tensor::new(name, shape), values }
    }

    fn contents(tensors: Vec<Named>, entries: Option<&[(&str, &str)]>) -> Contents {
        let owned = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        let metadata = entries.map(|entries| Metadata(entries.iter().map(owned).collect()));
        Contents { tensors, metadata }
    }

    #[test]
    fn tensors_of_all_types_go_both_ways() {
        let mut tensors = vec![
            named("a", &[2], Values::F32(vec![1.0, -0.5])),
            named("b", &[1, 3], Values::F16(vec![1, 2, 3])),
            named("c", &[], Values::Bf16(vec![0x3f80])),
            named("d", &[0], Values::F32(vec![])),
        ];
        for element in ElementType::all().skip(3) {
            let data = (0..element.bits() as u8 / 2).collect();
            tensors.push(named(&format!("e {element}"), &[2, 2], Values::Other(element, data)));
        }
        tensors.sort_by(|a, b| a.tensor.name().cmp(b.tensor.name()));
        for entries in [
            None,
            Some(&[][..]),
            Some(&[("format", "pt"), ("\"quoted\"", "ä\n"), ("a", "1"), ("b", "2"), ("c", "3")]),
        ] {
            let whole = contents(tensors.clone(), entries);
            let bytes = write(&whole).unwrap();
            assert_eq!(read(&bytes).unwrap(), whole);
            // The same bytes each time, and data at a multiple of eight bytes.
            assert!(write(&whole).unwrap() == bytes);
            let data: usize = tensors.iter().map(|named| named.values.size()).sum();
            assert_eq!((bytes.len() - data) % 8, 0);
        }
        let only = contents(Vec::new(), Some(&[("format", "pt")]));
        assert_eq!(read(&write(&only).unwrap()).unwrap(), only);
    }

    #[test]
    fn names_that_the_format_cannot_hold_are_refused() {
        let file = |names: &[&str]| {
            let one = |name: &&str| named(name, &[1], Values::F32(vec![1.0]));
            write(&contents(names.iter().map(one).collect(), None)).unwrap_err()
        };
        assert!(file(&["a", "b", "a"]).contains("several tensors have the name 'a'"));
        assert!(file(&["__metadata__"]).contains("reserve"));
    }

    #[test]
    fn unknown_types_are_refused_by_name() {
        let header = br#"{"ids":{"dtype":"I4","shape":[2],"data_offsets":[0,1]}}"#;
        let file = [&(header.len() as u64).to_le_bytes(), &header[..], &[0]].concat();
        let error = read(&file).unwrap_err();
        assert!(error.contains("'ids'") && error.contains("type I4"), "{error}");
        assert!(read(b"nonsense").unwrap_err().contains("not a .safetensors"));
    }
}
