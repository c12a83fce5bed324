//! NumPy's `.npy`: a magic string, a version, and a Python dictionary that describes the bytes after
//! it (NumPy Enhancement Proposal 1). Only little-endian floats of 32 and 16 bits are supported.

use gradwire::Dtype;

use super::tensor::{Named, Values, reserve, tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// Reads the array in `bytes` as a tensor called `name`.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<Named, String> {
    let (header, data) =
        split(bytes).ok_or("this is no .npy file, or only the start of one; copy it again")?;
    let dtype = dtype(field(header, "descr")?)?;
    let shape = shape(field(header, "shape")?)?;
    if field(header, "fortran_order")?.starts_with("True") && shape.len() > 1 {
        return Err("the array is in Fortran order; save numpy.ascontiguousarray of it".to_owned());
    }
    let tensor = tensor(name, &shape, dtype, data.len())?;
    Ok(Named { tensor, values: Values::from_bytes(data, dtype) })
}

/// The dictionary, and the data after it.
fn split(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (version, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (len, rest) = match version[0] {
        1 => rest.split_first_chunk().map(|(len, rest)| (u16::from_le_bytes(*len).into(), rest))?,
        2 | 3 => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len), rest))?,
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    Some((std::str::from_utf8(header).ok()?, data))
}

/// The text after a key of the dictionary.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let after = header.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
    after.ok_or_else(|| format!("the .npy header has no {key}; the file is damaged, copy it again"))
}

fn dtype(field: &str) -> Result<Dtype, String> {
    let descr = field.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    match descr.map(|(descr, _)| descr) {
        Some("<f4") => Ok(Dtype::F32),
        Some("<f2") => Ok(Dtype::F16),
        other => Err(format!(
            "elements of type {} are not supported; save the array as float32 or float16, \
             little-endian (numpy: a.astype('<f4'))",
            other.unwrap_or("record")
        )),
    }
}

fn shape(field: &str) -> Result<Vec<usize>, String> {
    let inside = field.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let dimensions = inside.map_or("?", |(inside, _)| inside).split(',').map(str::trim);
    dimensions
        .filter(|dimension| !dimension.is_empty())
        .map(|dimension| {
            dimension.parse().map_err(|_| {
                format!("the .npy header has the dimension '{dimension}'; copy the file again")
            })
        })
        .collect()
}

/// The file of one tensor of float32 or float16; NumPy has no bfloat16.
pub(super) fn write(named: &Named) -> Result<Vec<u8>, String> {
    let descr = match named.values.floats().dtype() {
        Dtype::F32 => "<f4",
        Dtype::F16 | Dtype::Bf16 => "<f2",
    };
    let shape: String = named.tensor.shape().iter().map(|n| format!("{n},")).collect();
    let mut header =
        format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({shape}), }}");
    // The data starts at a multiple of 64 bytes, after ten bytes of preamble and a line end.
    let padded = (10 + header.len() + 1).next_multiple_of(64) - 10;
    header.push_str(&" ".repeat(padded - 1 - header.len()));
    header.push('\n');
    let mut bytes = Vec::new();
    reserve(&mut bytes, 10 + padded + named.values.size())?;
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(padded as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    named.values.append(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use gradwire::Tensor;

    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(header.as_bytes());
        bytes.extend_from_slice(data);
        bytes
    }

    #[test]
    fn numpy_files_by_hand() {
        let bytes = file(
            "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }\n",
            &[0, 0, 128, 63, 0, 0, 0, 192],
        );
        let named = read(&bytes, "x").unwrap();
        assert_eq!(named.tensor, Tensor::new("x", &[2, 1]));
        assert_eq!(named.values, Values::F32(vec![1.0, -2.0]));
        let half = file("{'descr': '<f2', 'fortran_order': False, 'shape': (), }\n", &[0, 60]);
        assert_eq!(read(&half, "x").unwrap().values, Values::F16(vec![0x3c00]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (shape, values) in [
            (vec![3], Values::F32(vec![1.0, 2.0, 3.0])),
            (vec![2, 2], Values::F16(vec![1, 2, 3, 4])),
            (vec![], Values::F32(vec![7.0])),
            (vec![0, 5], Values::F32(vec![])),
        ] {
            let named = Named { tensor: Tensor::new("t", &shape), values };
            let bytes = write(&named).unwrap();
            assert_eq!(read(&bytes, "t").unwrap(), named);
            let data = named.tensor.elements() * named.values.floats().dtype().size();
            assert_eq!((bytes.len() - data) % 64, 0);
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |descr: &str, order: &str, shape: &str, bytes: usize| {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
            read(&file(&header, &vec![0; bytes]), "x").unwrap_err()
        };
        assert!(with("<f8", "False", "(1,)", 8).contains("float32"));
        assert!(with(">f4", "False", "(1,)", 4).contains("little-endian"));
        assert!(with("<f4", "True", "(2, 2)", 16).contains("Fortran"));
        assert!(with("<f4", "False", "(3,)", 8).contains("does not fit"));
        assert!(with("<f4", "False", "(4611686018427387904, 8)", 8).contains("does not fit"));
        assert!(with("<f4", "False", "(99999999999999999999,)", 8).contains("dimension"));
        assert!(with("<f4", "False", "3", 12).contains("dimension"));
        assert!(read(b"not numpy", "x").unwrap_err().contains("no .npy"));
        let whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", &[0; 4]);
        for len in 0..whole.len() {
            assert!(read(&whole[..len], "x").is_err(), "{len}");
        }
    }
}
