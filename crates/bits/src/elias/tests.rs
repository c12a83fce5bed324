use super::*;
use alloc::format;
use alloc::string::String;
use proptest::prelude::*;

const ALL: [Elias; 3] = [Elias::Gamma, Elias::Delta, Elias::Omega];

/// The codes as Elias defines them, as strings of zeros and ones.
fn text(elias: Elias, value: u64) -> String {
    let binary = format!("{value:b}");
    match elias {
        Elias::Gamma => "0".repeat(binary.len() - 1) + &binary,
        Elias::Delta => text(Elias::Gamma, binary.len() as u64) + &binary[1..],
        Elias::Omega => {
            let (mut code, mut group) = (String::from("0"), value);
            while group != 1 {
                let binary = format!("{group:b}");
                group = binary.len() as u64 - 1;
                code = binary + &code;
            }
            code
        }
    }
}

/// Packs zeros and ones into bytes, from the lowest bit up.
fn bytes(bits: &str) -> Vec<u8> {
    let bits: Vec<u8> = bits.bytes().map(|bit| bit - b'0').collect();
    let byte = |bits: &[u8]| bits.iter().rev().fold(0, |byte, bit| byte << 1 | bit);
    bits.chunks(8).map(byte).collect()
}

fn written(elias: Elias, value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    let mut writer = BitWriter::new(&mut out);
    elias.write(value, &mut writer);
    writer.finish();
    out
}

fn read(elias: Elias, bytes: &[u8]) -> Result<(u64, usize), DecodeError> {
    let mut reader = BitReader::new(bytes);
    let value = elias.read(&mut reader)?;
    Ok((value, reader.finish()?))
}

#[test]
fn bits_by_hand() {
    let cases = [
        (Elias::Gamma, 1, "1"),
        (Elias::Gamma, 2, "010"),
        (Elias::Gamma, 5, "00101"),
        (Elias::Gamma, 300, "00000000100101100"),
        (Elias::Delta, 1, "1"),
        (Elias::Delta, 2, "0100"),
        (Elias::Delta, 4, "01100"),
        (Elias::Delta, 8, "00100000"),
        (Elias::Delta, 17, "001010001"),
        (Elias::Omega, 1, "0"),
        (Elias::Omega, 2, "100"),
        (Elias::Omega, 3, "110"),
        (Elias::Omega, 4, "101000"),
        (Elias::Omega, 16, "10100100000"),
        (Elias::Omega, 1000, "11100111111010000"),
    ];
    for (elias, value, bits) in cases {
        assert_eq!(elias.len(value) as usize, bits.len(), "{elias:?} {value}");
        assert_eq!(written(elias, value), bytes(bits), "{elias:?} {value}");
        let expected = (value, bits.len().div_ceil(8));
        assert_eq!(read(elias, &bytes(bits)), Ok(expected), "{elias:?} {value}");
    }
    // From the lowest bit up: 17 is 001010001.
    assert_eq!(written(Elias::Delta, 17), [0b0001_0100, 0b0000_0001]);
}

#[test]
fn entries_by_hand() {
    // γ: 1, 1, 010 and 00101, from the lowest; one bit is left.
    let entry = SEVERAL[Elias::Gamma as usize][0b10_1000_1011].to_le_bytes();
    assert_eq!(entry, [1, 1, 2, 5, 0, 0, 4, 10]);
    // δ: 0100, 01100; 01 is not whole. ω: six of one bit; 16 has eleven bits.
    let entry = SEVERAL[Elias::Delta as usize][0b100_0110_0010].to_le_bytes();
    assert_eq!(entry, [2, 4, 0, 0, 0, 0, 2, 9]);
    assert_eq!(SEVERAL[Elias::Omega as usize][0].to_le_bytes(), [1, 1, 1, 1, 1, 1, 6, 6]);
    let entry = SEVERAL[Elias::Omega as usize][0b000_0010_0101].to_le_bytes();
    assert_eq!(entry, [16, 0, 0, 0, 0, 0, 1, 11]);
    assert_eq!(SEVERAL[Elias::Gamma as usize][0], 0);
}

