//! Tensor files to frames and back: `compress`, `decompress`, `inspect`.

mod support;

#[cfg(target_os = "linux")]
use std::process::Command;

use gradwire::frame::Frame;
use gradwire::{Dtype, Tensor};
use serde_json::Value;
use support::Bench;

#[test]
fn a_million_zeros_shrink_280_times_up_to_the_frame_header() {
    let bench = Bench::new();
    bench.floats("zeros.npy", &vec![0.0; 1 << 20]);
    bench.ok("compress zeros.npy zeros.gw --compressor 3lc");
    let rows: Value = serde_json::from_str(&bench.ok("inspect zeros.gw --json")).unwrap();
    // The scale, and a byte for each 14 bytes of five elements: ⌈⌈2²⁰ / 5⌉ / 14⌉ = 14980.
    assert_eq!(rows[0]["message_bytes"], 14984);
    assert_eq!(rows[0]["compressor"], "3lc");
    let frame = bench.read("zeros.gw").len();
    assert!(frame - 14984 < 64, "a header of {} bytes", frame - 14984);
}

#[test]
fn tensors_come_back_as_their_compressor_decodes_them() {
    let bench = Bench::new();
    let values = [0.5f32, -2.0, 0.25, 0.0, 1.0, -0.125];
    bench.floats("t.npy", &values);
    // Lossless.
    bench.ok("compress t.npy t.gw --compressor none");
    bench.ok("decompress t.gw back.npy");
    let data = |bytes: Vec<u8>| bytes[bytes.len() - 24..].to_vec();
    assert_eq!(data(bench.read("back.npy")), data(bench.read("t.npy")));
    // 3LC with s = 1: M = 2, and only −2 and 1 (half of M rounds up in magnitude) survive. The
    // squares of the errors, ½, ¼, 1 and ⅛, are 1.328 of 5.328, whether 1 became 0 or 2.
    let printed = bench.ok("compress t.npy t.gw --compressor 3lc --force");
    assert!(printed.contains("Relative error of the compressed values: 0.499"), "{printed}");
    assert!(!printed.contains("More than half"), "{printed}");
    // One of four equal values is kept: √¾.
    bench.floats("equal.npy", &[1.0; 4]);
    let printed = bench.ok("compress equal.npy equal.gw --compressor topk:ratio=0.25");
    assert!(printed.contains("values: 0.866") && printed.contains("More than half"), "{printed}");
    bench.ok("decompress t.gw back.npy -f");
    let decoded: Vec<f32> = data(bench.read("back.npy"))
        .chunks_exact(4)
        .map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]]))
        .collect();
    assert_eq!(decoded[1], -2.0);
    assert!(decoded.iter().all(|x| [0.0, 2.0, -2.0].contains(x)), "{decoded:?}");
}

#[test]
fn half_floats_keep_their_type() {
    let bench = Bench::new();
    bench.npy("h.npy", "<f2", 2, &[0x00, 0x3c, 0x00, 0xc0]);
    bench.ok("compress h.npy h.gw --compressor fp16");
    bench.ok("decompress h.gw back.npy");
    let back = bench.read("back.npy");
    assert!(String::from_utf8_lossy(&back).contains("<f2"));
    assert_eq!(back[back.len() - 4..], [0x00, 0x3c, 0x00, 0xc0]);
}

#[test]
fn the_largest_half_floats_stay_finite() {
    let bench = Bench::new();
    // 65504, the largest f16: bf16 rounds it to 65536, natural compression may double it.
    bench.npy("h.npy", "<f2", 64, &[0xff, 0x7b].repeat(64));
    for id in gradwire::registry::REGISTRY.iter().map(|entry| entry.id) {
        bench.ok(&format!("compress h.npy h.gw -f --compressor {id}"));
        bench.ok("decompress h.gw back.npy -f");
        let back = bench.read("back.npy");
        for half in back[back.len() - 128..].chunks(2) {
            let bits = u16::from_le_bytes([half[0], half[1]]);
            assert!(bits & 0x7c00 != 0x7c00, "{id} decodes to {bits:04x}");
        }
    }
}

