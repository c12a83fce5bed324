//! NumPy's `.npy`: a magic string, a version, and a Python dictionary that describes the bytes
//! after it (NumPy Enhancement Proposal 1). Only little-endian numbers and truth values are
//! supported. Arrays in Fortran's order are brought into row-major order.

use std::borrow::Cow;

use gradwire::frame::ElementType;
use gradwire::printable;

use super::tensor::{Named, Values, reserve, tensor};

const MAGIC: &[u8] = b"\x93NUMPY";

/// The element types that NumPy has, as its headers name them.
const TYPES: [(&str, ElementType); 13] = [
    ("<f4", ElementType::F32),
    ("<f2", ElementType::F16),
    ("<f8", ElementType::F64),
    ("<c8", ElementType::C64),
    ("|b1", ElementType::Bool),
    ("|u1", ElementType::U8),
    ("|i1", ElementType::I8),
    ("<u2", ElementType::U16),
    ("<i2", ElementType::I16),
    ("<u4", ElementType::U32),
    ("<i4", ElementType::I32),
    ("<u8", ElementType::U64),
    ("<i8", ElementType::I64),
];

/// The name of an element type in headers; `None` if NumPy does not have it.
pub(super) fn descr(element: ElementType) -> Option<&'static str> {
    TYPES.iter().find(|(_, known)| *known == element).map(|(descr, _)| *descr)
}

/// Reads the array in `bytes` as a tensor called `name`.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<Named, String> {
    let (header, data) =
        split(bytes).ok_or("this is not a .npy file, or only the start of one; copy it again")?;
    let element = element(field(&header, "descr")?)?;
    let shape = shape(field(&header, "shape")?)?;
    let is_fortran = field(&header, "fortran_order")?.starts_with("True") && shape.len() > 1;
    let tensor = tensor(name, &shape, element, data.len())?;
    let size = element.bits() / 8;
    let data = if is_fortran { row_major(data, &shape, size)?.into() } else { Cow::from(data) };
    Ok(Named { tensor, values: Values::from_bytes(&data, element) })
}

/// The elements in row-major order, the last index fastest, of an array in Fortran's order, the
/// first index fastest. Elements have `size` bytes.
fn row_major(data: &[u8], shape: &[usize], size: usize) -> Result<Vec<u8>, String> {
    let mut rows = Vec::new();
    reserve(&mut rows, data.len())?;
    let strides: Vec<usize> = shape
        .iter()
        .scan(1, |stride, dimension| Some(std::mem::replace(stride, *stride * dimension)))
        .collect();
    let (mut index, mut at) = (vec![0; shape.len()], 0);
    for _ in 0..data.len() / size {
        rows.extend_from_slice(&data[at * size..][..size]);
        // To the next index, whose last part counts fastest.
        for dimension in (0..shape.len()).rev() {
            index[dimension] += 1;
            at += strides[dimension];
            if index[dimension] < shape[dimension] {
                break;
            }
            at -= strides[dimension] * shape[dimension];
            index[dimension] = 0;
        }
    }
    Ok(rows)
}

/// The dictionary, and the data after it.
fn split(bytes: &[u8]) -> Option<(Cow<'_, str>, &[u8])> {
    let (version, rest) = bytes.strip_prefix(MAGIC)?.split_first_chunk::<2>()?;
    let (len, rest) = match version[0] {
        1 => rest.split_first_chunk().map(|(len, rest)| (u16::from_le_bytes(*len).into(), rest))?,
        2 | 3 => rest.split_first_chunk().map(|(len, rest)| (u32::from_le_bytes(*len), rest))?,
        _ => return None,
    };
    let (header, data) = rest.split_at_checked(usize::try_from(len).ok()?)?;
    // Only field names, which are refused, have other characters; versions 1 and 2 encode them as
    // Latin-1.
    Some((String::from_utf8_lossy(header), data))
}