#[test]
fn all_sizes_are_those_of_the_definition() {
    let edges = (0..64).flat_map(|bit| [1 << bit, (1 << bit) + 1, u64::MAX >> bit]);
    for value in (1..2000).chain(edges).chain([u64::MAX]) {
        for elias in ALL {
            let bits = text(elias, value);
            assert_eq!(elias.len(value) as usize, bits.len(), "{elias:?} {value}");
            assert_eq!(written(elias, value), bytes(&bits), "{elias:?} {value}");
            assert_eq!(read(elias, &bytes(&bits)).map(|(value, _)| value), Ok(value));
        }
    }
}

#[test]
fn numbers_that_end_early_or_never_are_refused() {
    for elias in ALL {
        for value in [2, 9, 300, 1 << 40, u64::MAX] {
            let code = written(elias, value);
            for end in 0..code.len() {
                assert!(read(elias, &code[..end]).is_err(), "{elias:?} {value} at {end}");
            }
        }
        assert_eq!(read(elias, &[]), Err(DecodeError::Truncated));
        assert_eq!(elias.decode(&[0xff], 9, &mut Vec::new()), Err(DecodeError::Truncated));
    }
    assert_eq!(read(Elias::Gamma, &[0; 20]), Err(TOO_LARGE));
    assert_eq!(read(Elias::Delta, &[0; 20]), Err(TOO_LARGE));
    // A length of 65: 0000001000001.
    assert_eq!(
        read(Elias::Delta, &bytes(&(text(Elias::Gamma, 65) + &"1".repeat(70)))),
        Err(TOO_LARGE)
    );
    assert_eq!(read(Elias::Omega, &[0xff; 40]), Err(TOO_LARGE));
    let long = written(Elias::Gamma, 1 << 32);
    assert_eq!(Elias::Gamma.decode(&long, 1, &mut Vec::new()), Err(TOO_LARGE));
    let padded = DecodeError::Corrupt("padding bits are not zero");
    assert_eq!(Elias::Gamma.decode(&[0b1000_1011], 2, &mut Vec::new()), Err(padded));
}

#[test]
#[should_panic(expected = "numbers of 1 or more")]
fn zero_has_no_code() {
    Elias::Omega.encode(&[0], &mut Vec::new());
}

proptest! {
    #[test]
    fn numbers_return(values: Vec<u32>, shift in 0u32..32) {
        let values: Vec<u32> = values.iter().map(|value| (value >> shift).max(1)).collect();
        for elias in ALL {
            let mut code = Vec::new();
            elias.encode(&values, &mut code);
            let bits: String = values.iter().map(|&value| text(elias, value.into())).collect();
            prop_assert_eq!(elias.len_bits(&values), bits.len() as u64);
            prop_assert_eq!(&code, &bytes(&bits));
            let mut back = Vec::new();
            prop_assert_eq!(elias.decode(&code, values.len(), &mut back), Ok(code.len()));
            prop_assert_eq!(&back, &values);
        }
    }

    #[test]
    fn several_numbers_are_those_read_one_by_one(
        noise in prop::collection::vec(any::<u8>(), 0..200), sparse: bool, count in 0usize..900,
    ) {
        // With few ones the codes of γ and δ are long, and the codes of ω short.
        let noise: Vec<u8> =
            noise.iter().map(|byte| if sparse { byte & byte.rotate_left(3) } else { *byte }).collect();
        for elias in ALL {
            let mut reader = BitReader::new(&noise);
            let one = |_| u32::try_from(elias.read(&mut reader)?).map_err(|_| TOO_LARGE);
            let numbers: Result<Vec<u32>, _> = (0..count).map(one).collect();
            let expected = numbers.and_then(|numbers| Ok((numbers, reader.finish()?)));
            let mut values = alloc::vec![5];
            let result = elias.decode(&noise, count, &mut values);
            prop_assert_eq!(result.map(|used| (values[1..].to_vec(), used)).ok(), expected.ok());
        }
    }

    #[test]
    fn any_bytes_are_numbers_or_an_error(noise: Vec<u8>, count in 0usize..100) {
        for elias in ALL {
            let mut values = Vec::new();
            if let Ok(used) = elias.decode(&noise, count, &mut values) {
                let mut code = Vec::new();
                elias.encode(&values, &mut code);
                prop_assert_eq!(&code, &noise[..used]);
            }
        }
    }
}
