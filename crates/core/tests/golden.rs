//! Frames of every compressor, written once and then frozen.
//!
//! A release must read, and write, what an earlier one wrote. `GRADWIRE_WRITE_GOLDEN=1` writes the
//! files that are absent and never changes one that is there. A change of format takes a new version
//! beside the old one.

mod common;

use std::fs;
use std::path::PathBuf;

use common::gaussian;
use gradwire::frame::Frame;
use gradwire::registry::REGISTRY;
use gradwire::{Dtype, Encoder, Family, Floats, Spec, Tensor};

/// A file, the configuration in it, and what shows that its messages take the path it is there for.
struct Golden {
    file: &'static str,
    spec: &'static str,
    claim: fn(&[u8]) -> bool,
}

const GOLDEN: &[Golden] = &[
    Golden { file: "none-v1", spec: "none", claim: |m| m.len() == 4 * ELEMENTS },
    Golden { file: "fp16-v1", spec: "fp16", claim: |m| m.len() == 2 * ELEMENTS },
    Golden { file: "bf16-v1", spec: "bf16", claim: |m| m.len() == 2 * ELEMENTS },
    Golden {
        file: "int8-v1",
        spec: "int8",
        claim: |m| m[4..].contains(&127) || m[4..].contains(&129),
    },
    Golden {
        file: "8bit-v1",
        spec: "8bit",
        claim: |m| m[4..].contains(&128) || m[4..].contains(&255),
    },
    Golden {
        file: "8bit-v1-fallback",
        spec: "8bit:code=huffman,ef=off",
        // So few elements do not pay for the lengths.
        claim: |m| m[4] == 0 && m.len() == 5 + ELEMENTS,
    },
    Golden { file: "qsgd-v1", spec: "qsgd", claim: |m| m.len() == 2 * 4 + ELEMENTS },
    Golden {
        file: "qsgd-v1-elias",
        spec: "qsgd:s=4,bucket=0,code=elias",
        claim: |m| (20..80).contains(&m.len()),
    },
    Golden {
        file: "qsgd-v1-huffman",
        spec: "qsgd:s=10,bucket=100,norm=max,code=huffman,ef=on",
        claim: |m| m[24] == 1 && m.len() < 24 + 300,
    },
    Golden { file: "lpc-svrg-v1", spec: "lpc-svrg:w=5", claim: |m| m.len() == 4 + 375 },
    Golden {
        file: "lpc-svrg-v1-clipped",
        spec: "lpc-svrg:lambda=0.25,code=huffman,ef=on",
        claim: |m| m[4] == 1 && m.len() < 4 + ELEMENTS,
    },
    Golden { file: "terngrad-v1", spec: "terngrad", claim: |m| m.len() == 4 + ELEMENTS / 5 },
    Golden {
        file: "terngrad-v1-unclipped",
        spec: "terngrad:clip=0",
        claim: |m| m[4..].iter().any(|&byte| byte != 121),
    },
    Golden {
        file: "terngrad-v1-huffman",
        spec: "terngrad:clip=0,code=huffman",
        claim: |m| m[5] == 1 && m.len() < 4 + ELEMENTS / 5,
    },
    Golden { file: "onebit-v1", spec: "onebit", claim: |m| m[3] & 0x80 != 0 && m[7] & 0x80 == 0 },
    Golden { file: "efsignsgd-v1", spec: "efsignsgd", claim: |m| m.len() == 4 + ELEMENTS / 8 },
    Golden { file: "natural-v1", spec: "natural", claim: |m| m.len() == ELEMENTS / 8 + ELEMENTS },
    Golden {
        file: "natural-v1-huffman",
        spec: "natural:code=huffman,ef=off",
        claim: |m| m[ELEMENTS / 8] == 1 && m.len() < 450,
    },
    Golden { file: "inceptionn-v1", spec: "inceptionn", claim: |m| (600..1800).contains(&m.len()) },
    Golden {
        file: "inceptionn-v1-huffman",
        spec: "inceptionn:b=126,code=huffman,ef=on",
        claim: |m| m[0] == 1 && m.len() < 1750,
    },
    Golden { file: "3lc-v1", spec: "3lc", claim: has_runs },
    Golden { file: "3lc-v1-s1.75", spec: "3lc:s=1.75", claim: has_runs },
    Golden {
        file: "3lc-v1-no-runs",
        spec: "3lc:zre=off",
        claim: |m| m[4..].iter().all(|&b| b < 243),
    },
    Golden { file: "entropy-bits-v1", spec: "entropy-bits:c=1", claim: |m| m[0] & 0x20 != 0 },
    Golden {
        file: "entropy-bits-v1-fixed",
        spec: "entropy-bits:bits=7,code=fixed,ef=on",
        claim: |m| m.len() == 9 + 525,
    },
    Golden { file: "topk-v1-rice", spec: "topk:ratio=0.02", claim: |m| m[..2] == [1, 12] },
    Golden { file: "topk-v1-bitmap", spec: "topk:ratio=0.4", claim: |m| m[..3] == [0, 0xf0, 1] },
    Golden { file: "topk-v1-raw", spec: "topk:positions=raw", claim: |m| m[..2] == [2, 6] },
    Golden {
        file: "topk-v1-sampled",
        spec: "topk:ratio=0.05,select=sampled,positions=bitmap",
        claim: |m| m[0] == 0 && m[1] == 30,
    },
    Golden { file: "threshold-v1", spec: "threshold:v=0.3", claim: |m| m[0] == 0 },
    Golden { file: "threshold-v1-dense", spec: "threshold", claim: |m| m[0] == 255 },
    Golden { file: "gradient-dropping-v1", spec: "gradient-dropping", claim: |m| m[1] == 1 },
    Golden { file: "dgc-v1", spec: "dgc:ratio=0.02", claim: |m| m[0] == 1 && m[1] >= 9 },
    Golden {
        file: "dgc-v1-warm-up",
        spec: "dgc:ratio=0.02,clip=1,warmup=10",
        claim: |m| m[1] > 100,
    },
    Golden { file: "sgc-v1", spec: "sgc:ratio=0.02", claim: |m| m[0] == 1 && m[1] >= 9 },
    Golden { file: "adaptive-v1", spec: "adaptive:ratio=0.02", claim: |m| m[..2] == [2, 0] },
    Golden {
        file: "adaptive-v1-large",
        spec: "adaptive:ratio=0.3,ef=on",
        claim: |m| m[0] == 1 && m[1] > 10,
    },
    Golden { file: "strom-v1", spec: "strom:tau=2", claim: |m| m[0] == 1 && m[1] > 20 },
    Golden { file: "strom-v1-dense", spec: "strom:tau=0.125", claim: |m| m[0] == 0 && m[2] >= 2 },
    Golden { file: "sbc-v1", spec: "sbc:p=0.02", claim: |m| m[0] & 0xc0 == 0 },
    Golden {
        file: "sbc-v1-derived",
        spec: "sbc:p=0.02,golomb=derived",
        claim: |m| m[0] & 0xdf == 5,
    },
    Golden { file: "sbc-v1-bf16", spec: "sbc:p=0.02,mean=bf16", claim: |m| m[0] & 0xc0 == 0x80 },
    Golden {
        file: "sbc-v1-sampled",
        spec: "sbc:p=0.02,select=sampled",
        claim: |m| m[0] & 0x80 == 0,
    },
    Golden { file: "dryden-v1", spec: "dryden:ratio=0.05", claim: |m| m[0] == 1 && m[1] > 20 },
    Golden { file: "adacomp-v1", spec: "adacomp:fc=60", claim: |m| m[0] < 2 && m[1] > 10 },
    Golden {
        file: "adacomp-v1-records",
        spec: "adacomp:fc=60,code=records",
        claim: |m| (14..80).contains(&m.len()),
    },
    Golden {
        file: "adacomp-v1-long-records",
        spec: "adacomp:factor=3,code=records",
        claim: |m| m.len() > 8 && m.len().is_multiple_of(2),
    },
    Golden { file: "local-selection-v1", spec: "local-selection:fc=60", claim: |m| m[1] == 10 },
    Golden {
        file: "qsparse-local-v1",
        spec: "qsparse-local:ratio=0.1",
        claim: |m| m[0] == 1 && m.len() > 1 + 4 + 60,
    },
    Golden {
        file: "qsparse-local-v1-random",
        spec: "qsparse-local:ratio=0.5,select=randomk,s=3,bucket=0,scale=off,code=huffman",
        claim: |m| m[4] == 1 && m.len() < 120,
    },
    Golden {
        file: "qsparse-local-v1-sign",
        spec: "qsparse-local:ratio=0.1,quantizer=sign",
        claim: |m| m[0] == 1 && m.len() > 1 + 4 + 8 && m.len() < 80,
    },
    Golden { file: "sketchml-v1", spec: "sketchml:groups=4", claim: |m| (20..50).contains(&m[0]) },
    Golden {
        file: "sketchml-v1-bytes",
        spec: "sketchml:buckets=16,groups=1,rows=3,load=2,keys=bytes",
        claim: |m| m[0] == 16 && m[66] >= 1 && m[67..100].contains(&0),
    },
    Golden {
        file: "sketchml-v1-huffman",
        spec: "sketchml:groups=1,code=huffman",
        claim: |m| (20..50).contains(&m[0]),
    },
    Golden { file: "atomo-v1", spec: "atomo", claim: |m| m[0] == 0 && m[1] >= 1 },
    Golden { file: "atomo-v1-plain", spec: "atomo:s=12", claim: |m| m[0] == 1 },
    Golden {
        file: "atomo-v1-entries",
        spec: "atomo:atoms=entries,s=100,ef=on",
        claim: |m| m[0] < 3 && m[1] > 0,
    },
    Golden {
        file: "atomo-v1-norm",
        spec: "atomo:atoms=entries,budget=l2",
        claim: |m| m[..2] == [2, 0] && m[3] > 3,
    },
    Golden { file: "randomk-v1", spec: "randomk:ratio=0.1", claim: |m| m.len() == 4 * 60 },
    Golden {
        file: "randomk-v1-independent",
        spec: "randomk:ratio=0.1,indices=independent",
        claim: |m| m.len() == 4 * 60,
    },
    Golden {
        file: "randomk-v1-unbiased",
        spec: "randomk:ratio=0.9,unbiased=on,ef=off",
        claim: |m| m.len() == 4 * 540,
    },
    Golden { file: "variance-v1", spec: "variance:alpha=0.5", claim: |m| m.len() > 300 },
    Golden {
        file: "variance-v1-huffman",
        spec: "variance:alpha=0.5,code=huffman",
        claim: |m| m[5] == 1 && m.len() > 250,
    },
    Golden { file: "signsgd-v1", spec: "signsgd", claim: |m| m.len() == 75 },
    Golden { file: "signum-v1", spec: "signum", claim: |m| m.len() == 75 },
    // 20 rows and 30 columns.
    Golden { file: "powersgd-v1", spec: "powersgd:rank=2", claim: |m| m.len() == 4 * 2 * 50 },
    Golden {
        file: "powersgd-v1-raw",
        spec: "powersgd:rank=12",
        claim: |m| m.len() == 4 * ELEMENTS,
    },
    Golden {
        file: "gradzip-v1",
        spec: "gradzip:rank=3,lambda=0.01",
        claim: |m| m.len() == 4 * 3 * 50,
    },
    // 37 slices, and a rest of 8.
    Golden {
        file: "gradiveq-v1",
        spec: "gradiveq:slice=16,keep=3",
        claim: |m| m.len() == 4 * (3 * (16 + 37) + 8),
    },
    Golden {
        file: "sketched-sgd-v1",
        spec: "sketched-sgd:ratio=0.01,rows=3",
        claim: |m| m.len() == 4 * (3 * 4 * 6 + 4 * 6),
    },
];