/// The text after a key of the dictionary.
fn field<'a>(header: &'a str, key: &str) -> Result<&'a str, String> {
    let after = header.split_once(&format!("'{key}':")).map(|(_, after)| after.trim_start());
    after.ok_or_else(|| format!("the .npy header has no {key}; the file is damaged, copy it again"))
}

fn element(field: &str) -> Result<ElementType, String> {
    let descr = field.strip_prefix('\'').and_then(|rest| rest.split_once('\''));
    let Some((descr, _)) = descr else {
        return Err("the array has records; save each field as an array of its own".to_owned());
    };
    if let Some((_, element)) = TYPES.iter().find(|(known, _)| *known == descr) {
        return Ok(*element);
    }
    let reason = match descr.trim_start_matches(['<', '>', '|', '=']).chars().next() {
        Some('O') => "are Python objects; convert the array to numbers (numpy: a.astype('<f4'))",
        Some('S' | 'U' | 'a') => "are text; a tensor has numbers",
        Some('M' | 'm') => "are times; save them as numbers (numpy: a.view('<i8'))",
        Some('V') => {
            "are raw bytes, as NumPy saves bfloat16 and float8; save the array as float32 (numpy: a.astype('<f4')), or in a \
             .safetensors file"
        }
        _ if descr.starts_with('>') => {
            "are big-endian; save the array little-endian (numpy: a.astype(a.dtype.newbyteorder('<')))"
        }
        _ => "are not supported; save the array as float32 (numpy: a.astype('<f4'))",
    };
    Err(format!("elements of type {descr} {reason}"))
}

fn shape(field: &str) -> Result<Vec<usize>, String> {
    let inside = field.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let dimensions = inside.map_or("?", |(inside, _)| inside).split(',').map(str::trim);
    dimensions
        .filter(|dimension| !dimension.is_empty())
        .map(|dimension| {
            // Python 2 writes long integers as 3L.
            dimension.strip_suffix('L').unwrap_or(dimension).parse().map_err(|_| {
                format!(
                    "the .npy header has the dimension '{dimension}'; load and save the array again with NumPy, or copy the \
                     file again"
                )
            })
        })
        .collect()
}

