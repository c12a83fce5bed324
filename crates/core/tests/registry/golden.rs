//! Frames of every compressor, written once and then frozen.
//!
//! A release must read, and write, the same bytes as earlier ones. `cargo xtask golden`, or
//! `GRADWIRE_WRITE_GOLDEN=1`, writes the files that are absent and never changes one that is there.
//! A change of format takes a new version beside the old one. A file is found by the configuration
//! in its frames; its name is for people.

mod stored;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::path::PathBuf;

use crate::common::gaussian;
use gradwire::frame::{Budget, Frame};
use gradwire::registry::REGISTRY;
use gradwire::{Dtype, Encoder, Family, Floats, Residual, Spec, Tensor};

/// Shows that a message took the code path that its configuration is meant to test.
type Claim = fn(&[u8]) -> bool;

const CLAIMS: &[(&str, Claim)] = &[
    ("none", |m| m.len() == 4 * ELEMENTS),
    ("fp16", |m| m.len() == 2 * ELEMENTS),
    ("bf16", |m| m.len() == 2 * ELEMENTS),
    ("lossless", |m| m[0] == 0 && m.len() < 4 * ELEMENTS * 87 / 100),
    ("int8", |m| m[4..].contains(&127) || m[4..].contains(&129)),
    ("8bit", |m| m[4..].contains(&128) || m[4..].contains(&255)),
    // So few elements do not pay for the lengths.
    ("8bit:code=huffman,ef=off", |m| m[4] == 0 && m.len() == 5 + ELEMENTS),
    ("qsgd", |m| m.len() == 2 * 4 + ELEMENTS),
    ("qsgd:s=4,bucket=0,code=elias", |m| (20..80).contains(&m.len())),
    ("qsgd:s=10,bucket=100,norm=max,code=huffman,ef=on", |m| m[24] == 1 && m.len() < 24 + 300),
    ("lpc-svrg:w=5", |m| m.len() == 4 + 375),
    ("lpc-svrg:lambda=0.25,code=huffman,ef=on", |m| m[4] == 1 && m.len() < 4 + ELEMENTS),
    ("terngrad", |m| m.len() == 4 + ELEMENTS / 5),
    ("terngrad:clip=0", |m| m[4..].iter().any(|&byte| byte != 121)),
    ("terngrad:clip=0,code=huffman", |m| m[5] == 1 && m.len() < 4 + ELEMENTS / 5),
    ("onebit", |m| m[3] & 0x80 != 0 && m[7] & 0x80 == 0),
    ("efsignsgd", |m| m.len() == 4 + ELEMENTS / 8),
    ("natural", |m| m.len() == ELEMENTS / 8 + ELEMENTS),
    ("natural:code=huffman,ef=off", |m| m[ELEMENTS / 8] == 1 && m.len() < 450),
    ("inceptionn", |m| (600..1800).contains(&m.len())),
    ("inceptionn:b=126,code=huffman,ef=on", |m| m[0] == 1 && m.len() < 1750),
    ("3lc", has_runs),
    ("3lc:s=1.75", has_runs),
    ("3lc:zre=off", |m| m[4..].iter().all(|&b| b < 243)),
    ("entropy-bits:c=1", |m| m[0] & 0x20 != 0),
    ("entropy-bits:bits=7,code=fixed,ef=on", |m| m.len() == 9 + 525),
    ("topk:ratio=0.02", |m| m[..2] == [1, 12]),
    ("topk:ratio=0.4", |m| m[..3] == [0, 0xf0, 1]),
    ("topk:positions=raw", |m| m[..2] == [2, 6]),
    ("topk:ratio=0.05,select=sampled,positions=bitmap", |m| m[0] == 0 && m[1] == 30),
    ("threshold:v=0.3", |m| m[0] == 0),
    ("threshold", |m| m[0] == 255),
    ("gradient-dropping", |m| m[1] == 1),
    ("dgc:ratio=0.02", |m| m[0] == 1 && m[1] >= 9),
    ("dgc:ratio=0.02,clip=1,warmup=10", |m| m[1] > 100),
    ("sgc:ratio=0.02", |m| m[0] == 1 && m[1] >= 9),
    ("adaptive:ratio=0.02", |m| m[..2] == [2, 0]),
    ("adaptive:ratio=0.3,ef=on", |m| m[0] == 1 && m[1] > 10),
    ("strom:tau=2", |m| m[0] == 1 && m[1] > 20),
    ("strom:tau=0.125", |m| m[0] == 0 && m[2] >= 2),
    ("sbc:p=0.02", |m| m[0] & 0xc0 == 0),
    ("sbc:p=0.02,golomb=derived", |m| m[0] & 0xdf == 5),
    ("sbc:p=0.02,mean=bf16", |m| m[0] & 0xc0 == 0x80),
    ("sbc:p=0.02,select=sampled", |m| m[0] & 0x80 == 0),
    ("dryden:ratio=0.05", |m| m[0] == 1 && m[1] > 20),
    ("adacomp:fc=60", |m| m[0] < 2 && m[1] > 10),
    ("adacomp:fc=60,code=records", |m| (14..80).contains(&m.len())),
    ("adacomp:factor=3,code=records", |m| m.len() > 8 && m.len().is_multiple_of(2)),
    ("local-selection:fc=60", |m| m[1] == 10),
    ("qsparse-local:ratio=0.1", |m| m[0] == 1 && m.len() > 1 + 4 + 60),
    ("qsparse-local:ratio=0.5,select=randomk,s=3,bucket=0,scale=off,code=huffman", |m| {
        m[4] == 1 && m.len() < 120
    }),
    ("qsparse-local:ratio=0.1,quantizer=sign", |m| {
        m[0] == 1 && m.len() > 1 + 4 + 8 && m.len() < 80
    }),
    ("sketchml:groups=4", |m| (20..50).contains(&m[0])),
    ("sketchml:buckets=16,groups=1,rows=3,load=2,keys=bytes", |m| {
        m[0] == 16 && m[66] >= 1 && m[67..100].contains(&0)
    }),
    ("sketchml:groups=1,code=huffman", |m| (20..50).contains(&m[0])),
    ("atomo", |m| m[0] == 0 && m[1] >= 1),
    ("atomo:s=12", |m| m[0] == 1),
    ("atomo:rank=2", |m| m[0] == 0 && m[1] >= 1),
    ("atomo:atoms=entries,s=100,ef=on", |m| m[0] < 3 && m[1] > 0),
    ("atomo:atoms=entries,budget=l2", |m| m[..2] == [2, 0] && m[3] > 3),
    ("randomk:ratio=0.1", |m| m.len() == 4 * 60),
    ("randomk:ratio=0.1,indices=independent", |m| m.len() == 4 * 60),
    ("randomk:ratio=0.9,unbiased=on,ef=off", |m| m.len() == 4 * 540),
    ("variance:alpha=0.5", |m| m.len() > 300),
    ("variance:alpha=0.5,code=huffman", |m| m[5] == 1 && m.len() > 250),
    ("signsgd", |m| m.len() == 75),
    ("signum", |m| m.len() == 75),
    // 20 rows and 30 columns.
    ("powersgd:rank=2", |m| m.len() == 4 * 2 * 50),
    ("powersgd:rank=12", |m| m.len() == 4 * ELEMENTS),
    ("gradzip:rank=3,lambda=0.01", |m| m.len() == 4 * 3 * 50),
    // 37 slices, and a rest of 8.
    ("gradiveq:slice=16,keep=3", |m| m.len() == 4 * (3 * (16 + 37) + 8)),
    ("sketched-sgd:ratio=0.01,rows=3", |m| m.len() == 4 * (3 * 4 * 6 + 4 * 6)),
];

