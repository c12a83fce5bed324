//! What `compress` keeps bit for bit beside the tensors that it compresses, and what `advise`
//! leaves out.

mod support;

use serde_json::Value;
use support::Bench;

/// A tensor of a .safetensors file: its name, element type, shape as JSON, and bytes.
type Part<'a> = (&'a str, &'a str, &'a str, &'a [u8]);

/// A .safetensors file, as its specification says. The library writes tensors in this form, larger
/// elements first.
fn safetensors(metadata: &str, parts: &[Part<'_>]) -> Vec<u8> {
    let (mut header, mut data) = (format!("{{\"__metadata__\":{metadata}"), Vec::new());
    for (name, dtype, shape, bytes) in parts {
        let start = data.len();
        data.extend_from_slice(bytes);
        let end = data.len();
        header += &format!(
            ",\"{name}\":{{\"dtype\":\"{dtype}\",\"shape\":{shape},\"data_offsets\":[{start},{end}]}}"
        );
    }
    header.push('}');
    header += &" ".repeat(header.len().next_multiple_of(8) - header.len());
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data].concat()
}

/// Zero and −∞, as in a mask of attention.
const MASK: [u8; 8] = [0, 0, 0, 0, 0, 0, 0x80, 0xff];
const WEIGHT: [u8; 8] = [0, 0, 128, 63, 0, 0, 0, 192];

/// Tensors of a model that no compressor takes: counters, doubles, a mask, a NaN with a payload,
/// float8, booleans.
fn model() -> Vec<u8> {
    let parts: [Part<'_>; 9] = [
        ("bn.num_batches_tracked", "I64", "[]", &[7, 0, 0, 0, 0, 0, 0, 0]),
        ("doubles", "F64", "[1]", &[1, 2, 3, 4, 5, 6, 7, 0x7f]),
        ("empty", "F32", "[0,3]", &[]),
        ("mask", "F32", "[1,2]", &MASK),
        ("scalar", "F32", "[]", &WEIGHT[..4]),
        ("weight", "F32", "[2]", &WEIGHT),
        ("half", "BF16", "[2]", &[0x80, 0x3f, 0xc1, 0xff]),
        ("scales", "F8_E4M3", "[2,2]", &[0, 0x7f, 0xff, 0x80]),
        ("flags", "BOOL", "[3]", &[1, 0, 1]),
    ];
    safetensors("{\"format\":\"pt\"}", &parts)
}

#[test]
fn a_model_comes_back_with_all_that_is_no_gradient() {
    let bench = Bench::new();
    bench.write("m.safetensors", &model());
    let output = bench.run("compress m.safetensors m.gw --compressor none");
    assert!(output.status.success());
    let note = String::from_utf8(output.stderr).unwrap();
    assert_eq!(note.lines().count(), 1, "{note}");
    for part in [
        "'bn.num_batches_tracked' (type i64)",
        "'doubles' (type f64)",
        "'mask' (with -inf)",
        "'half' (with NaN)",
        "'scales' (type f8_e4m3)",
        "'flags' (type bool)",
    ] {
        assert!(note.contains(part), "{part}: {note}");
    }
    assert!(!note.contains("weight") && !note.contains("learning rate"), "{note}");
    bench.ok("decompress m.gw back.safetensors");
    assert!(bench.read("back.safetensors") == model());
    // A lossy compressor changes the weights alone.
    bench.ok("compress m.safetensors m.gw -f --compressor onebit --seed 0");
    bench.ok("decompress m.gw back.safetensors -f");
    let (back, whole) = (bench.read("back.safetensors"), model());
    let at = whole.windows(8).position(|bytes| bytes == WEIGHT).unwrap();
    assert!(back[..at] == whole[..at] && back[at + 8..] == whole[at + 8..]);
}

#[test]
fn inspect_shows_what_was_kept() {
    let bench = Bench::new();
    bench.write("m.safetensors", &model());
    bench.ok("compress m.safetensors m.gw --compressor 3lc");
    let rows: Vec<Value> = serde_json::from_str(&bench.ok("inspect m.gw --json")).unwrap();
    assert_eq!(rows.len(), 10);
    let row = |name: &str| rows.iter().find(|row| row["tensor"] == name).unwrap();
    assert_eq!(row("weight")["compressor"], "3lc");
    let flags = row("flags");
    assert_eq!((&flags["dtype"], &flags["compressor"]), (&"bool".into(), &Value::Null));
    assert_eq!((&flags["message_bytes"], &flags["bits_per_element"]), (&3.into(), &8.0.into()));
    assert_eq!(rows[9]["metadata"]["format"], "pt");
    let table = bench.ok("inspect m.gw");
    for part in ["f8_e4m3", "(uncompressed)", "format", "pt"] {
        assert!(table.contains(part), "{part}: {table}");
    }
}