/// The file of one tensor, if NumPy has its type.
pub(super) fn write(named: &Named) -> Result<Vec<u8>, String> {
    let element = named.values.element();
    let descr = descr(element).ok_or_else(|| {
        format!(
            "tensor '{}' has elements of type {element}, which NumPy does not have; write to a .safetensors file",
            printable(named.tensor.name())
        )
    })?;
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

    /// A file of version 1, whose header is Latin-1.
    fn file(header: &str, data: &[u8]) -> Vec<u8> {
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        let header: Vec<u8> = header.chars().map(|character| character as u8).collect();
        bytes.extend_from_slice(&(header.len() as u16).to_le_bytes());
        bytes.extend_from_slice(&header);
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

    /// The array whose element at (i, j, k) is 100 i + 10 j + k.
    #[test]
    fn arrays_in_fortrans_order_are_brought_into_rows() {
        let shape = "(2, 3, 2)";
        let read = |order: &str, data: &[u8]| {
            let header =
                format!("{{'descr': '|u1', 'fortran_order': {order}, 'shape': {shape}, }}");
            read(&file(&header, data), "x").unwrap()
        };
        let rows = [0, 1, 10, 11, 20, 21, 100, 101, 110, 111, 120, 121];
        let columns = [0, 100, 10, 110, 20, 120, 1, 101, 11, 111, 21, 121];
        assert_eq!(read("True", &columns), read("False", &rows));
        let empty = file("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 0), }", &[]);
        assert_eq!(super::read(&empty, "x").unwrap().values, Values::F32(vec![]));
    }

    #[test]
    fn what_is_written_is_read_back() {
        for (shape, values) in [
            (vec![3], Values::F32(vec![1.0, 2.0, 3.0])),
            (vec![2, 2], Values::F16(vec![1, 2, 3, 4])),
            (vec![], Values::F32(vec![7.0])),
            (vec![0, 5], Values::F32(vec![])),
            (vec![2], Values::Other(ElementType::I64, (0..16).collect())),
            (vec![3], Values::Other(ElementType::Bool, vec![1, 0, 1])),
        ] {
            let named = Named { tensor: Tensor::new("t", &shape), values };
            let bytes = write(&named).unwrap();
            assert_eq!(read(&bytes, "t").unwrap(), named);
            assert_eq!((bytes.len() - named.values.size()) % 64, 0);
        }
        let values = Values::Other(ElementType::F8E4M3, vec![1]);
        let error = write(&Named { tensor: Tensor::new("t", &[]), values }).unwrap_err();
        assert!(error.contains("'t'") && error.contains("f8_e4m3"), "{error}");
    }

    #[test]
    fn headers_of_python_2_and_of_every_version_are_read() {
        let header = "{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L), }\n";
        let data = [0, 0, 128, 63, 0, 0, 0, 192];
        let expected =
            Named { tensor: Tensor::new("x", &[1, 2]), values: Values::F32(vec![1.0, -2.0]) };
        assert_eq!(read(&file(header, &data), "x").unwrap(), expected);
        for version in [2, 3] {
            let len = (header.len() as u32).to_le_bytes();
            let bytes = [MAGIC, &[version, 0], &len, header.as_bytes(), &data].concat();
            assert_eq!(read(&bytes, "x").unwrap(), expected);
        }
        let error = read(&file(&header.replace("1L", "1LL"), &data), "x").unwrap_err();
        assert!(error.contains("'1LL'") && error.contains("load and save"), "{error}");
    }

    #[test]
    fn every_type_of_numpy_is_read() {
        for (descr, element) in TYPES {
            let header = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (3,), }}");
            let data: Vec<u8> = (0..3 * element.bits() as u8 / 8).collect();
            let named = read(&file(&header, &data), "x").unwrap();
            assert_eq!(named.values.element(), element);
            let digits = descr.trim_start_matches(|c: char| !c.is_ascii_digit());
            assert_eq!(digits.parse(), Ok(element.bits() / 8));
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        let with = |descr: &str, order: &str, shape: &str, bytes: usize| {
            let header =
                format!("{{'descr': '{descr}', 'fortran_order': {order}, 'shape': {shape}, }}\n");
            read(&file(&header, &vec![0; bytes]), "x").unwrap_err()
        };
        assert!(with("<f16", "False", "(1,)", 16).contains("float32"));
        assert!(with("|O", "False", "(1,)", 8).contains("Python objects"));
        assert!(with("<U5", "False", "(1,)", 20).contains("are text"));
        assert!(with("<M8[ns]", "False", "(1,)", 8).contains("<i8"));
        assert!(with("|V2", "False", "(1,)", 2).contains("bfloat16"));
        let records = "{'descr': [('é', '<f4')], 'fortran_order': False, 'shape': (1,), }";
        assert!(read(&file(records, &[0; 4]), "x").unwrap_err().contains("records"));
        assert!(with(">f4", "False", "(1,)", 4).contains("little-endian"));
        assert!(with("<f4", "False", "(3,)", 8).contains("does not fit"));
        assert!(with("<f4", "False", "(4611686018427387904, 8)", 8).contains("does not fit"));
        assert!(with("<f4", "False", "(99999999999999999999,)", 8).contains("dimension"));
        assert!(with("<f4", "False", "3", 12).contains("dimension"));
        assert!(read(b"not numpy", "x").unwrap_err().contains("not a .npy"));
        let whole = file("{'descr': '<f4', 'fortran_order': False, 'shape': (1,), }\n", &[0; 4]);
        for len in 0..whole.len() {
            assert!(read(&whole[..len], "x").is_err(), "{len}");
        }
    }
}