#[test]
fn safetensors_hold_several_tensors_of_several_types() {
    let bench = Bench::new();
    let header = r#"{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"BF16","shape":[1,2],"data_offsets":[8,12]}}"#;
    let mut file = (header.len() as u64).to_le_bytes().to_vec();
    file.extend_from_slice(header.as_bytes());
    file.extend_from_slice(&[0, 0, 128, 63, 0, 0, 0, 192, 0x80, 0x3f, 0x00, 0xc0]);
    bench.write("m.safetensors", &file);
    bench.ok("compress m.safetensors m.gw --compressor bf16");
    bench.ok("decompress m.gw back.safetensors");
    let back = bench.read("back.safetensors");
    assert_eq!(back[back.len() - 12..], file[file.len() - 12..]);
    let table = bench.ok("inspect m.gw");
    assert!(table.contains("bf16") && table.contains("[1, 2]"), "{table}");
    // Two tensors do not fit a .npy file, and nothing is written.
    assert!(bench.refused("decompress m.gw both.npy").contains(".safetensors"));
    assert!(!bench.names().contains(&"both.npy".to_owned()));
}

#[test]
fn a_seed_decides_the_draws() {
    let bench = Bench::new();
    let values: Vec<f32> = (0..1000).map(|i| (i as f32 * 0.37).sin()).collect();
    bench.floats("t.npy", &values);
    for (name, seed) in [("a", 1), ("b", 1), ("c", 2)] {
        bench.ok(&format!("compress t.npy {name}.gw --compressor terngrad --seed {seed}"));
    }
    assert_eq!(bench.read("a.gw"), bench.read("b.gw"));
    assert_ne!(bench.read("a.gw"), bench.read("c.gw"));
}

#[test]
fn what_cannot_be_compressed_is_named_and_nothing_is_written() {
    let bench = Bench::new();
    bench.floats("good.npy", &[1.0; 10]);
    bench.npy("objects.npy", "|O", 1, &[0; 8]);
    bench.npy("big.npy", ">f4", 1, &[0; 4]);
    bench.npy("short.npy", "<f4", 100, &[0; 8]);
    bench.write("text.txt", b"x");
    bench.refuses(&[
        ("compress good.npy x.gw --compressor 4lc", "known ones: none"),
        ("compress good.npy x.gw --compressor 3lc:s=2", "[1, 2)"),
        ("compress good.npy x.gw --compressor topk:ratio=0", "(0, 1]"),
        ("compress good.npy x.gw --compressor topk:part=1", "no parameter 'part'"),
        ("compress objects.npy x.gw --compressor 3lc", "Python objects"),
        ("compress big.npy x.gw --compressor onebit", "big-endian"),
        ("compress arrays.npz x.gw --compressor 3lc", "safetensors.numpy.save_file"),
        ("compress model.pt x.gw --compressor 3lc", "safetensors.torch.save_file"),
        ("compress short.npy x.gw --compressor 3lc", "does not fit"),
        ("compress absent.npy x.gw --compressor 3lc", "absent.npy"),
        ("compress text.txt x.gw --compressor 3lc", ".safetensors"),
        ("compress good.npy good.npy --compressor eden", "does not end in .gw"),
    ]);
}

#[test]
fn a_bomb_is_refused_before_memory_is_allocated() {
    let bench = Bench::new();
    // 2²⁸ zeros, which `threshold` sends as two bytes.
    bench.write("bomb.gw", &bomb("threshold", 1 << 14, &[2, 0]));
    let error = bench.refused("decompress bomb.gw out.npy");
    assert!(
        error.contains("'zeros'") && error.contains("1073741824") && error.contains("--max-bytes"),
        "{error}"
    );
    // Frames add up: each of these is within the limit, and both are not.
    bench.floats("t.npy", &[0.0; 1000]);
    bench.ok("compress t.npy t.gw --compressor threshold");
    let one = bench.read("t.gw");
    bench.write("two.gw", &[one.clone(), one].concat());
    bench.ok("decompress t.gw one.npy --max-bytes 4000");
    bench.refused("decompress t.gw no.npy --max-bytes 3999");
    let error = bench.refused("decompress two.gw no.safetensors --max-bytes 7999");
    assert!(error.contains("only 3999 bytes are left"), "{error}");
    // Within it, a .safetensors file still cannot hold two tensors of one name.
    let error = bench.refused("decompress two.gw no.safetensors --max-bytes 8000");
    assert!(error.contains("several tensors have the name 't'"), "{error}");
    assert_eq!(bench.names(), ["bomb.gw", "one.npy", "t.gw", "t.npy", "two.gw"]);
}