/// Files whose bytes depend on how a processor adds up, in the decomposition of a matrix: they are read as
/// ever, and written anew only on the like of the one that wrote them.
const ROUNDED: &[&str] = &["atomo-v1"];

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
    gaussian(ELEMENTS, step).iter().map(|x| x * x.abs()).collect()
}

/// The file's bytes as this build writes them, and the residual after them.
fn written(golden: &Golden) -> (Vec<u8>, Vec<f32>) {
    let spec: Spec = golden.spec.parse().unwrap();
    let tensor = Tensor::new("layer.weight", &SHAPE);
    let mut encoder = Encoder::new(&spec, SEED, 1);
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
        frame.write(&mut file);
    }
    (file, encoder.residual("layer.weight").unwrap_or(&[0.0; ELEMENTS]).to_vec())
}

fn path(golden: &Golden) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(golden.file)
        .with_added_extension("gw")
}

/// Checks what a file holds: two frames on the path it is there for, which with the residual make
/// up the gradients they were made from.
fn check(golden: &Golden, mut file: &[u8], residual: &[f32]) {
    let mut decoded = vec![0f64; ELEMENTS];
    for step in 0..STEPS {
        let frame = Frame::read(&mut file).unwrap();
        assert_eq!((frame.spec.to_string().as_str(), frame.step), (golden.spec, step));
        assert!((golden.claim)(frame.message), "{}, step {step}: another path", golden.file);
        for (sum, x) in decoded.iter_mut().zip(frame.decode(ELEMENTS).unwrap()) {
            *sum += f64::from(x);
        }
    }
    assert!(file.is_empty());
    let spec: Spec = golden.spec.parse().unwrap();
    if spec.memory().is_some() && spec.compressor().memory().is_none() {
        for (i, sum) in decoded.iter().enumerate() {
            let given: f64 = (0..STEPS).map(|step| f64::from(gradient(step)[i])).sum();
            let error = (given - sum - f64::from(residual[i])).abs();
            assert!(error < 1e-4, "{}, element {i}: {error}", golden.file);
        }
    }
}