const SHAPE: [usize; 2] = [20, 30];
const ELEMENTS: usize = 600;
const STEPS: u64 = 2;
const SEED: u64 = 0x5eed;

fn has_runs(message: &[u8]) -> bool {
    message[4..].iter().any(|&byte| byte > 242)
        && message[4..].iter().any(|&byte| byte < 243 && byte != 121)
}

/// Squares of normal values with their signs: a few large ones among many small, as gradients are.
fn gradient(step: u64) -> Vec<f32> {
    squares(ELEMENTS, step)
}

fn squares(elements: usize, step: u64) -> Vec<f32> {
    gaussian(elements, step).iter().map(|x| x * x.abs()).collect()
}

/// The configurations that have a file: of each compressor the defaults and the examples, with the
/// file's name.
fn configurations() -> impl Iterator<Item = (Spec, String)> {
    REGISTRY.iter().flat_map(|entry| {
        [""].iter().chain(entry.examples).map(|text| {
            let name = if text.is_empty() { "defaults" } else { text };
            let spec = Spec::with_parameters(entry, text).unwrap();
            (spec, format!("{}-v1-{name}.gw", entry.id))
        })
    })
}

/// The bytes of a configuration's file as this build writes them, and the residual after them.
fn written(spec: &Spec) -> (Vec<u8>, Vec<f32>) {
    let tensor = Tensor::new("layer.weight", &SHAPE);
    let mut encoder = Encoder::new(spec, SEED, 1);
    let (mut file, mut message) = (Vec::new(), Vec::new());
    for step in 0..STEPS {
        message.clear();
        encoder.encode(&tensor, step, Floats::F32(&gradient(step)), &mut message).unwrap();
        let frame = Frame {
            spec: spec.clone(),
            tensor: tensor.clone(),
            dtype: Dtype::F32,
            seed: SEED,
            step,
            rank: 1,
            message: &message,
        };
        frame.write(&mut file).unwrap();
    }
    (file, encoder.residual("layer.weight").unwrap_or(&[0.0; ELEMENTS]).to_vec())
}