#[test]
#[cfg(target_os = "linux")]
fn decompression_without_enough_memory_ends_with_an_error() {
    let bench = Bench::new();
    // 2²⁶ zeros, 256 MiB. `sketchml` needs more memory than that to decode two sides without
    // elements; `threshold` needs none, and the file takes as much again.
    bench.write("decode.gw", &bomb("sketchml", 1 << 13, &[0, 0]));
    bench.write("write.gw", &bomb("threshold", 1 << 13, &[2, 0]));
    for line in [
        "decompress decode.gw out.npy --max-bytes 100000000000",
        "decompress write.gw out.npy --max-bytes 100000000000",
        "decompress write.gw out.safetensors --max-bytes 100000000000",
    ] {
        let mut limited = Command::new("sh");
        limited.current_dir(bench.path(".")).args(["-c", "ulimit -v 524288; exec \"$@\"", "sh"]);
        let command = bench.command(line);
        let output = limited.arg(command.get_program()).args(command.get_args()).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{line}: {error}");
        assert!(
            error.contains("error: ") && error.contains("not enough memory"),
            "{line}: {error}"
        );
    }
    assert_eq!(bench.names(), ["decode.gw", "write.gw"]);
}

/// A frame of less than 60 bytes that holds a square matrix.
fn bomb(spec: &str, side: usize, message: &[u8]) -> Vec<u8> {
    let frame = Frame {
        spec: spec.parse().unwrap(),
        tensor: Tensor::new("zeros", &[side, side]),
        dtype: Dtype::F32,
        seed: 0,
        step: 0,
        rank: 0,
        message,
    };
    let mut bytes = Vec::new();
    frame.write(&mut bytes).unwrap();
    assert!(bytes.len() < 60);
    bytes
}

#[test]
fn files_are_replaced_only_by_force() {
    let bench = Bench::new();
    bench.floats("t.npy", &[1.0, -2.0]);
    bench.ok("compress t.npy t.gw --compressor none");
    bench.write("back.npy", b"mine");
    bench.write("run.json", b"mine");
    bench.refuses(&[
        ("compress t.npy t.gw --compressor onebit", "'t.gw' exists already"),
        ("decompress t.gw back.npy", "replace it with --force (-f)"),
        ("train --steps 1 --out run.json", "'run.json' exists already"),
    ]);
    assert_eq!(bench.read("back.npy"), b"mine");
    bench.ok("decompress t.gw back.npy --force");
    assert!(bench.read("back.npy").ends_with(&[0, 0, 128, 63, 0, 0, 0, 192]));
}

#[test]
fn tensors_go_through_pipes() {
    let bench = Bench::new();
    bench.floats("t.npy", &[1.0, -2.0, 3.5]);
    bench.ok("compress t.npy t.gw --compressor none");
    let output = bench.piped("compress - - --compressor none --format npy", &bench.read("t.npy"));
    // The name of the tensor was the file's.
    let frames = output.stdout;
    assert_eq!(frames.len(), bench.read("t.gw").len() + "tensor".len() - "t".len());
    assert!(String::from_utf8_lossy(&output.stderr).contains("1 tensor"));
    let table = bench.piped("inspect - --csv", &frames).stdout;
    let table = String::from_utf8(table).unwrap();
    assert!(
        table.lines().nth(1).unwrap().starts_with("tensor,[3],f32,none,0,0,0,3,12,"),
        "{table}"
    );
    let back = bench.piped("decompress - - --format npy", &frames).stdout;
    assert!(back.starts_with(b"\x93NUMPY") && back.ends_with(&[0, 0, 0, 192, 0, 0, 96, 64]));
    let back = bench.piped("decompress - t.safetensors", &frames);
    assert!(back.status.success() && bench.read("t.safetensors").ends_with(&[0, 0, 96, 64]));
    for (line, says) in [
        ("compress - t2.gw --compressor none", "--format npy"),
        ("decompress - -", "--format npy"),
        ("inspect -", "standard input, frame 1"),
    ] {
        let output = bench.piped(line, b"nothing");
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(says), "{line}: {error}");
    }
}

