use super::*;
use crate::Tensor;
use crate::frame::{Budget, ElementType};

fn stored(shape: &[usize], element: ElementType, data: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let tensor = StoredTensor::new(Tensor::new("ids", shape), element, data).unwrap();
    tensor.write(&mut bytes).unwrap();
    bytes
}

fn metadata(entries: &[(&str, &str)]) -> Vec<u8> {
    let entries = entries.iter().map(|&(name, value)| (name.to_owned(), value.to_owned()));
    let mut bytes = Vec::new();
    Metadata(entries.collect()).write(&mut bytes);
    bytes
}

/// A frame of version 2 with a matching checksum.
fn sealed(kind: u8, reserved: [u8; 2], body: &[u8]) -> Vec<u8> {
    let mut bytes = [&b"GWFR\x02"[..], &[kind], &reserved, &[body.len() as u8], body].concat();
    bytes.extend_from_slice(&crc32fast::hash(&bytes).to_le_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Result<Item<'_>, FrameError> {
    Item::read(&mut &bytes[..])
}

#[test]
fn every_byte_is_as_specified() {
    // Bytes, element type and coding; two dimensions, 1 and 300; the name; 300 numbers of a byte.
    let body = [&[7, 0, 2, 1, 0xac, 0x02][..], b"\x03ids", &[9; 300]].concat();
    let mut expected = [&b"GWFR\x02\x00\0\0"[..], &[0xb6, 0x02], &body].concat();
    expected.extend_from_slice(&crc32fast::hash(&expected).to_le_bytes());
    assert_eq!(stored(&[1, 300], ElementType::I8, &[9; 300]), expected);
    let pair = sealed(1, [0, 0], b"\x02\x06format\x02pt\x01x\x00");
    assert_eq!(metadata(&[("x", ""), ("format", "pt")]), pair);
}

#[test]
fn a_file_mixes_frames_of_all_kinds() {
    let message = Frame {
        spec: "none".parse().unwrap(),
        tensor: Tensor::new("w", &[]),
        dtype: crate::Dtype::F32,
        seed: 0,
        step: 0,
        rank: 0,
        message: &[0, 0, 0x80, 0x3f],
    };
    let items = [
        Item::Message(message),
        Item::Stored(StoredTensor::new(Tensor::new("n", &[]), ElementType::I64, &[1; 8]).unwrap()),
        Item::Stored(StoredTensor::new(Tensor::new("e", &[0, 3]), ElementType::F64, &[]).unwrap()),
        Item::Metadata(Metadata::default()),
    ];
    let mut bytes = Vec::new();
    items.iter().for_each(|item| item.write(&mut bytes).unwrap());
    let mut rest = &bytes[..];
    for item in &items {
        assert_eq!(Item::read(&mut rest).as_ref(), Ok(item));
    }
    assert!(rest.is_empty());
}

#[test]
fn every_element_type_comes_back() {
    for element in ElementType::all() {
        // Four elements fill whole bytes in every type.
        let data: Vec<u8> = (0..element.bits() / 2).map(|byte| 0xff - byte as u8).collect();
        let bytes = stored(&[4], element, &data);
        let Ok(Item::Stored(tensor)) = read(&bytes) else { panic!("{element}") };
        assert_eq!((tensor.element(), tensor.data()), (element, &data[..]));
    }
}

#[test]
fn every_cut_and_every_flip_is_noticed() {
    for bytes in
        [stored(&[2, 3], ElementType::I16, &[5; 12]), metadata(&[("format", "pt"), ("a", "b")])]
    {
        for len in 0..bytes.len() {
            let mut input = &bytes[..len];
            assert_eq!(Item::read(&mut input), Err(FrameError::Truncated), "cut at {len}");
            assert_eq!(input.len(), len);
        }
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut bad = bytes.clone();
                bad[at] ^= 1 << bit;
                assert!(read(&bad).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn fields_that_cannot_be_are_refused() {
    let whole = b"\x06\x00\x01\x02\x01tab";
    assert!(read(&sealed(0, [0, 0], whole)).is_ok());
    let overflow = [&[6, 0, 2][..], &[0xff; 8], &[0x7f], &[0xff; 8], &[0x7f], b"\x01t"].concat();
    let bodies: [(u8, [u8; 2], &[u8]); 16] = [
        (0, [1, 0], whole),
        (2, [0, 0], whole),
        (0, [0, 0], b""),
        (0, [0, 0], b"\x16\x00\x01\x02\x01tab"),
        (0, [0, 0], b"\x06\x01\x01\x02\x01tab"),
        (0, [0, 0], b"\x06\x00\x41\x02\x01tab"),
        (0, [0, 0], b"\x06\x00\x01\x02\x04tab"),
        (0, [0, 0], b"\x06\x00\x01\x02\x01\xffab"),
        (0, [0, 0], b"\x06\x00\x01\x03\x01tab"),
        (0, [0, 0], b"\x06\x00\x01\x01\x01tab"),
        (0, [0, 0], b"\x15\x00\x01\x03\x01tab"),
        (0, [0, 0], &overflow),
        (1, [0, 0], b"\x02\x01b\x00\x01a\x00"),
        (1, [0, 0], b"\x02\x01a\x00\x01a\x00"),
        (1, [0, 0], b"\x7f\x01a\x00"),
        (1, [0, 0], b"\x01\x01a\x00more"),
    ];
    for (kind, reserved, body) in bodies {
        let bytes = sealed(kind, reserved, body);
        let error = read(&bytes).unwrap_err();
        assert!(matches!(error, FrameError::Malformed(_)), "{body:?}: {error}");
    }
}

#[test]
fn readers_of_messages_say_what_they_found() {
    let bytes = stored(&[1], ElementType::I64, &[0; 8]);
    let mut input = &bytes[..];
    let error = Frame::read(&mut input).unwrap_err().to_string();
    assert!(error.contains("tensor 'ids' of type i64") && error.contains("Item::read"), "{error}");
    assert_eq!(input.len(), bytes.len());
    assert!(Frame::read(&mut &metadata(&[])[..]).unwrap_err().to_string().contains("metadata"));
}

#[test]
fn what_a_frame_cannot_hold_is_not_written() {
    let tensor = |shape: &[usize]| Tensor::new("t", shape);
    let error = StoredTensor::new(tensor(&[2]), ElementType::I64, &[0; 15]).unwrap_err();
    assert!(error.to_string().contains("'t' of shape [2] and type i64"), "{error}");
    assert!(StoredTensor::new(tensor(&[3]), ElementType::F4, &[0; 2]).is_err());
    let deep = StoredTensor::new(tensor(&[1; 65]), ElementType::Bool, &[1]).unwrap();
    let mut bytes = Vec::new();
    assert!(matches!(deep.write(&mut bytes), Err(FrameError::Dimensions { .. })));
    assert!(bytes.is_empty());
}

#[test]
fn stored_tensors_take_their_bytes_off_the_budget() {
    let tensor = StoredTensor::new(Tensor::new("t", &[3]), ElementType::F16, &[0; 6]).unwrap();
    let mut budget = Budget::new(11);
    budget.spend_stored(&tensor).unwrap();
    let error = budget.spend_stored(&tensor).unwrap_err();
    assert!(matches!(error, FrameError::OverBudget { bytes: 6, left: 5, limit: 11, .. }));
}