fn folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The files there are, by configuration.
fn frozen() -> BTreeMap<String, Vec<u8>> {
    let read = |entry: std::io::Result<fs::DirEntry>| {
        let path = entry.unwrap().path();
        let file = fs::read(&path).unwrap();
        let frame = Frame::read(&mut &file[..]);
        let spec = frame.unwrap_or_else(|error| panic!("{}: {error}", path.display())).spec;
        (spec.to_string(), file)
    };
    let entries = fs::read_dir(folder()).unwrap();
    let is_file = |entry: &std::io::Result<fs::DirEntry>| entry.as_ref().unwrap().path().is_file();
    entries.filter(is_file).map(read).collect()
}

/// Checks the content of a file: two frames that took the claimed code path, and whose sum with the
/// residual is the sum of the gradients.
fn check(spec: &Spec, mut file: &[u8], residual: &[f32]) {
    let claim = CLAIMS
        .iter()
        .find(|(claimed, _)| claimed.parse::<Spec>().is_ok_and(|claimed| claimed == *spec));
    let mut decoded = vec![0f64; ELEMENTS];
    for step in 0..STEPS {
        let frame = Frame::read(&mut file).unwrap();
        assert_eq!((&frame.spec, frame.step), (spec, step));
        assert!(
            claim.is_none_or(|(_, holds)| holds(frame.message)),
            "{spec}, {step}: another path"
        );
        for (sum, x) in decoded.iter_mut().zip(frame.decode(&mut Budget::for_frames(0)).unwrap()) {
            *sum += f64::from(x);
        }
    }
    assert!(file.is_empty());
    if spec.feedback() == Some(Residual::PLAIN) && spec.compressor().memory().is_none() {
        for (i, sum) in decoded.iter().enumerate() {
            let given: f64 = (0..STEPS).map(|step| f64::from(gradient(step)[i])).sum();
            let error = (given - sum - f64::from(residual[i])).abs();
            assert!(error < 1e-4, "{spec}, element {i}: {error}");
        }
    }
}

#[test]
fn this_build_writes_and_reads_the_same_bytes() {
    let may_write = std::env::var_os("GRADWIRE_WRITE_GOLDEN").is_some_and(|set| set == "1");
    let mut frozen = frozen();
    for (spec, name) in configurations() {
        let (bytes, residual) = written(&spec);
        check(&spec, &bytes, &residual);
        if may_write && !frozen.contains_key(&spec.to_string()) {
            let mut file = File::create_new(folder().join(&name)).unwrap();
            file.write_all(&bytes).unwrap();
            frozen.insert(spec.to_string(), bytes.clone());
        }
        let file = frozen.remove(&spec.to_string());
        let file = file.unwrap_or_else(|| {
            panic!("'{spec}' has no golden file; cargo xtask golden writes {name}")
        });
        if spec.entry().family == Family::LowRank {
            // Most files were written by a library that rounds otherwise.
            alike(&spec, &file, &bytes);
        } else {
            assert!(
                file == bytes,
                "this build writes '{spec}' in other bytes than its golden file tests/golden/{name}; for a compressor that was \
                 never released, delete that file and fuzz/corpus/messages/{}, and run cargo xtask generate",
                spec.entry().id
            );
        }
    }
    let others: Vec<_> = frozen.keys().collect();
    assert!(others.is_empty(), "golden files of what is no example of its compressor: {others:?}");
}