#[test]
fn doubles_are_compressed_as_floats() {
    let bench = Bench::new();
    let bytes =
        |values: &[f64]| -> Vec<u8> { values.iter().flat_map(|x| x.to_le_bytes()).collect() };
    bench.npy("d.npy", "<f8", 2, &bytes(&[1.5, -2.0]));
    let output = bench.run("compress d.npy d.gw --compressor fp16");
    assert!(String::from_utf8_lossy(&output.stderr).contains("Rounded to float32"));
    bench.ok("decompress d.gw back.npy");
    assert!(bench.read("back.npy").ends_with(&[0, 0, 192, 63, 0, 0, 0, 192]));
    // Values beyond the range of float32, and lossless compressors, keep the bits.
    bench.npy("large.npy", "<f8", 2, &bytes(&[1e300, 0.1]));
    for (name, compressor) in [("large", "fp16"), ("d", "lossless"), ("d", "none")] {
        bench.ok(&format!("compress {name}.npy kept.gw -f --compressor {compressor}"));
        bench.ok("decompress kept.gw back.npy -f");
        let back = bench.read("back.npy").split_off(128);
        let whole = bench.read(&format!("{name}.npy"));
        assert!(back.len() == 16 && whole.ends_with(&back), "{name} {compressor}");
    }
}

#[test]
fn what_no_reader_takes_is_not_written() {
    let bench = Bench::new();
    bench.write("none.safetensors", &[b"\x02\0\0\0\0\0\0\0".as_slice(), b"{}"].concat());
    assert!(
        bench.refused("compress none.safetensors x.gw --compressor 3lc").contains("no tensors")
    );
    bench.npy_of_shape("deep.npy", "<f4", &[1; 65], &[0; 4]);
    assert!(bench.refused("compress deep.npy x.gw --compressor 3lc").contains("65 dimensions"));
    bench.floats("__metadata__.npy", &[1.0]);
    bench.ok("compress __metadata__.npy m.gw --compressor none");
    assert!(bench.refused("decompress m.gw m.safetensors").contains("'__metadata__'"));
    bench.ok("decompress m.gw m.npy");
    assert_eq!(
        bench.names(),
        ["__metadata__.npy", "deep.npy", "m.gw", "m.npy", "none.safetensors"]
    );
}

#[cfg(unix)]
#[test]
fn outputs_replace_no_device_and_no_link() {
    let bench = Bench::new();
    bench.floats("t.npy", &[1.0; 10]);
    std::os::unix::fs::symlink("/dev/null", bench.path("device.gw")).unwrap();
    std::os::unix::fs::symlink("t.gw", bench.path("link.gw")).unwrap();
    let error = bench.run("compress t.npy device.gw --compressor none");
    assert!(!error.status.success());
    assert!(String::from_utf8_lossy(&error.stderr).contains("a device"));
    bench.ok("compress t.npy link.gw --compressor none");
    assert!(bench.path("link.gw").is_symlink() && bench.path("t.gw").is_file());
    assert_eq!(bench.names(), ["device.gw", "link.gw", "t.gw", "t.npy"]);
}

#[test]
fn a_damaged_frame_is_refused_at_every_length() {
    let bench = Bench::new();
    bench.floats("t.npy", &[1.0, -1.0, 0.5]);
    bench.ok("compress t.npy t.gw --compressor topk:ratio=0.5");
    let whole = bench.read("t.gw");
    for len in [0, 3, 9, whole.len() / 2, whole.len() - 1] {
        bench.write("cut.gw", &whole[..len]);
        assert!(bench.refused("inspect cut.gw").contains("cut.gw"));
        bench.refused("decompress cut.gw out.npy");
    }
    let mut flipped = whole.clone();
    *flipped.last_mut().unwrap() ^= 1;
    bench.write("cut.gw", &flipped);
    assert!(bench.refused("inspect cut.gw").contains("checksum"));
    bench.write("cut.gw", &[whole.as_slice(), b"tail"].concat());
    assert!(bench.refused("decompress cut.gw out.npy").contains("frame 2"));
    assert!(!bench.names().contains(&"out.npy".to_owned()));
}
