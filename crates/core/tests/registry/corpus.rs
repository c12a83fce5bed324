//! The corpora of the fuzz targets, replayed.
//!
//! Every input that a fuzzer found and that was kept in `fuzz/corpus` is checked again by the
//! functions of `fuzz/checks.rs`. `cargo xtask corpus`, or `GRADWIRE_WRITE_CORPUS=1`, adds the
//! golden files as seeds; they are replayed as frames too.

#[path = "../../../../fuzz/checks.rs"]
mod checks;

use std::fs;
use std::path::{Path, PathBuf};

use gradwire::frame::Frame;
use gradwire::registry::REGISTRY;
use gradwire::{Decoder, Encoder, Floats, Spec, State, Tensor};
use gradwire_bits::huffman::{self, Code};
use gradwire_bits::tans::{self, groups};

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

/// Name and content of every file of a folder, in order; empty if there is no such folder.
fn files(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
    let name = |path: &Path| path.file_name().unwrap().to_str().unwrap().to_owned();
    let mut files: Vec<_> = paths.map(|path| (name(&path), fs::read(&path).unwrap())).collect();
    files.sort();
    files
}

fn golden() -> Vec<(String, Vec<u8>)> {
    files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden"))
}

/// The golden files of frames without a message.
fn stored() -> Vec<(String, Vec<u8>)> {
    files(&PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/stored"))
}

fn may_write() -> bool {
    std::env::var_os("GRADWIRE_WRITE_CORPUS").is_some_and(|set| set == "1")
}

fn write(folder: &str, name: &str, input: &[u8]) {
    let folder = corpus().join(folder);
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), input).unwrap();
}

/// Names the input under test when its check panics.
struct Named<'a>(&'a str);

impl Drop for Named<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the input that fails: {}", self.0);
        }
    }
}

#[test]
fn messages() {
    if may_write() {
        for (name, file) in golden() {
            let frame = Frame::read(&mut &file[..]).unwrap();
            let folder = format!("messages/{}", frame.spec.entry().id);
            let input = checks::input(&frame.spec, frame.message);
            write(&folder, name.trim_end_matches(".gw"), &input);
        }
        for (text, name, message) in in_codes_of_long_lists() {
            let spec: Spec = text.parse().unwrap();
            let folder = format!("messages/{}", spec.entry().id);
            write(&folder, name, &checks::input(&spec, &message));
        }
    }
    for entry in REGISTRY {
        let inputs = files(&corpus().join("messages").join(entry.id));
        assert!(!inputs.is_empty(), "{} has no corpus; run cargo xtask corpus", entry.id);
        for (name, input) in inputs {
            let name = format!("{}/{name}", entry.id);
            let _named = Named(&name);
            checks::message(entry.id, &input);
        }
    }
}

/// Messages of 600 elements in codes that writers use for longer ones.
fn in_codes_of_long_lists() -> [(&'static str, &'static str, Vec<u8>); 7] {
    let symbols: Vec<u16> = (0..600u32).map(|i| (i * i % 61 % 8) as u16).collect();
    let counts = |symbols: &[u16], alphabet: usize| {
        let mut counts = vec![0; alphabet];
        huffman::count(symbols, &mut counts);
        counts
    };
    let streams = |alphabet: usize, head: &[u8]| {
        let mut code = Code::default();
        code.fit(&counts(&symbols, alphabet), huffman::limit(alphabet));
        let mut message = head.to_vec();
        code.write(&mut message);
        code.encode_streams(&symbols, &mut message);
        message
    };
    let tans = |symbols: &[u16], alphabet: usize, head: &[u8]| {
        let mut code = tans::Code::default();
        code.fit(&counts(symbols, alphabet));
        let mut message = head.to_vec();
        code.write(&mut message);
        code.encode(symbols, &mut message);
        message
    };
    let pairs = |symbols: &[u16], alphabet: usize, head: &[u8]| {
        let mut values = Vec::new();
        groups::join(symbols, alphabet, 2, &mut values);
        tans(&values, alphabet * alphabet, &[head, &[2]].concat())
    };
    let ternary: Vec<u16> = symbols.iter().map(|symbol| symbol % 3).collect();
    // 0 to 3 become 0, which is then the most frequent symbol.
    let map = |alphabet: usize, head: &[u8]| {
        let most: Vec<u16> = symbols.iter().map(|symbol| symbol.saturating_sub(3)).collect();
        let marks: Vec<u16> = most.iter().map(|&symbol| u16::from(symbol > 0)).collect();
        let others: Vec<u16> = most.into_iter().filter(|&symbol| symbol > 0).collect();
        let mut message = tans(&marks, 2, &[head, &[0, 0, 3]].concat());
        let mut code = Code::default();
        code.fit(&counts(&others, alphabet), huffman::limit(alphabet));
        message.push(1);
        code.write(&mut message);
        code.encode(&others, &mut message);
        message
    };
    // A scale of 1; three bits from 0 to 1.
    let scale = [0, 0, 0x80, 0x3f];
    let bins = |head: u8| [head, 0, 0, 0, 0, 0, 0, 0x80, 0x3f];
    let [bytes, levels] = ["8bit:code=huffman,ef=off", "qsgd:s=1,bucket=0,code=huffman"];
    [
        (bytes, "four-streams", streams(256, &[&scale[..], &[2]].concat())),
        (bytes, "tans", tans(&symbols, 256, &[&scale[..], &[3]].concat())),
        (bytes, "significance-map", map(256, &[&scale[..], &[6]].concat())),
        (levels, "tans-of-pairs", pairs(&ternary, 3, &[&scale[..], &[4]].concat())),
        ("entropy-bits", "four-streams", streams(8, &bins(0x63))),
        ("entropy-bits", "tans-of-pairs", pairs(&symbols, 8, &bins(0x83))),
        ("entropy-bits", "significance-map", map(8, &bins(0xa3))),
    ]
}