/// Checks that two files decode to the same values up to rounding.
fn alike<'a>(spec: &Spec, mut a: &'a [u8], mut b: &'a [u8]) {
    for _ in 0..STEPS {
        let [a, b] = [&mut a, &mut b]
            .map(|file| Frame::read(file).unwrap().decode(&mut Budget::for_frames(0)).unwrap());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 3e-4 * (1.0 + a.abs()), "{spec}: {a} and {b}");
        }
    }
    assert!(a.is_empty() && b.is_empty());
}

#[test]
fn claims_are_of_golden_files() {
    let known: Vec<Spec> = configurations().map(|(spec, _)| spec).collect();
    for (text, _) in CLAIMS {
        assert!(known.contains(&text.parse().unwrap()), "{text}");
    }
}

/// Configurations whose long messages have another form, with a claim for it. Their files are in
/// `golden/large`.
const LARGE: &[(&str, Claim)] = &[
    ("8bit:code=huffman", |m| m[4] == 2),
    ("natural:code=huffman", |m| m[LARGE_SHAPE[0] * LARGE_SHAPE[1] / 8] == 2),
    ("qsgd:code=huffman", |m| m[4 * (LARGE_SHAPE[0] * LARGE_SHAPE[1]).div_ceil(512)] == 2),
    ("qsgd:s=4,code=huffman", |m| m[4 * (LARGE_SHAPE[0] * LARGE_SHAPE[1]).div_ceil(512)] == 6),
    ("entropy-bits", |m| m[0] & 0xe0 == 0x60),
    ("entropy-bits:c=1", |m| m[0] & 0xe0 == 0xa0),
];

const LARGE_SHAPE: [usize; 2] = [100, 200];

#[test]
fn large_messages_have_the_same_bytes() {
    let may_write = std::env::var_os("GRADWIRE_WRITE_GOLDEN").is_some_and(|set| set == "1");
    for (text, holds) in LARGE {
        let (spec, tensor): (Spec, _) = (text.parse().unwrap(), Tensor::new("fc", &LARGE_SHAPE));
        let (gradient, mut message) = (squares(tensor.elements(), 3), Vec::new());
        let mut encoder = Encoder::new(&spec, SEED, 1);
        encoder.encode(&tensor, 3, Floats::F32(&gradient), &mut message).unwrap();
        assert!(holds(&message), "{spec} took another path");
        let (dtype, message) = (Dtype::F32, message.as_slice());
        let frame =
            Frame { spec: spec.clone(), tensor, dtype, seed: SEED, step: 3, rank: 1, message };
        let mut bytes = Vec::new();
        frame.write(&mut bytes).unwrap();
        let name = text.split_once(':').map_or("defaults", |(_, parameters)| parameters);
        let path = folder().join(format!("large/{}-v1-{name}.gw", spec.entry().id));
        if may_write && !path.exists() {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, &bytes).unwrap();
        }
        let file = fs::read(&path).unwrap_or_else(|_| {
            panic!("{} is missing; cargo xtask golden writes it", path.display())
        });
        assert!(file == bytes, "this build writes '{spec}' in other bytes than its golden file");
        let decoded = Frame::read(&mut &file[..]).unwrap().decode(&mut Budget::for_frames(0));
        if let Some(residual) = encoder.residual("fc") {
            for ((given, sent), left) in gradient.iter().zip(decoded.unwrap()).zip(residual) {
                assert!((given - sent - left).abs() < 1e-4, "{spec}: {given}");
            }
        } else {
            assert_eq!(decoded.unwrap().len(), gradient.len());
        }
    }
}
