use std::fs;

use safetensors::{Dtype, SafeTensors};

use super::*;

fn sample() -> State {
    let mut state = State::new();
    state.set_floats("a/m", vec![1.0, -0.0, f32::MIN_POSITIVE]);
    state.set_floats("a/empty", vec![]);
    state.set_floats("b/m", vec![2.0]);
    state.set_bytes("a/text", b"\0bytes".to_vec());
    state.set_bytes("b/none", vec![]);
    state.set_number("a/step", u64::MAX);
    state.set_setting("a/spec", "3lc:s=1.5");
    state.set_setting("a/odd\tkey\\n", "line\nline\ttab\\");
    state
}

#[test]
fn entries_come_back_by_name() {
    let state = sample();
    assert_eq!(state.floats("b/m").unwrap(), [2.0]);
    assert_eq!(state.bytes("a/text").unwrap(), b"\0bytes");
    assert!(state.bytes("b/m").is_err() && state.floats("a/text").is_err());
    assert_eq!(state.number("a/step").unwrap(), u64::MAX);
    assert_eq!(state.setting("a/spec").unwrap(), "3lc:s=1.5");
    assert!(matches!(state.floats("c"), Err(StateError::Missing(name)) if name == "c"));
    assert!(matches!(state.number("b/m"), Err(StateError::Missing(_))));
    let mismatch = state.expect_setting("a/spec", "3lc").unwrap_err().to_string();
    assert!(mismatch.contains("3lc:s=1.5") && mismatch.contains("a/spec"));
}

#[test]
fn prefixes_select_and_merge() {
    let state = sample();
    let names: Vec<_> = state.floats_under("a/").map(|(name, _)| name).collect();
    assert_eq!(names, ["empty", "m"]);
    let part = state.extract("a/");
    assert_eq!(part.number("step").unwrap(), u64::MAX);
    assert!(part.floats("b/m").is_err());
    let mut other = State::new();
    other.merge("a/", part);
    other.merge("b/", state.extract("b/"));
    assert_eq!(other, state);
}

#[test]
fn bytes_come_back_bit_for_bit() {
    let state = sample();
    let bytes = state.to_bytes().unwrap();
    assert_eq!(bytes, state.clone().to_bytes().unwrap());
    let back = State::from_bytes(&bytes).unwrap();
    assert_eq!(back, state);
    assert_eq!(back.floats("a/m").unwrap()[1].to_bits(), (-0.0f32).to_bits());
    assert_eq!(State::from_bytes(&State::new().to_bytes().unwrap()).unwrap(), State::new());
}

#[test]
fn other_tools_can_read_the_arrays() {
    let bytes = sample().to_bytes().unwrap();
    let file = SafeTensors::deserialize(&bytes).unwrap();
    let array = file.tensor("b/m").unwrap();
    assert_eq!((array.shape(), array.data()), (&[1][..], &[0, 0, 0, 0x40][..]));
    let array = file.tensor("a/text").unwrap();
    assert_eq!((array.dtype(), array.data()), (Dtype::U8, &b"\0bytes"[..]));
}

#[test]
fn long_texts_are_arrays_of_bytes() {
    let long = "\"".repeat(51_000_000);
    let mut state = State::new();
    state.set_bytes("text", long.clone().into_bytes());
    let back = State::from_bytes(&state.to_bytes().unwrap()).unwrap();
    assert_eq!(back.bytes("text").unwrap().len(), long.len());
    // In the metadata each quote takes two bytes.
    state.set_setting("text", long);
    let error = state.to_bytes().unwrap_err();
    assert!(matches!(error, StateError::TooLarge), "{error}");
}

#[test]
fn every_damage_is_noticed() {
    let state = sample();
    let bytes = state.to_bytes().unwrap();
    for len in 0..bytes.len() {
        assert!(State::from_bytes(&bytes[..len]).is_err(), "cut at {len}");
    }
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            // A changed bit may turn a space of the header's padding into other white space;
            // nothing else passes.
            if let Ok(same) = State::from_bytes(&bad) {
                assert_eq!(same, state, "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn files_appear_whole_or_not_at_all() {
    let folder = std::env::temp_dir().join(format!("gradwire-state-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let path = folder.join("run.safetensors");
    sample().write_atomic(&path).unwrap();
    assert_eq!(State::read(&path).unwrap(), sample());
    let names: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["run.safetensors"]);

    let absent = folder.join("no-such-folder/run");
    let error = sample().write_atomic(&absent).unwrap_err().to_string();
    assert!(error.contains("no-such-folder"), "{error}");
    assert!(matches!(State::read(&absent), Err(StateError::File { .. })));
    fs::remove_dir_all(&folder).unwrap();
}