#[test]
fn seeds_in_codes_of_long_lists_are_accepted() {
    for (text, _, message) in in_codes_of_long_lists() {
        let (tensor, mut out) = (Tensor::new("t", &[20, 30]), [0.0; 600]);
        let mut decoder = Decoder::new(&text.parse().unwrap(), 11);
        decoder.decode_add(&tensor, 3, 2, &message, 1.0, &mut out).unwrap();
    }
}

#[test]
fn golden_messages_are_seeds_of_their_own_configuration() {
    let mut missing = Vec::new();
    for (name, file) in golden() {
        let frame = Frame::read(&mut &file[..]).unwrap();
        let input = checks::input(&frame.spec, frame.message);
        // A first byte of 0 chooses the default configuration and the shape of the golden files.
        if input[0] == 0 && frame.spec != Spec::of(frame.spec.entry()) {
            missing.push(frame.spec.to_string());
        }
        assert_eq!((frame.tensor.shape(), input[0] % 8), (&[20, 30][..], 0), "{name}");
        // Seed, tensor, step and rank are those of the checks, not those of the frame.
        let (tensor, mut out) = (Tensor::new("t", frame.tensor.shape()), [0.0; 600]);
        let decoded =
            Decoder::new(&frame.spec, 11).decode_add(&tensor, 3, 2, &input[1..], 1.0, &mut out);
        assert!(decoded.is_ok(), "{name}: {decoded:?}");
    }
    assert!(missing.is_empty(), "add to the examples of their entries: {missing:#?}");
}

#[test]
fn frames() {
    if may_write() {
        for (name, file) in stored() {
            write("frames", &format!("stored-{}", name.trim_end_matches(".gw")), &file);
        }
    }
    for (name, input) in golden().into_iter().chain(files(&corpus().join("frames"))) {
        let _named = Named(&name);
        checks::frames(&input);
    }
}

#[test]
fn states() {
    if may_write() {
        let (mut state, mut message) = (State::new(), Vec::new());
        let mut encoder = Encoder::new(&"3lc".parse().unwrap(), 1, 0);
        let tensor = Tensor::new("fc.weight", &[3]);
        encoder.encode(&tensor, 0, Floats::F32(&[1.0, 0.25, -0.5]), &mut message).unwrap();
        encoder.save("rank0/", &mut state);
        state.set_number("step", 7);
        state.set_setting("tab\tand\\line\n", "x");
        state.set_bytes("record", b"{}".to_vec());
        write("states", "saved", &state.to_bytes().unwrap());
    }
    let inputs = files(&corpus().join("states"));
    assert!(!inputs.is_empty(), "there is no corpus; run cargo xtask corpus");
    for (name, input) in inputs {
        let _named = Named(&name);
        checks::state(&input);
    }
}
