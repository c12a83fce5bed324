use super::*;
use crate::SpecError;

fn frame(message: &[u8]) -> Frame<'_> {
    Frame {
        spec: "3lc:s=1.5".parse().unwrap(),
        tensor: Tensor::new("fc", &[2, 300]),
        dtype: Dtype::Bf16,
        seed: 0x0102_0304_0506_0708,
        step: 128,
        rank: 3,
        message,
    }
}

/// M = 0, then 120 bytes of five zeros: eight runs of 14 and one of 8.
const ZEROS: [u8; 13] = [0, 0, 0, 0, 255, 255, 255, 255, 255, 255, 255, 255, 249];

fn written(frame: &Frame<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    frame.write(&mut bytes).unwrap();
    bytes
}

/// The bytes with a matching checksum.
fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
    let end = bytes.len() - 4;
    let checksum = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    bytes
}

fn read(bytes: &[u8]) -> Result<Frame<'_>, FrameError> {
    Frame::read(&mut &bytes[..])
}

#[test]
fn every_byte_is_as_specified() {
    let bytes = written(&frame(&ZEROS));
    let expected = [
        &b"GWFR\x01\x02\0\0"[..],
        &[2, 2, 0xac, 0x02],
        b"\x093lc:s=1.5",
        b"\x02fc",
        &[8, 7, 6, 5, 4, 3, 2, 1],
        &[0x80, 1],
        &[3],
        &[13],
        &ZEROS,
    ]
    .concat();
    assert_eq!(bytes[..bytes.len() - 4], expected);
    // The check value of CRC-32/ISO-HDLC.
    assert_eq!(crc32fast::hash(b"123456789"), 0xcbf4_3926);
    assert_eq!(bytes[bytes.len() - 4..], crc32fast::hash(&expected).to_le_bytes());
}

#[test]
fn a_file_is_a_sequence_of_frames() {
    let first = frame(&ZEROS);
    let second = Frame {
        spec: "none".parse().unwrap(),
        tensor: Tensor::new("b", &[]),
        message: &[0, 0, 0x80, 0x3f],
        ..frame(&[])
    };
    let bytes = [written(&first), written(&second)].concat();
    let mut input = &bytes[..];
    assert_eq!(Frame::read(&mut input).unwrap(), first);
    let read = Frame::read(&mut input).unwrap();
    // 601 elements, and not one more.
    let mut budget = Budget::new(4 * 601);
    assert_eq!((read.decode(&mut budget).unwrap(), input.len()), (vec![1.0], 0));
    assert_eq!(first.decode(&mut budget).unwrap(), vec![0.0; 600]);
    let over = FrameError::OverBudget { tensor: "b".into(), bytes: 4, left: 0, limit: 2404 };
    assert_eq!(read.decode(&mut budget), Err(over));
}