#[test]
fn arrays_of_numpy_are_kept_too() {
    let bench = Bench::new();
    bench.floats("mask.npy", &[0.0, f32::NEG_INFINITY]);
    bench.npy("ids.npy", "<i8", 2, &[9; 16]);
    for name in ["mask", "ids"] {
        bench.ok(&format!("compress {name}.npy {name}.gw --compressor topk"));
        bench.ok(&format!("decompress {name}.gw back.npy -f"));
        let data = |bytes: Vec<u8>| bytes[bytes.len() - 8..].to_vec();
        assert_eq!(data(bench.read("back.npy")), data(bench.read(&format!("{name}.npy"))));
    }
    assert!(String::from_utf8_lossy(&bench.read("back.npy")).contains("'<i8'"));
    // NumPy has no float8, and no place for metadata; bfloat16 becomes float32, NaN included.
    bench.write("f8.safetensors", &safetensors("{\"a\":\"b\"}", &[("x", "F8_E5M2", "[1]", &[1])]));
    bench.ok("compress f8.safetensors f8.gw --compressor none");
    assert!(bench.refused("decompress f8.gw f8.npy").contains("f8_e5m2"));
    let nan: [Part<'_>; 1] = [("x", "BF16", "[1]", &[0xc1, 0xff])];
    bench.write("bf16.safetensors", &safetensors("{\"a\":\"b\"}", &nan));
    bench.ok("compress bf16.safetensors bf16.gw --compressor none");
    let output = bench.run("decompress bf16.gw bf16.npy");
    assert!(String::from_utf8_lossy(&output.stderr).contains("metadata was left out"));
    assert!(bench.read("bf16.npy").ends_with(&[0, 0, 0xc1, 0xff]));
}

#[test]
fn files_that_were_joined_have_the_metadata_of_all() {
    let bench = Bench::new();
    let file = |name: &str, metadata: &str| {
        let bytes = safetensors(metadata, &[(name, "F32", "[2]", &WEIGHT)]);
        bench.write(&format!("{name}.safetensors"), &bytes);
        bench.ok(&format!("compress {name}.safetensors {name}.gw --compressor none"));
        bench.read(&format!("{name}.gw"))
    };
    let parts = [
        file("a", "{\"format\":\"pt\"}"),
        file("b", "{\"format\":\"pt\",\"part\":\"2\"}"),
        file("c", "{\"format\":\"np\"}"),
    ];
    bench.write("ab.gw", &parts[..2].concat());
    bench.ok("decompress ab.gw ab.safetensors");
    let both: [Part<'_>; 2] = [("a", "F32", "[2]", &WEIGHT), ("b", "F32", "[2]", &WEIGHT)];
    let expected = safetensors("{\"format\":\"pt\",\"part\":\"2\"}", &both);
    assert!(bench.read("ab.safetensors") == expected);
    bench.write("abc.gw", &parts.concat());
    let error = bench.refused("decompress abc.gw abc.safetensors");
    assert!(error.contains("'format' has two values, 'pt' and 'np'"), "{error}");
}

#[test]
fn what_is_kept_counts_towards_the_limit() {
    let bench = Bench::new();
    bench.write("m.safetensors", &safetensors("{}", &[("ids", "I64", "[1]", &[1; 8])]));
    bench.ok("compress m.safetensors m.gw --compressor none");
    assert!(bench.refused("decompress m.gw b.safetensors --max-bytes 7").contains("tensor 'ids'"));
    bench.ok("decompress m.gw b.safetensors --max-bytes 8");
}

#[test]
fn an_unknown_type_is_named() {
    let bench = Bench::new();
    bench.write("m.safetensors", &safetensors("{}", &[("ids", "I4", "[2]", &[1])]));
    let error = bench.refused("compress m.safetensors m.gw --compressor none");
    assert!(error.contains("m.safetensors") && error.contains("'ids'"), "{error}");
    assert!(error.contains("type I4"), "{error}");
}

#[test]
fn advise_leaves_out_what_is_no_gradient() {
    let bench = Bench::new();
    bench.write("m.safetensors", &model());
    let line = "--ranks 2 --step-ms 10 --link 1gbit --compressor int8 --json";
    let output = bench.run(&format!("advise m.safetensors {line}"));
    let note = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{note}");
    assert!(note.contains("'mask' (with -inf)") && note.contains("'flags' (type bool)"), "{note}");
    let advice: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    // A scalar, and two weights.
    assert_eq!(advice[0]["elements"], 3);
    bench.write("i.safetensors", &safetensors("{}", &[("ids", "I64", "[1]", &[1; 8])]));
    let error = bench.refused(&format!("advise i.safetensors {line}"));
    assert!(error.contains("only 'ids' (type i64)"), "{error}");
    // An infinity in any step.
    bench.write("1.safetensors", &safetensors("{}", &[("w", "F32", "[2]", &WEIGHT)]));
    bench.write("2.safetensors", &safetensors("{}", &[("w", "F32", "[2]", &MASK)]));
    let error = bench.refused(&format!("advise 1.safetensors 2.safetensors {line}"));
    assert!(error.contains("'w' (with -inf)") && !error.contains("learning rate"), "{error}");
}