#[test]
fn files_are_written_and_read_as_ever() {
    let may_write = std::env::var_os("GRADWIRE_WRITE_GOLDEN").is_some_and(|set| set == "1");
    for golden in GOLDEN {
        let path = path(golden);
        let (bytes, residual) = written(golden);
        check(golden, &bytes, &residual);
        if may_write && !path.exists() {
            fs::write(&path, &bytes).unwrap();
        }
        let frozen = fs::read(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; GRADWIRE_WRITE_GOLDEN=1 writes a new file", path.display())
        });
        if ROUNDED.contains(&golden.file) {
            check(golden, &frozen, &residual);
        } else if golden.spec.parse::<Spec>().unwrap().entry().family == Family::LowRank {
            // Products of matrices are a library's, and round as the machine does.
            alike(golden, &frozen, &bytes);
        } else {
            assert!(frozen == bytes, "{}: this build writes other bytes", path.display());
        }
    }
}

/// Checks that two files decode to the same but for rounding.
fn alike<'a>(golden: &Golden, mut a: &'a [u8], mut b: &'a [u8]) {
    for _ in 0..STEPS {
        let [a, b] =
            [&mut a, &mut b].map(|file| Frame::read(file).unwrap().decode(ELEMENTS).unwrap());
        for (a, b) in a.iter().zip(b) {
            assert!((a - b).abs() < 1e-4, "{}: {a} and {b}", golden.file);
        }
    }
    assert!(a.is_empty() && b.is_empty());
}

#[test]
fn every_compressor_has_a_file() {
    for entry in REGISTRY {
        let of = |golden: &&Golden| golden.spec.split(':').next() == Some(entry.id);
        assert!(GOLDEN.iter().any(|golden| of(&golden)), "{} has no golden file", entry.id);
    }
}

#[test]
fn every_file_is_listed() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let stem = path.to_str().unwrap();
        assert!(GOLDEN.iter().any(|g| stem.ends_with(&format!("/{}.gw", g.file))), "{stem}");
    }
}