#[test]
fn every_cut_and_every_flip_is_noticed() {
    let bytes = written(&frame(&ZEROS));
    for len in 0..bytes.len() {
        let mut input = &bytes[..len];
        assert_eq!(Frame::read(&mut input), Err(FrameError::Truncated), "cut at {len}");
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

#[test]
fn errors_name_what_is_wrong() {
    let bytes = written(&frame(&ZEROS));
    let changed = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        read(&sealed(bytes)).unwrap_err()
    };
    assert_eq!(changed(0, b'X'), FrameError::NotAFrame);
    assert_eq!(changed(4, 9), FrameError::Version(9));
    assert!(changed(4, 9).to_string().contains("version 9"));
    assert!(matches!(changed(5, 3), FrameError::Malformed(_)));
    assert!(matches!(changed(6, 1), FrameError::Malformed(_)));
    assert!(matches!(changed(8, 65), FrameError::Malformed(_)));
    // The configuration reads "xlc:s=1.5", then "3lc:s=2.5".
    let unknown = changed(13, b'x').to_string();
    assert!(unknown.contains("unknown compressor 'xlc'") && unknown.contains("terngrad"));
    assert!(matches!(changed(19, b'2'), FrameError::Spec(SpecError::BadValue { .. })));
    let mut damaged = bytes.clone();
    damaged[45] ^= 1;
    assert!(matches!(read(&damaged), Err(FrameError::Checksum { .. })));
}

#[test]
fn shapes_beyond_the_message_are_refused_unallocated() {
    let huge = |shape: &[usize]| {
        let tensor = Tensor::new("huge", shape);
        read(&written(&Frame { tensor, ..frame(&ZEROS) })).unwrap_err()
    };
    // 9 coded bytes encode at most 9 · 14 · 5 elements.
    assert!(matches!(huge(&[1 << 40]), FrameError::TooLarge { limit: 630, .. }));
    assert!(matches!(huge(&[631]), FrameError::TooLarge { .. }));
    assert!(matches!(huge(&[0]), FrameError::Malformed(_)));
    let mut budget = Budget::new(4 * 600 - 1);
    let over = FrameError::OverBudget { tensor: "fc".into(), bytes: 2400, left: 2399, limit: 2399 };
    assert_eq!(frame(&ZEROS).decode(&mut budget), Err(over));
    assert_eq!(
        frame(&ZEROS).decode(&mut budget).unwrap_err().to_string().matches("max").count(),
        2
    );

    // A shape whose product overflows cannot be written, only forged.
    let forged = [
        &b"GWFR\x01\x00\0\0"[..],
        &[2],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f],
        b"\x043lc!",
    ]
    .concat();
    assert_eq!(read(&forged), Err(FrameError::Truncated));
    let mut forged = forged[..27].to_vec();
    forged.extend_from_slice(b"\x033lc\x01t\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0");
    assert!(matches!(read(&sealed(forged)), Err(FrameError::TooLarge { .. })));
}

#[test]
fn a_malformed_message_names_its_tensor() {
    let mut message = ZEROS;
    message[12] = 250;
    let error = frame(&message).decode(&mut Budget::for_frames(0)).unwrap_err();
    assert_eq!(
        error,
        FrameError::Message { tensor: "fc".into(), source: DecodeError::Trailing { extra: 1 } }
    );
}

#[test]
fn the_default_budget_is_in_proportion_with_a_floor() {
    let allows = |mut budget: Budget, bytes: u64| {
        budget.spend(&Tensor::new("t", &[(bytes / 4) as usize])).is_ok()
    };
    assert!(
        allows(Budget::for_frames(0), 1 << 28) && !allows(Budget::for_frames(0), (1 << 28) + 4)
    );
    let file = 1 << 20;
    assert!(allows(Budget::for_frames(file), 1 << 30));
    assert!(!allows(Budget::for_frames(file), (1 << 30) + 4));
    assert!(allows(Budget::for_frames(usize::MAX), 1 << 62));
}

#[test]
fn what_memory_cannot_hold_is_an_error() {
    let tensor = Tensor::new("zeros", &[(1 << 32) - 1, 1 << 24]);
    let spec: Spec = "threshold".parse().unwrap();
    // No frame of this compressor reads with this shape; the tensor stands in for a smaller
    // machine.
    let frame = Frame { spec, tensor, ..frame(&[]) };
    let error = frame.decode(&mut Budget::new(u64::MAX)).unwrap_err();
    assert!(matches!(error, FrameError::OutOfMemory { .. }), "{error}");
}

#[test]
fn a_tensor_of_65_dimensions_is_not_written() {
    let with = |dimensions: usize| Frame {
        tensor: Tensor::new("deep", &vec![1; dimensions]),
        ..frame(&[])
    };
    let mut bytes = Vec::new();
    let error = with(65).write(&mut bytes).unwrap_err();
    assert_eq!(error, FrameError::Dimensions { tensor: "deep".into(), dimensions: 65 });
    assert!(bytes.is_empty());
    with(64).write(&mut bytes).unwrap();
}
