//! NumPy's `.npy`.

use gradwire::Dtype;
use npyz::{DType, NpyHeader, Order};

use super::{Named, Values, tensor};

/// Reads the array in `bytes` as a tensor called `name`.
pub(super) fn read(bytes: &[u8], name: &str) -> Result<Named, String> {
    let mut rest = bytes;
    let header = NpyHeader::from_reader(&mut rest)
        .map_err(|error| format!("this is no .npy file ({error}); copy it again"))?;
    let dtype = dtype(&header.dtype())?;
    if header.order() != Order::C && header.shape().len() > 1 {
        return Err("the array is in Fortran order; save numpy.ascontiguousarray of it".to_owned());
    }
    let shape: Vec<usize> = header
        .shape()
        .iter()
        .map(|&n| usize::try_from(n))
        .collect::<Result<_, _>>()
        .map_err(|_| "the array is larger than this machine can address".to_owned())?;
    let tensor = tensor(name, &shape, dtype, rest.len())?;
    Ok(Named { tensor, values: Values::from_bytes(rest, dtype) })
}

fn dtype(dtype: &DType) -> Result<Dtype, String> {
    match dtype.descr().trim_matches('\'') {
        "<f4" => Ok(Dtype::F32),
        "<f2" => Ok(Dtype::F16),
        other => Err(format!(
            "elements of type {other} are not supported; save the array as float32 or float16, \
             little-endian (numpy: a.astype('<f4'))"
        )),
    }
}

/// The file of one tensor. bfloat16, which NumPy does not have, must have been widened.
pub(super) fn write(named: &Named) -> Vec<u8> {
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
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend_from_slice(&(padded as u16).to_le_bytes());
    bytes.extend_from_slice(header.as_bytes());
    bytes.extend_from_slice(&named.values.to_bytes());
    bytes
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
            let bytes = write(&named);
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
        assert!(read(b"not numpy", "x").unwrap_err().contains("no .npy"));
    }
}
